//! Decisions with what they were made from.

use std::{fmt, time::Duration};

use neonvm_types::{Bytes, MilliCpu};
use serde::Serialize;

use crate::agent::{desired::Why, units::Size};

/// Something that came in and made a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Cause {
    /// The observed size changed.
    Reports(Size),
    /// Another client changed `spec.guest.*.use`.
    Outside {
        /// The requested size before.
        from: Size,
        /// The requested size now.
        to: Size,
    },
    Bounds {
        /// Lower.
        min: Size,
        /// Upper.
        max: Size,
    },
    /// A person fixed the size, or no longer does.
    Hold(Option<Size>),
    /// The scheduler answered.
    Permits {
        /// Size that the scheduler permitted.
        size: Size,
        /// The size that was requested.
        asked: Size,
    },
    /// The guest's CPUs stand still on request, or are to.
    Paused,
    /// They run again.
    Resumed,
    /// The scheduler announced that the VM is to be migrated.
    MigrationAnnounced,
    /// The migration that the scheduler announced is over, or will not be.
    MigrationOver,
    /// The scheduler did not answer as it should.
    SchedulerFailed(String),
    /// The VM could not be patched.
    PatchFailed(String),
    /// The VM had changed before the patch.
    PatchConflict,
    /// The monitor confirmed or agreed.
    Accepts(Size),
    /// The monitor did not agree.
    Denies {
        size: Size,
        /// For this reason.
        status: String,
    },
    /// The monitor did not answer as it should.
    MonitorFailed(String),
    /// The handshake succeeded, with this version.
    Connected(String),
    /// The connection ended, for this reason.
    Lost(String),
    /// The informant made another agent the current one.
    Suspended,
    /// No message came from the monitor for so long.
    Silent(Duration),
    /// A v1.0 monitor requested more memory.
    MoreMemory,
    /// The monitor requested amounts.
    Wants {
        /// CPU of the whole VM.
        cpu: Option<MilliCpu>,
        /// Memory of the whole VM.
        mem: Option<Bytes>,
        reason: String,
    },
    /// The first failed scrape after a good one.
    MetricsFailed(String),
    /// The node does not provide the requested size.
    NodeDenies {
        size: Size,
        /// Reason that the node reported.
        reason: String,
    },
    /// The VM does not reach its requested size.
    Slow { asked: Size, now: Size },
}

/// Something that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Decision {
    /// Reported the VM to the scheduler for the first time.
    Report(Size),
    /// Requested more from the scheduler.
    AskScheduler {
        from: Size,
        /// The size that was requested.
        to: Size,
    },
    /// Notified the scheduler that less is enough.
    #[serde(rename = "TellScheduler")]
    NotifyScheduler {
        from: Size,
        /// What is enough.
        to: Size,
    },
    SetVm {
        /// The requested size before.
        from: Size,
        /// The requested size after.
        to: Size,
    },
    /// Checked with a patch whether the VM is still to have this size, because an earlier patch may have been
    /// made unobserved.
    ConfirmVm(Size),
    /// Requested the monitor's consent to a smaller size.
    AskMonitor {
        /// What the guest may use.
        from: Size,
        /// What it is to agree to.
        to: Size,
    },
    /// Notified the monitor that there is more.
    #[serde(rename = "TellMonitor")]
    NotifyMonitor {
        /// Size that the monitor is notified of.
        to: Size,
    },
}

/// A goal and the metrics it was made from. Parts are compute units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GoalNote {
    /// One-minute load average.
    pub load1: Option<f64>,
    /// Compute units that the goal calls for.
    pub units: u32,
    /// Load's part.
    pub cpu: Option<u32>,
    /// Memory's part.
    pub mem: Option<u32>,
    /// The file cache's part.
    pub cache: Option<u32>,
    /// The user's metric's part.
    pub user: Option<u32>,
    /// CPU pressure in percent.
    pub cpu_pressure: Option<f64>,
    /// Memory pressure in percent.
    pub memory_pressure: Option<f64>,
    /// CPUs in use, in the busiest of the last intervals between scrapes.
    pub used: Option<f64>,
    /// CPUs that the host took away. Only shown: more virtual CPUs would not bring them back.
    pub steal: Option<f64>,
}

/// One decision: what came in, what was done about it, and which rule made the difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// When; the last time, if it was repeated.
    pub at: Duration,
    pub repeats: u32,
    /// What came in.
    pub causes: Vec<Cause>,
    /// What the metrics wanted, where they were the cause.
    pub goal: Option<GoalNote>,
    /// What was done.
    pub decisions: Vec<Decision>,
    /// The rule that decided the size.
    pub why: Why,
}

/// Longest text from outside that is kept, in characters.
const MOST_TEXT: usize = 120;

/// A text from outside, in one line and not too long.
#[must_use]
pub fn shorten(text: &str) -> String {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(MOST_TEXT).collect::<String>().trim().to_owned()
}

