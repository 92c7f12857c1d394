//! Reports that a guest sends to its host without a request.

use serde::{Deserialize, Serialize};

/// One line on the report port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Milliseconds since the guest's kernel started.
    pub uptime_ms: u64,
    /// Kind of the report.
    #[serde(flatten)]
    pub kind: ReportKind,
}

/// Kinds of reports, with their data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "event")]
pub enum ReportKind {
    /// Init runs; the version of the guest program.
    Booted {
        /// Version of the guest program.
        version: String,
    },
    /// The daemon answers.
    Ready,
    /// The workload was started.
    WorkloadStarted {
        /// Its process number.
        pid: u32,
        /// How often it was started before.
        restarts: u32,
    },
    /// The workload ended.
    WorkloadExited {
        /// Exit code, if it ended by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// Signal, if one ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Whether the kernel killed something of it for want of memory.
        out_of_memory: bool,
    },
    /// A part of the boot failed; the boot continued.
    Failure {
        /// What and why.
        message: String,
        /// Whether the workload cannot be started because of it: no program, no such user, a disk that is not mounted. It stays
        /// so until the configuration of the VM or its image is another one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        workload: bool,
    },
    /// The guest has ended a freeze of file systems, because no client did within its time.
    FreezeExpired {
        /// The disks that were frozen.
        disks: Vec<String>,
        /// For how long, in milliseconds.
        frozen_ms: u64,
    },
    /// The guest shuts down.
    ShuttingDown {
        /// Why: `power button`, `workload ended`, a signal.
        reason: String,
    },
}
