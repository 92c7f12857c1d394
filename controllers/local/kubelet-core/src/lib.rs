//! What happens to a pod next, as a pure function: events in, actions out.
//!
//! ```text
//! Preparing ──Prepared──▶ Running ──all containers ended──▶ Cleaning ──Cleaned──▶ Ended ──▶ (Remove, Forget)
//!     │                      │ Delete, Vanished                ▲
//!     │ refused              ▼                                 │
//!     └──────────────────▶ Stopping ──nothing runs any more────┘
//! ```
//!
//! Each container goes Waiting → Starting → Running → Ended, and by the restart policy back to Waiting.

mod plan;
pub mod size;
pub mod status;
mod step;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

pub use plan::{ContainerPlan, Plan, RestartPolicy};
use size::{PodRequests, Resources, Room, Size};

/// Milliseconds since 1970.
pub type Millis = u64;

/// The life cycle of a pod. Written to disk at every change, so that a restarted node continues where it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// What the pod runs.
    pub plan: Plan,
    /// Where it is in its life.
    pub phase: Phase,
    /// By container name.
    pub runs: BTreeMap<String, Run>,
    /// When the pod was taken on.
    pub since: Millis,
    /// The pod is to end: by when what still runs is killed.
    pub stop: Option<Stop>,
    /// Why the pod failed as a whole, if it did.
    pub failure: Option<(String, String)>,
    /// Why preparing takes long, for people: reason and message.
    pub hold_up: Option<(String, String)>,
    /// Absent in what a former version of the node wrote.
    #[serde(default)]
    pub size: Size,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Volumes and network are being made.
    Preparing,
    /// Containers run, or wait to be started.
    Running,
    /// Containers are being ended.
    Stopping,
    /// Network, cgroup and volumes are being removed.
    Cleaning,
    /// Only status and logs are left.
    Ended,
}

/// A pod that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// When what still runs is killed.
    pub deadline: Millis,
    /// Whether the containers were killed.
    pub killed: bool,
    /// The object was deleted: it is removed once everything is.
    pub deleted: bool,
    /// The object is gone already.
    pub gone: bool,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it does now.
    pub state: State,
    /// How often it was started before; names its log and its directory.
    pub restarts: u32,
    /// How the run before ended.
    pub last: Option<Ended>,
    /// The start-up probe has succeeded, or there is none.
    pub started: bool,
    /// Whether its readiness probe succeeds, or it has none.
    pub ready: bool,
    /// Ended by a failed probe: when it is killed.
    pub ending: Option<(Millis, bool)>,
    /// The pause before the next start.
    pub pause: Millis,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// To be started, not before that time.
    Waiting {
        /// Not before this time, in milliseconds since 1970.
        until: Millis,
        /// The reason, as the status of the pod has it.
        reason: String,
        message: String,
    },
    /// The process is being made.
    Starting,
    /// Its process runs.
    Running {
        /// Since when, in milliseconds since 1970.
        since: Millis,
    },
    Ended(Ended),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit status; 128 and the signal if one ended it.
    pub code: i32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The reason, as the status of the pod has it.
    pub reason: String,
    pub message: String,
    /// When it was started, in milliseconds since 1970.
    pub started: Millis,
    /// When it ended, in milliseconds since 1970.
    pub finished: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Until it succeeds, the others wait.
    Startup,
    /// Whether clients are sent to the container.
    Readiness,
    /// Whether the container is restarted.
    Liveness,
}

/// What happened to the pod or its containers.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Volumes and network are there.
    Prepared,
    /// They are not yet; it is tried again.
    HeldUp {
        /// The reason, as the status of the pod has it.
        reason: String,
        message: String,
    },
    /// They cannot be, ever.
    Refused {
        /// The reason, as the status of the pod has it.
        reason: String,
        message: String,
    },
    /// A container's process runs.
    Started { container: String },
    /// It could not be started.
    NotStarted {
        container: String,
        /// The reason, as the status of the pod has it.
        reason: String,
        message: String,
    },
    /// It ended.
    Exited { container: String, ended: Ended },
    /// A probe reached its threshold, either way.
    Probed {
        container: String,
        /// Which of its probes.
        probe: ProbeKind,
        /// Whether it succeeded.
        good: bool,
        message: String,
    },
    /// The object is to be deleted, with so much time.
    Delete {
        /// Time that the containers have to end.
        grace: Millis,
    },
    /// The object is gone.
    Vanished,
    /// Network, cgroup and volumes are gone.
    Cleaned,
    /// The specification is new, or there is other room than before.
    Specified {
        wanted: PodRequests,
        generation: i64,
        /// What the node has, and what its other pods use.
        room: Room,
    },
    /// The cgroup was set to these resources, or why not.
    Sized {
        resources: Resources,
        /// Why they could not be set, if so.
        fault: Option<String>,
    },
    /// A time came that [`Machine::wake_at`] named.
    Time,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make volumes and network; answer with `Prepared`, `HeldUp` or `Refused`.
    Prepare,
    /// Start a container; answer with `Started` or `NotStarted`, later `Exited`.
    Start {
        container: String,
    },
    /// Hold the pod to what is allocated; answer with `Sized`.
    Resize,
    /// Request it to end.
    Terminate {
        container: String,
    },
    /// Kill it with all its processes.
    Kill {
        container: String,
    },
    /// Remove everything but status and logs; answer with `Cleaned`.
    CleanUp,
    Remove,
    /// Remove status and logs; the pod is no more.
    Forget,
    /// Something worth an event on the pod.
    Note {
        /// Whether it is a warning.
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

impl Machine {
    /// A pod that was just taken on.
    pub fn new(plan: Plan, now: Millis) -> Self {
        let reason = if plan.init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let waiting = |container: &ContainerPlan| (container.name.clone(), Run::new(now, reason));
        let runs = plan.init.iter().chain(&plan.main).map(waiting).collect();
        Self {
            plan,
            phase: Phase::Preparing,
            runs,
            since: now,
            stop: None,
            failure: None,
            hold_up: None,
            size: Size::default(),
        }
    }

    /// Whether nothing will happen to its containers any more.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Cleaning | Phase::Ended)
    }

    /// Names of the containers with a running process.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        let is_running =
            |(_, run): &(&String, &Run)| matches!(run.state, State::Running { .. } | State::Starting);
        self.runs.iter().filter(is_running).map(|(name, _)| name.as_str())
    }

    /// When [`Event::Time`] is due.
    pub fn wake_at(&self) -> Option<Millis> {
        let stop =
            self.stop.filter(|stop| !stop.killed && self.phase == Phase::Stopping).map(|stop| stop.deadline);
        let of_run = |run: &Run| match run.state {
            State::Waiting { until, .. } if self.phase == Phase::Running => Some(until),
            State::Running { .. } => run.ending.filter(|(_, killed)| !killed).map(|(deadline, _)| deadline),
            _ => None,
        };
        let runs = self.due_containers().filter_map(|name| self.runs.get(name)).filter_map(of_run).min();
        let retry = self.size.retry.filter(|_| self.phase == Phase::Running);
        stop.into_iter().chain(runs).chain(retry).min()
    }
}

impl Run {
    fn new(now: Millis, reason: &str) -> Self {
        let state = State::Waiting { until: now, reason: reason.to_owned(), message: String::new() };
        Self { state, restarts: 0, last: None, started: false, ready: false, ending: None, pause: 0 }
    }
}

#[cfg(test)]
mod tests;

pub(crate) fn time(millis: Millis) -> Time {
    // Whole seconds, as Kubernetes writes them.
    let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}
