//! The state and what happens to it.

use std::collections::VecDeque;
use std::time::Duration;

use neonvm_types::guest::MemoryLimits;
use neonvm_types::monitor_protocol::{AgentMessage, MessageIds, MonitorMessage, Wants};
use neonvm_types::version::MonitorProtoVersion;
use neonvm_types::{Bytes, Resources};

use super::change::{Pending, Resize};
use super::evidence::Evidence;
use super::limits::Limits;
use super::outcome::{Action, Outcome};
use super::{
    History, LONELY_INTERVAL, QUIET_INTERVAL, REQUEST_INTERVAL, SAMPLE_INTERVAL, SUSPECT_INTERVAL, Sample,
};

/// How long after memory was last seen to shrink the kernel may still be removing it.
const GIVING_PAUSE: Duration = Duration::from_secs(2);
/// How long that is believed at most.
const GIVING_LONGEST: Duration = Duration::from_secs(10);

/// What the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether a file cache follows the size of the VM.
    pub file_cache: bool,
    /// Whether memory can be sampled at all. If not, and there is no file cache, every downscale is agreed to.
    pub measures: bool,
    /// Processors that the VM can have at most; no more are requested.
    pub most_cpus: u32,
    /// Limits of the workload's control group.
    pub limits: MemoryLimits,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It was time for a sample; `None` if none could be taken.
    Sample(Option<Sample>),
    /// An agent is there, in place of the one before.
    Connected {
        version: MonitorProtoVersion,
        /// Memory the kernel has, in bytes.
        total: u64,
    },
    /// An agent with the informant's protocol is the current one: the informant's rules hold. Its requests come as messages of
    /// the monitor's oldest version.
    Registered {
        /// Memory the kernel has, in bytes.
        total: u64,
    },
    /// The agent is gone.
    Disconnected,
    /// The agent sent a message.
    Message {
        /// Number of the message, for the reply.
        id: u64,
        message: AgentMessage,
    },
    /// The agent sent an invalid message.
    Undecodable {
        /// Its number, if that could be read.
        id: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// The end of an [`Action::SetFileCache`].
    FileCacheSet {
        /// Of the action.
        token: u64,
        /// Bytes it has now, or what went wrong.
        result: Result<u64, String>,
    },
    /// The control group was at `memory.high`.
    MemoryHigh,
    /// It is [`Outcome::thaw_at`].
    Elapsed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(super) settings: Settings,
    pub(super) history: History,
    pub(super) evidence: Evidence,
    /// The agent's version while one is connected.
    pub(super) version: Option<MonitorProtoVersion>,
    /// What the agent last granted or took with our consent, since it connected.
    pub(super) granted: Option<Resources>,
    /// Memory the kernel has, in bytes, as last seen.
    pub(super) total: Option<u64>,
    /// Memory is being given back: since when, and when the kernel was last seen to have less.
    pub(super) giving: Option<(Duration, Duration)>,
    pub(super) limits: Limits,
    pub(super) pending: Option<Pending>,
    pub(super) queue: VecDeque<(Option<u64>, Resize)>,
    pub(super) tokens: u64,
    /// Whether the informant's rules hold: the last agent had its protocol.
    pub(super) informant: bool,
    ids: MessageIds,
    asked_memory: Option<Duration>,
    pub(super) asked_cpu: Option<Duration>,
    sampled: Option<Duration>,
}

