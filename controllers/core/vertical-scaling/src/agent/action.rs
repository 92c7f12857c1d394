//! What is to be done, and what came of a step.

use std::time::Duration;

use neonvm_types::{Resources, Revision, RevisionFlags, scheduler_protocol::Metrics};
use serde::Serialize;

use crate::agent::note::Note;

/// A request to the scheduler, without the fields that are the same in all requests of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SchedulerRequest {
    /// The permit held; `None` before the first.
    pub last_permit: Option<Resources>,
    /// What the VM wants, never less than it has.
    pub target: Resources,
    /// Load; `None` before the first scrape.
    pub metrics: Option<Metrics>,
}

/// One thing to do. Exactly one reply event with the same number must follow, in whatever time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    /// Send a request to the scheduler.
    AskScheduler {
        /// Number for the reply.
        id: u64,
        request: SchedulerRequest,
    },
    /// Patch `spec.guest.*.use` and `spec.targetRevision`, if the spec still has `from`. With `from` equal to
    /// `to` it checks whether an earlier patch, whose reply was lost, was made: if so, this one is a
    /// conflict.
    PatchVm {
        /// Number for the reply.
        id: u64,
        /// The requested size before, as the precondition.
        from: Resources,
        /// The new requested size. Memory is a whole number of slots.
        to: Resources,
        /// The new target revision; its time is the shell's wall clock.
        revision: Revision,
    },
    /// Send a `DownscaleRequest`.
    AskMonitorDownscale {
        /// Number for the reply.
        id: u64,
        /// What the guest may use now.
        from: Resources,
        /// What it is to agree to.
        to: Resources,
    },
    /// Send an `UpscaleNotification`.
    #[serde(rename = "TellMonitorUpscale")]
    NotifyUpscale {
        /// Number for the reply.
        id: u64,
        /// The size that the monitor has.
        from: Resources,
        /// What the VM has now.
        to: Resources,
    },
    /// Close the connection to the monitor and make a new one. Has no reply: `MonitorConnected` or `MonitorLost` follow.
    ResetMonitor {
        /// Why, in words.
        reason: String,
    },
}

/// Something that took a while and is done; for the metrics `autoscaling_agent_*_latency_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The operation that was measured.
    pub of: LatencyOf,
    /// In which direction: both bits, one, or none.
    pub flags: RevisionFlags,
    /// Time from the start of the operation to its end.
    pub took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LatencyOf {
    /// From the decision to the VM that shows it.
    Scaling,
    /// The scheduler's part.
    Plugin,
    /// The monitor's part.
    Monitor,
    /// From the patch to the VM that shows it.
    NeonVm,
}

/// What is to be reported as a scaling event. Amounts are compute units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum ScalingEvent {
    /// A patch is under way.
    Actual {
        /// The requested value before the change.
        current: u32,
        /// The requested value after the change.
        target: u32,
    },
    /// What the metrics alone would have the VM be.
    Hypothetical {
        /// The requested value.
        current: u32,
        /// The value that the goal calls for.
        target: u32,
        /// CPU's part.
        cpu: Option<f64>,
        /// Memory's part.
        mem: Option<f64>,
        /// The file cache's part.
        lfc: Option<f64>,
    },
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// What to do, in any order.
    pub actions: Vec<Action>,
    /// When to step again at the latest, on the same clock; always after `now`.
    pub wake_at: Option<Duration>,
    /// Decisions of this step. They are also in the view.
    pub notes: Vec<Note>,
    /// Decisions of this step that equal a recent one: they are counted in the view and are not logged again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<Note>,
    /// What is out of the ordinary, for the log.
    pub warnings: Vec<Warning>,
    /// What was finished.
    pub latencies: Vec<Latency>,
    pub scaling: Vec<ScalingEvent>,
}

/// A request to the scheduler that is due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PluginRequest {
    pub last_permit: Option<Resources>,
    /// The size to request.
    pub target: Resources,
    /// Load.
    pub metrics: Option<Metrics>,
    /// The revision it belongs to.
    pub revision: Revision,
}

/// A change that is due, of the VM object or at the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// From this size.
    pub current: Resources,
    pub target: Resources,
    /// The revision it belongs to.
    pub revision: Revision,
}

/// All that is due now; computing it again without a change in between gives the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActionSet {
    /// When time alone makes the next difference.
    pub wait: Option<Duration>,
    /// The request to the scheduler.
    pub plugin: Option<PluginRequest>,
    /// Change of the VM's requested size.
    pub neonvm: Option<Change>,
    /// The question to the monitor.
    pub monitor_downscale: Option<Change>,
    pub monitor_upscale: Option<Change>,
    /// What is out of the ordinary.
    pub warnings: Vec<Warning>,
}

impl ActionSet {
    /// Whether there is nothing to do but wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.plugin.is_none()
            && self.neonvm.is_none()
            && self.monitor_downscale.is_none()
            && self.monitor_upscale.is_none()
    }

    /// Makes the wait end no later than `after`.
    pub fn wait_for(&mut self, after: Duration) {
        self.wait = Some(self.wait.map_or(after, |wait| wait.min(after)));
    }
}

/// Something out of the ordinary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Warning {
    /// Shrinking is off until all metrics are there.
    #[error("making a decision without all metrics; the VM does not shrink")]
    IncompleteMetrics,
    /// The file cache's series is shorter than the window.
    #[error("the file cache's metrics do not reach back far enough yet")]
    ShortLfcSeries,
    /// The monitor's denial keeps the VM above its maximum.
    #[error("cannot go below the maximum because the monitor denied it")]
    AboveMaximumByDenial,
    /// The scheduler has not answered an older request yet.
    #[error("scheduler: another request is under way")]
    PluginBusy,
    /// The scheduler failed a moment ago.
    #[error("scheduler: a request failed too recently")]
    PluginFailedRecently,
    /// The scheduler refused a moment ago.
    #[error("scheduler: a request was denied too recently")]
    PluginDeniedRecently,
    /// The scheduler announced a migration.
    #[error("scheduler: the VM is to be migrated; its size stays")]
    MigrationAnnounced,
    /// The guest stands still on request.
    #[error("VM: it is paused; its size stays")]
    Paused,
    /// A patch is under way.
    #[error("VM: another patch is under way")]
    NeonVmBusy,
    /// A patch failed a moment ago.
    #[error("VM: a patch failed too recently")]
    NeonVmFailedRecently,
    /// The status is from before the last change, and nothing was seen before.
    #[error("VM: what it has is not known; its status is older than its spec")]
    NowUnknown,
    /// A request to the scheduler for a smaller size is under way.
    #[error("VM: the request to the scheduler under way asks for less than the VM is to grow to")]
    NeonVmAwaitsPlugin,
    /// No monitor to agree.
    #[error("monitor: cannot shrink without a connection")]
    NoMonitor,
    /// Another agent acts for the VM.
    #[error("informant: another agent is the current one; nothing is changed")]
    Suspended,
    /// The monitor works on another request.
    #[error("monitor: another request is under way")]
    MonitorBusy,
    /// The monitor failed a moment ago.
    #[error("monitor: a request failed too recently")]
    MonitorFailedRecently,
    /// The monitor denied a moment ago.
    #[error("monitor: this size was denied too recently")]
    MonitorDeniedRecently,
    /// A revision from the future.
    #[error("VM reports revision {0}, which was never issued")]
    UnknownRevision(i64),
}
