//! One VM: prepares disks and network, runs QEMU, serves the runner interface.
//!
//! For: the container `neonvm-runner` of a VM's pod. Owns: QEMU and everything between pod and guest. May not: talk to
//! the API server; the controller sends requests, over mutual TLS.
//!
//! `core` decides (pure), `run` does; `prepare` makes disks, network and the plan; `api` is what others see.

mod api;
mod certificate;
pub mod client;
mod command;
mod config;
mod console;
pub mod copy;
mod guest;
mod host;
pub mod hostile;
pub mod logs;
mod migration;
mod network;
pub mod options;
mod pod_error;
mod prepare;
mod replaced;
mod rights;
mod run;
mod runtime;
mod suspend;
mod volume;

pub use host::facts as host_facts;
pub use options::Options;
pub use run::{run, runtime};