impl Note {
    /// A note without content.
    #[must_use]
    pub fn at(at: Duration) -> Self {
        Self { at, repeats: 0, causes: Vec::new(), goal: None, decisions: Vec::new(), why: Why::Metrics }
    }

    /// The rule that decided, in words, where it was not the metrics alone.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.why.words().filter(|_| !self.decisions.is_empty())
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.causes == other.causes && self.decisions == other.decisions
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reports(size) => write!(f, "VM reports {size}"),
            Self::Outside { from, to } => write!(f, "spec.use was changed by another client: {from} -> {to}"),
            Self::Bounds { min, max } => write!(f, "bounds are now {min} to {max}"),
            Self::Hold(Some(size)) => write!(f, "held at {size}"),
            Self::Hold(None) => write!(f, "hold is over"),
            Self::Permits { size, .. } => write!(f, "scheduler permits {size}"),
            Self::Paused => write!(f, "the VM is paused: the size stays"),
            Self::Resumed => write!(f, "the VM is resumed"),
            Self::MigrationAnnounced => write!(f, "scheduler announces a migration: the size stays"),
            Self::MigrationOver => write!(f, "no migration is announced any more"),
            Self::SchedulerFailed(error) => write!(f, "scheduler failed: {error}"),
            Self::PatchFailed(error) => write!(f, "patch failed: {error}"),
            Self::PatchConflict => write!(f, "patch refused: the VM had changed"),
            Self::Accepts(size) => write!(f, "monitor accepts {size}"),
            Self::Denies { size, status } => write!(f, "monitor denies {size}: {status}"),
            Self::MonitorFailed(error) => write!(f, "monitor failed: {error}"),
            Self::Connected(version) => write!(f, "monitor connected ({version})"),
            Self::Lost(reason) => write!(f, "monitor lost: {reason}"),
            Self::Suspended => write!(f, "informant suspends this agent"),
            Self::Silent(time) => write!(f, "monitor silent for {time:?}; connect again"),
            Self::MoreMemory => write!(f, "monitor asks for more memory"),
            Self::Wants { cpu, mem, reason } => {
                write!(f, "monitor wants")?;
                if let Some(cpu) = cpu {
                    write!(f, " cpu {cpu}")?;
                }
                if let Some(mem) = mem {
                    write!(f, " mem {mem}")?;
                }
                if reason.is_empty() { Ok(()) } else { write!(f, " ({reason})") }
            }
            Self::MetricsFailed(error) => write!(f, "no metrics: {error}"),
            Self::NodeDenies { size, reason } => write!(f, "denied: {size}: {reason}"),
            Self::Slow { asked, now } => write!(f, "VM still reports {now} although {asked} was asked"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(size) => write!(f, "report {size} to scheduler"),
            Self::AskScheduler { from, to } => write!(f, "ask scheduler {from} -> {to}"),
            Self::NotifyScheduler { from, to } => write!(f, "notify scheduler {from} -> {to}"),
            Self::SetVm { from, to } => write!(f, "set VM {from} -> {to}"),
            Self::ConfirmVm(size) => write!(f, "confirm VM at {size}"),
            Self::AskMonitor { from, to } => write!(f, "ask monitor {from} -> {to}"),
            Self::NotifyMonitor { to } => write!(f, "notify monitor {to}"),
        }
    }
}

/// `load 2.70, used 2.31 cpu, goal 12 (cpu 12, mem 10, cache 8)`.
impl fmt::Display for GoalNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(load1) = self.load1 {
            write!(f, "load {load1:.2}, ")?;
        }
        if let Some(used) = self.used {
            write!(f, "used {used:.2} cpu, ")?;
        }
        write!(f, "goal {}", self.units)?;
        let mut parts = Vec::new();
        for (name, part) in
            [("cpu", self.cpu), ("mem", self.mem), ("cache", self.cache), ("metric", self.user)]
        {
            parts.extend(part.map(|units| format!("{name} {units}")));
        }
        if !parts.is_empty() {
            write!(f, " ({})", parts.join(", "))?;
        }
        for (name, pressure) in [("cpu", self.cpu_pressure), ("memory", self.memory_pressure)] {
            if let Some(pressure) = pressure.filter(|pressure| *pressure >= 1.0) {
                write!(f, ", {name} pressure {pressure:.0}%")?;
            }
        }
        self.steal.filter(|steal| *steal >= 0.01).map_or(Ok(()), |steal| write!(f, ", steal {steal:.2} cpu"))
    }
}

/// What came in; then what was done.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = self.causes.iter().map(ToString::to_string);
        let goal = self.goal.iter().map(ToString::to_string);
        let decisions = self.decisions.iter().map(ToString::to_string);
        let all: Vec<String> = causes.chain(goal).chain(decisions).collect();
        f.write_str(&all.join("; "))?;
        if self.repeats > 0 { write!(f, " ({} times)", self.repeats.saturating_add(1)) } else { Ok(()) }
    }
}
