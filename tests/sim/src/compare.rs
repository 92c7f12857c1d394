//! Rules of scaling, compared on the work of one VM.
//!
//! For: `neonsim compare`, and the tests that bound how often a VM changes its size. The [`scenario`](crate::scenario)
//! worlds have loads as levels; here the guest's processor is simulated millisecond by millisecond, because what a monitor
//! samples within tenths of a second decides: tasks share the virtual CPUs, and the quota of a small VM stops all of them for
//! most of each period. Monitor and agent are the real cores. Every request is permitted, and a change takes as long as on a
//! quiet node.
//!
//! The reference is a perfect forecaster: at every moment the smallest size whose CPU, used to 90 %, does the work that comes
//! at that moment on average.

mod account;
mod load;
mod play;
mod processor;

use std::time::Duration;

pub use account::{Point, Trial};
pub use load::Load;
pub use play::trial;

/// The rules by which the VM is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The monitor requests CPU and memory by amounts (protocol v2.0), the agent follows metrics as well.
    Ours,
    /// The monitor requests memory alone (protocol v1.0); CPU follows the load average of a minute, read every 5 s.
    Upstream,
}

impl Rules {
    pub const ALL: [Self; 2] = [Self::Ours, Self::Upstream];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Upstream => "upstream",
        }
    }
}

/// What a trial is about, apart from load and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Seed of the random numbers: the same seed gives the same work.
    pub seed: u64,
    /// Lower bound, in compute units of a quarter CPU; at least 1.
    pub min: u32,
    /// Upper bound, in compute units; at least `min`.
    pub max: u32,
    /// How long the load lasts; `None`: as long as [`Load::length`].
    pub length: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { seed: 1, min: 1, max: 4, length: None }
    }
}
