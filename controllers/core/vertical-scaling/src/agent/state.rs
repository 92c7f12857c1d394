//! The agent's state of one VM, and the step from one state to the next.

use std::{collections::VecDeque, time::Duration};

use neonvm_types::{Bytes, Resources, Revision};
use serde::Serialize;

use crate::agent::{
    action::{Action, ActionSet, Change, Outcome, PluginRequest, SchedulerRequest},
    caution::Caution,
    counter::RecentCounter,
    event::Event,
    goal::GoalParts,
    machine::Machine,
    metrics::{LfcMetrics, SystemMetrics},
    monitor_peer::{Kind, Monitor},
    note::{Decision, Note},
    plugin::Plugin,
    revision::RevisionSource,
    settings::{Config, FailureRate, Settings},
    units::Size,
    usage::{CpuNeed, Usage},
    vm::Vm,
};

/// A note that is like one of so many last ones is counted, not added.
const LOOK_BACK: usize = 6;

/// Metrics and when they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Known {
    /// Load and memory.
    pub system: Option<(Duration, SystemMetrics)>,
    /// File cache.
    pub lfc: Option<(Duration, LfcMetrics)>,
    /// Memory required by memory pressure: one compute unit more than the VM had when it was measured.
    pub pressed: Option<Bytes>,
    /// CPU that was in use lately.
    pub usage: Usage,
    /// What was learned from shrinking memory.
    pub(super) memory_caution: Caution,
    /// CPUs that the host took away between the last two scrapes.
    pub steal: Option<f64>,
    /// Why the last scrape failed; empty if it did not.
    pub error: String,
}

/// A notice of the scheduler that the VM is to be migrated, in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Announced {
    /// When the first answer with the notice came.
    pub since: Duration,
    /// Whether the VM's status has shown a migration since.
    pub begun: bool,
}

/// The last hypothetical scaling that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Reported {
    pub(super) target: u32,
    pub(super) parts: GoalParts,
}

/// One VM's state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    pub(super) settings: Settings,
    pub(super) config: Config,
    pub(super) vm: Vm,
    pub(super) clock: Duration,
    /// When it was found, or last resumed.
    pub(super) found_at: Duration,
    pub(super) next_id: u64,
    pub(super) plugin: Plugin,
    pub(super) machine: Machine,
    pub(super) monitor: Monitor,
    pub(super) known: Known,
    pub(super) revisions: RevisionSource,
    pub(super) target_revision: Revision,
    pub(super) last_desired: Option<Resources>,
    pub(super) announced: Option<Announced>,
    pub(super) reported: Option<Reported>,
    pub(super) plugin_failures: RecentCounter,
    pub(super) monitor_failures: RecentCounter,
    pub(super) neonvm_failures: RecentCounter,
    pub(super) stale_replies: u64,
    pub(super) stale_observations: u64,
    pub(super) trace: VecDeque<Note>,
}

impl State {
    /// Most decisions that are remembered.
    pub const MOST_NOTES: usize = 50;

    /// The initial state of a VM that was just found. The first step requests the VM's current size from the
    /// scheduler.
    #[must_use]
    pub fn new(vm: Vm, settings: Settings, now: Duration) -> Self {
        Self::found(vm, None, settings, now)
    }

    /// The same for a VM whose status is about `status_generation` (`status.observedGeneration`). If that is
    /// older than the object, nothing is requested from the scheduler before an [`Event::VmSeen`] shows
    /// reliably what the VM has.
    #[must_use]
    pub fn found(vm: Vm, status_generation: Option<i64>, settings: Settings, now: Duration) -> Self {
        let shown = vm.info.current_revision.map(|r| r.revision).unwrap_or_default();
        let counter = |rate: FailureRate| RecentCounter::new(rate.interval, rate.threshold);
        let mut state = Self {
            settings,
            config: settings.config_for(&vm),
            machine: Machine::new(vm.info.using(), vm.observed, vm.info.mem.slot_size),
            vm,
            clock: now,
            found_at: now,
            // Replies to a state that was dropped must not look like replies to this one.
            next_id: u64::try_from(now.as_micros()).unwrap_or(u64::MAX >> 1),
            plugin: Plugin::default(),
            monitor: Monitor { since: now, ..Monitor::default() },
            known: Known::default(),
            revisions: RevisionSource::new(shown.value),
            target_revision: Revision::default(),
            last_desired: None,
            announced: None,
            reported: None,
            plugin_failures: counter(settings.plugin_failures),
            monitor_failures: counter(settings.monitor_failures),
            neonvm_failures: counter(settings.neonvm_failures),
            stale_replies: 0,
            stale_observations: 0,
            trace: VecDeque::new(),
        };
        state.machine.revision = shown;
        state.machine.generation = state.vm.generation;
        state.machine.certain = !state.vm.status_is_old(status_generation);
        state.machine.mark(now);
        state
    }

    /// Handles an event and returns actions. A time before the latest one seen counts as the latest.
    #[must_use = "the actions must be done"]
    pub fn step(&mut self, now: Duration, event: Event) -> Outcome {
        let now = self.advance(now);
        let mut outcome = Outcome::default();
        let mut note = Note::at(now);
        self.expire(now, &mut note, &mut outcome);
        self.apply(now, event, &mut note, &mut outcome);
        let mut wait = None;
        // Starting an action can only take others away, so the second round finds nothing; the bound makes that certain.
        for round in 0..4 {
            let set = self.next_actions(now);
            wait = set.wait;
            if round == 0 {
                outcome.warnings.extend(set.warnings.iter().cloned());
            }
            if set.is_idle() {
                break;
            }
            self.start(now, &set, &mut note, &mut outcome);
        }
        self.report_goal(now, &mut outcome);
        outcome.wake_at = self.wake_at(now, wait);
        self.record(note, &mut outcome);
        outcome
    }

