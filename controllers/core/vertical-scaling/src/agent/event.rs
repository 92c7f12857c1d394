//! What can happen to a VM.

use neonvm_types::{Resources, monitor_protocol::Wants, version::MonitorProtoVersion};

use crate::agent::{
    metrics::{LfcMetrics, SystemMetrics},
    vm::Vm,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsSource {
    /// Load and memory.
    System,
    /// The file cache.
    Lfc,
}

/// Why a patch was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The object had changed meanwhile (409, or a failed precondition): tried again once it was observed again.
    Conflict,
    /// Anything else, in words.
    Failed(String),
}

/// What the monitor answered; the kind must fit the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `UpscaleConfirmation`.
    Confirmed,
    /// `DownscaleResult` with `Ok` true.
    Agreed {
        /// What it did.
        status: String,
    },
    /// `DownscaleResult` with `Ok` false.
    Denied {
        /// Why the monitor denied the change, in words.
        status: String,
    },
}

/// What the scheduler answered to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginAnswer {
    /// What the VM may use.
    pub permit: Resources,
    /// Whether the VM is to be migrated, and must keep its size ([`crate::agent::announced`]).
    pub migrate: bool,
}

/// A permit, and no migration.
impl From<Resources> for PluginAnswer {
    fn from(permit: Resources) -> Self {
        Self { permit, migrate: false }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "made once, used up at once, never stored")]
pub enum Event {
    /// The VM object was seen, changed or not. Its status is taken to belong to the spec beside it.
    Vm(Vm),
    /// The VM object was observed, with the generation that its status is about. If that is older than the object's own,
    /// the observed size is uncertain: the controller has not handled the last change yet.
    VmSeen {
        /// The object as observed.
        vm: Vm,
        /// `status.observedGeneration`.
        status_generation: Option<i64>,
    },
    /// A scrape succeeded.
    SystemMetrics(SystemMetrics),
    /// A scrape of the file cache's metrics succeeded.
    LfcMetrics(LfcMetrics),
    /// A scrape failed. The last metrics stay in force, but grow old.
    MetricsFailed {
        /// The source whose scrape failed.
        source: MetricsSource,
        /// Why, in words.
        reason: String,
    },
    /// The handshake with the monitor succeeded; replaces the connection before, if any.
    MonitorConnected { version: MonitorProtoVersion },
    /// The connection ended, or could not be made.
    MonitorLost {
        /// Why, in words.
        reason: String,
    },
    /// The informant in the guest made another agent the current one: nothing may be changed before it resumes this one
    /// (`MonitorConnected`) or the registration ends (`MonitorLost`).
    MonitorSuspended,
    /// A request, such as a health check, was served. Without one for `Settings::monitor_silence` the connection is
    /// closed; requests to grow count as well, failures do not.
    MonitorAlive,
    /// The monitor requests more: memory (v1.0, `None`), or the given amounts.
    UpscaleRequested {
        /// What it wants, from v2.0 on.
        wants: Option<Wants>,
    },
    /// The scheduler's answer.
    PluginReply {
        /// Number of the request.
        id: u64,
        /// The answer, or what went wrong.
        result: Result<PluginAnswer, String>,
    },
    /// The API server's answer.
    PatchReply {
        /// Number of the patch.
        id: u64,
        /// `metadata.generation` of the object as patched (`None` if unknown), or the error.
        result: Result<Option<i64>, PatchError>,
    },
    /// The monitor's answer.
    MonitorReply {
        /// Number of the request.
        id: u64,
        /// Its verdict, or what went wrong.
        result: Result<Verdict, String>,
    },
    /// `wake_at` has come. Harmless at any other time.
    Timer,
}
