//! The monitor's decisions inside one guest: when to request memory and CPU, whether to release them, how
//! large the file cache of PostgreSQL may be.
//!
//! [`Policy`] takes events and returns actions; it reads no file and no clock. With an agent of protocol v1.0 it requests
//! memory only, without amounts. From v2.0 on it also watches the run queue, which shows in half a second what the load
//! average shows in most of a minute, and sends amounts and reasons.
//!
//! What was sampled belongs to the guest, not to a connection: an agent that comes back is served at once.

mod change;
mod cpu;
mod evidence;
mod formula;
mod history;
pub mod informant;
mod limits;
mod memory;
mod narrow;
mod outcome;
mod policy;
mod resize;
mod ring;

pub use formula::{file_cache_size, informant_file_cache_size, is_similar, needed_total, threshold, usable};
pub use history::{History, Sample};
pub use limits::{
    ANSWER_LONGEST, FREEZE_INTERVAL, FREEZE_LONGEST, LIMIT_BUFFER, LimitChange, LimitValues, Limits,
    RAISE_INTERVAL, RAISE_STEP,
};
pub use outcome::{Action, Outcome};
pub use policy::{Event, Policy, Settings};
pub use ring::Ring;

use std::time::Duration;

/// Memory of a VM that is not for the workload: kernel, page tables, helpers. Bytes.
pub const SYSTEM_BUFFER: u64 = 100 << 20;
/// What must stay free below the threshold after a downscale, in bytes.
pub const DOWNSCALE_BUFFER: u64 = 100 << 20;
pub const AVERAGED: usize = 5;
/// Time between samples while an agent is connected and the load changes.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Time between samples while the run queue is full, for as long as that is not evidence yet.
pub const SUSPECT_INTERVAL: Duration = Duration::from_millis(40);
/// Time between samples while the load does not change.
pub const QUIET_INTERVAL: Duration = Duration::from_millis(120);
/// Time between samples while no agent is connected.
pub const LONELY_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two requests for the same resource.
pub const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// If the newest sample is older than this, the current state is unknown.
pub const STALE_AFTER: Duration = Duration::from_secs(5);
/// How long PostgreSQL may take to change its file cache before the agent gets an error. Less than the agent waits.
pub const FILE_CACHE_DEADLINE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
