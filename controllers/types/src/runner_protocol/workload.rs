//! The workload in the guest, as a runner reports it.

use serde::{Deserialize, Serialize};

use super::exit::ProcessExit;

/// The workload in the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Whether it runs.
    pub running: bool,
    /// How often it was started again inside the guest.
    pub restarts: u32,
    /// How it ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<ProcessExit>,
}