impl Policy {
    /// The initial state, without samples.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            history: History::default(),
            evidence: Evidence::default(),
            version: None,
            granted: None,
            total: None,
            giving: None,
            limits: Limits::new(settings.limits),
            pending: None,
            queue: VecDeque::new(),
            tokens: 0,
            informant: false,
            ids: MessageIds::MONITOR,
            asked_memory: None,
            asked_cpu: None,
            sampled: None,
        }
    }

    /// Takes what happened at `now` (monotonic, since any fixed start).
    pub fn step(&mut self, now: Duration, event: Event) -> Outcome {
        let mut outcome = Outcome::default();
        self.elapse(now, &mut outcome);
        self.expire(now, &mut outcome);
        match event {
            Event::Sample(sample) => {
                self.sampled = Some(now);
                if let Some(sample) = sample {
                    if let (Some(giving), Some(total)) = (&mut self.giving, self.total)
                        && sample.total < total
                    {
                        giving.1 = now;
                    }
                    let grown = self.total.is_some_and(|total| sample.total > total);
                    self.total = Some(sample.total);
                    if self.history.is_due(now) {
                        self.history.push(now, sample);
                    }
                    if grown {
                        self.evidence.memory_came(now);
                    }
                    if let Some(cpu) = self.cpu_now() {
                        self.evidence.sample(now, sample, cpu);
                    }
                    self.follow_memory(grown, &mut outcome);
                    self.ask(now, &mut outcome);
                }
            }
            Event::Connected { version, total } => {
                self.disconnect(&mut outcome);
                self.informant = false;
                self.connect(now, version, total, &mut outcome);
            }
            Event::Registered { total } => {
                self.disconnect(&mut outcome);
                self.informant = true;
                self.connect(now, MonitorProtoVersion::V1_0, total, &mut outcome);
                self.follow_memory(false, &mut outcome);
            }
            Event::Disconnected => self.disconnect(&mut outcome),
            Event::Message { id, message } if self.version.is_some() => {
                self.message(now, id, &message, &mut outcome);
            }
            Event::Undecodable { id, reason } if self.version.is_some() => {
                let message = MonitorMessage::InvalidMessage { error: reason };
                outcome.actions.push(Action::Send { id: id.unwrap_or_default(), message });
            }
            Event::Message { .. } | Event::Undecodable { .. } => {}
            Event::FileCacheSet { token, result } => self.file_cache_set(now, token, result, &mut outcome),
            Event::MemoryHigh => self.press(now, &mut outcome),
            Event::Elapsed => {}
        }
        outcome.wake_at = self.next_sample(now);
        outcome.thaw_at = self.limits.thaw_at();
        outcome
    }

    /// Memory of the workload in bytes, averaged over the last samples.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.history.average()
    }

    fn connect(&mut self, now: Duration, version: MonitorProtoVersion, total: u64, outcome: &mut Outcome) {
        self.version = Some(version);
        self.ids = MessageIds::MONITOR;
        self.total = Some(total);
        // What an earlier agent granted may have changed since; what the kernel has is certain.
        self.granted = None;
        if self.settings.file_cache {
            self.resize(now, None, Resize::Settle, outcome);
        }
    }

    fn disconnect(&mut self, outcome: &mut Outcome) {
        self.version = None;
        self.release(outcome);
        self.follow_mode(outcome);
        if let Some(pending) = &mut self.pending {
            pending.id = None;
        }
        self.queue.clear();
    }

    fn message(&mut self, now: Duration, id: u64, message: &AgentMessage, outcome: &mut Outcome) {
        let (allocation, down) = match message {
            AgentMessage::HealthCheck => {
                return self.reply(Some(id), MonitorMessage::HealthCheck, outcome);
            }
            AgentMessage::InvalidMessage { .. } | AgentMessage::InternalError { .. } => return,
            AgentMessage::UpscaleNotification { granted } => (granted, false),
            AgentMessage::DownscaleRequest { target } => (target, true),
        };
        match allocation.to_resources() {
            Some(size) => {
                let resize = if down { Resize::Down(size) } else { Resize::Up(size) };
                self.resize(now, Some(id), resize, outcome);
            }
            None => {
                let error = format!("{}: {} is no number of CPUs", message.kind(), allocation.cpu);
                self.reply(Some(id), MonitorMessage::InvalidMessage { error }, outcome);
            }
        }
    }

    pub(super) fn reply(&self, id: Option<u64>, message: MonitorMessage, outcome: &mut Outcome) {
        if let Some(id) = id.filter(|_| self.version.is_some()) {
            outcome.actions.push(Action::Send { id, message });
        }
    }

    /// Requests more if more is needed, at most once a second for each resource.
    pub(super) fn ask(&mut self, now: Duration, outcome: &mut Outcome) {
        let Some(version) = self.version else { return };
        let due = |asked: Option<Duration>| asked.is_none_or(|at| now.saturating_sub(at) >= REQUEST_INTERVAL);
        let has_amounts = version >= MonitorProtoVersion::V2_0;
        let memory = if has_amounts { self.memory_wanted() } else { self.memory_short() };
        let memory = self.or_at_limit(now, memory).filter(|_| due(self.asked_memory));
        let cpu = self.cpu_wanted(now).filter(|_| has_amounts && due(self.asked_cpu) && !self.is_giving(now));
        if memory.is_none() && cpu.is_none() {
            return;
        }
        let reasons = [&memory.as_ref().map(|want| &want.1), &cpu.as_ref().map(|want| &want.1)];
        let reason =
            reasons.iter().filter_map(|reason| reason.map(String::as_str)).collect::<Vec<_>>().join("; ");
        self.asked_memory = memory.as_ref().map(|_| now).or(self.asked_memory);
        self.asked_cpu = cpu.as_ref().map(|_| now).or(self.asked_cpu);
        outcome.note = Some(reason.clone());
        let (cpu, mem) = (cpu.map(|want| want.0), memory.map(|want| Bytes::new(want.0)));
        let wants = has_amounts.then_some(Wants { cpu, mem, reason });
        let message = MonitorMessage::UpscaleRequest { wants };
        outcome.actions.push(Action::Send { id: self.ids.advance(), message });
    }

    /// Whether the kernel is at work to give memory back: its own tasks are no load of the workload. A request for CPU
    /// because of them would undo the change that causes them, repeatedly.
    fn is_giving(&self, now: Duration) -> bool {
        self.giving.is_some_and(|(since, last)| {
            now.saturating_sub(last) < GIVING_PAUSE && now.saturating_sub(since) < GIVING_LONGEST
        })
    }

    fn next_sample(&self, now: Duration) -> Duration {
        let interval = if self.version.is_none() {
            LONELY_INTERVAL
        } else if self.evidence.is_suspected() && self.speaks_of_amounts() {
            SUSPECT_INTERVAL
        } else if self.history.is_quiet() {
            QUIET_INTERVAL
        } else {
            SAMPLE_INTERVAL
        };
        self.sampled.map_or(now, |at| at.saturating_add(interval))
    }
}
