//! The replica autoscaler: reads the metrics of workloads and writes how many replicas they should have.
//!
//! For: `neond pod-autoscaler`. Owns: watches, scrapes, the scale of targets, the status of `PodAutoscaler`s. May not:
//! decide; that is [`neonvm_core_pod_autoscaler`].
//!
//! ```text
//! watches ─▶ cache ───▶ queue ─▶ work ─┬─ target: replicas there, selector
//!                                      ├─ observe: pods' endpoints, metrics APIs
//!                                      ├─ core: decide
//!                                      ├─ target: replicas wanted, if they differ
//!                                      └─ status, events
//! ```
//! Beside it, in every replica: admission webhooks for `PodAutoscaler`s.
//! Nothing is kept on disk: a replica that starts holds the number it finds until its windows are filled.

mod cache;
mod config;
mod context;
mod error;
mod observe;
mod pods;
mod reach;
mod request;
mod run;
mod services;
mod status;
mod target;
mod telemetry;
mod watch;
mod webhook;
mod work;
mod wrapped;

pub use config::{Config, WebhookConfig};
pub use error::Error;
pub use reach::{Network, NotANetwork};
pub use run::{run, run_with};
