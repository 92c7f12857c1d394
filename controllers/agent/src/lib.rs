//! Scales the VMs of one node by their load.
//!
//! Decisions are `neonvm-core-vertical-scaling`'s; this crate fetches metrics, speaks to the scheduler and to the monitors in the
//! guests, and patches VMs. One task for each VM takes in all that happens to it; nothing polls but the readings of metrics.

mod billing;
mod config;
mod disks;
mod dump;
mod exporter;
mod fleet;
mod guest;
mod history;
mod inspect;
mod metrics;
mod monitor;
mod patch;
mod run;
mod scaling_events;
mod scheduler;
mod scrape;
mod shared;
mod unscaled;
mod vm;

pub use config::{AgentConfig, ConfigError};
pub use run::{Config, Error, run, run_with};
