//! Changes of size, and answers to them.

use std::time::Duration;

use neonvm_types::Resources;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// The agent wants to take.
    Down(Resources),
    /// The agent has given.
    Up(Resources),
    /// The file cache is to fit what is there.
    Settle,
}

/// A change that waits for the file cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) token: u64,
    /// Number of the agent's message that waits for a reply. None: there is none, or its connection is gone.
    pub(super) id: Option<u64>,
    pub(super) resize: Resize,
    pub(super) deadline: Duration,
}

/// An answer to a downscale.
pub(super) enum Refusal {
    /// No, and why.
    No(String),
    /// It cannot be determined; the reason.
    Unknown(String),
}
