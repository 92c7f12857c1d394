//! The embedded cluster: `neonvm-apiserver-engine` behind TLS, with its state on disk.
//!
//! `server` accepts connections, `identity` authenticates clients, `state` runs requests against the engine and waits for
//! the disk, `disk` groups commits, `watching` streams, `webhook` calls out, `token` signs service account tokens.

pub mod bootstrap;
pub mod disk;
pub mod faults;
mod identity;
mod metrics;
mod node_proxy;
mod own_kinds;
pub mod server;
pub mod state;
mod token;
mod watching;
mod webhook;
mod when_full;

pub use server::{Config, Server};