    /// Takes in an event without planning what follows: for callers that start the actions of
    /// [`State::next_actions`] themselves. Deadlines are not checked.
    pub fn absorb(&mut self, now: Duration, event: Event) -> Outcome {
        let now = self.advance(now);
        let mut outcome = Outcome::default();
        let mut note = Note::at(now);
        self.apply(now, event, &mut note, &mut outcome);
        self.record(note, &mut outcome);
        outcome
    }

    /// The clock never goes back.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Keeps a note unless it is empty. One equal to a recent note is counted there and not emitted again.
    pub(super) fn record(&mut self, mut note: Note, outcome: &mut Outcome) {
        if note.causes.is_empty() && note.decisions.is_empty() {
            return;
        }
        let recent = self.trace.len().saturating_sub(LOOK_BACK);
        let like = self.trace.iter().skip(recent).position(|old| old.is_same(&note));
        if let Some(old) = like.and_then(|index| self.trace.remove(recent.saturating_add(index))) {
            outcome.repeated.push(note.clone());
            note.repeats = old.repeats.saturating_add(1);
        } else {
            outcome.notes.push(note.clone());
        }
        if self.trace.len() >= Self::MOST_NOTES {
            self.trace.pop_front();
        }
        self.trace.push_back(note);
    }

    pub(super) fn size(&self, amount: Resources) -> Size {
        Size::from_amount(amount, self.settings.compute_unit)
    }

    fn id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    /// Starts every action of `set`.
    fn start(&mut self, now: Duration, set: &ActionSet, note: &mut Note, outcome: &mut Outcome) {
        if !set.is_idle() && note.goal.is_none() && note.causes.is_empty() {
            note.goal = Some(self.goal_note(now));
        }
        note.why = self.desired(now).why;
        if let Some(request) = &set.plugin {
            self.note_plugin(request.target, note);
            let request_out = SchedulerRequest {
                last_permit: request.last_permit,
                target: request.target,
                metrics: request.metrics,
            };
            let id = self.start_plugin(now, request);
            outcome.actions.push(Action::AskScheduler { id, request: request_out });
        }
        if let Some(change) = set.neonvm {
            let (from, to, revision) = (change.current, change.target, change.revision);
            if from == to {
                note.decisions.push(Decision::ConfirmVm(self.size(to)));
            } else {
                note.decisions.push(Decision::SetVm { from: self.size(from), to: self.size(to) });
                outcome.scaling.extend(self.actual(&change));
            }
            let id = self.start_neonvm(now, &change);
            outcome.actions.push(Action::PatchVm { id, from, to, revision });
        }
        if let Some(change) = set.monitor_downscale {
            let (from, to) = (change.current, change.target);
            note.decisions.push(Decision::AskMonitor { from: self.size(from), to: self.size(to) });
            let id = self.start_monitor(now, Kind::Downscale, &change);
            outcome.actions.push(Action::AskMonitorDownscale { id, from, to });
        }
        if let Some(change) = set.monitor_upscale {
            let (from, to) = (change.current, change.target);
            note.decisions.push(Decision::NotifyMonitor { to: self.size(to) });
            let id = self.start_monitor(now, Kind::Upscale, &change);
            outcome.actions.push(Action::NotifyUpscale { id, from, to });
        }
    }

    /// A request that repeats what the scheduler already has is not a decision.
    fn note_plugin(&self, target: Resources, note: &mut Note) {
        let known = self.plugin.permit;
        if known == Some(target) {
            return;
        }
        let to = self.size(target);
        let decision = match known {
            None => Decision::Report(to),
            Some(permit) if target.any_greater(permit) => {
                Decision::AskScheduler { from: self.size(permit), to }
            }
            Some(permit) => Decision::NotifyScheduler { from: self.size(permit), to },
        };
        note.decisions.push(decision);
    }

    /// Marks a request to the scheduler as sent and numbers it.
    #[must_use = "the reply needs the number"]
    pub fn start_plugin(&mut self, now: Duration, request: &PluginRequest) -> u64 {
        let (id, current) = (self.id(), self.held());
        self.plugin.started(now, id, request, current);
        id
    }

    /// Marks a patch as sent and numbers it.
    #[must_use = "the reply needs the number"]
    pub fn start_neonvm(&mut self, now: Duration, change: &Change) -> u64 {
        let id = self.id();
        self.machine.started(now, id, change);
        self.monitor.given(change.target);
        // CPU that is not used is seen from the next scrapes; nothing else shows that memory was needed for a moment only.
        let is_seen = self.monitor.wants_mem.is_none() && self.usage(now) != CpuNeed::Unknown;
        if change.target.any_greater(change.current) && self.monitor.wanted(now).is_some() && !is_seen {
            self.monitor.settle(now, self.settings.monitor_requested_upscale_valid_period);
        }
        id
    }

    /// Marks a request to the monitor as sent and numbers it.
    #[must_use = "the reply needs the number"]
    pub fn start_monitor(&mut self, now: Duration, kind: Kind, change: &Change) -> u64 {
        let id = self.id();
        // What a patch adds that is under way, or in doubt, counts as given meanwhile.
        self.monitor.started(now, id, kind, change, self.machine.growing());
        id
    }
}
