//! Replays recorded Kubernetes API behaviour (`controllers/local/apiserver/conformance`) against a server, over TLS, as raw JSON.
//!
//! For: `make test`, and for comparing other servers.
//! Owns: the meaning of a scenario file; `controllers/local/apiserver/conformance/README.md` describes it.
//! May not: know any type of ours. It talks to the server as any client does.

mod body;
mod client;
mod kubectl;
mod normal;
mod output;
mod path;
mod report;
mod run;
mod scenario;
mod value;
mod watch;
mod webhook;

pub use client::Cluster;
pub use kubectl::Kubectl;
pub use report::Totals;
pub use run::{Options, replay, start_server};
