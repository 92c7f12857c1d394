//! What is due now: computed from the state alone, so that computing it again gives the same.

use std::time::Duration;

use neonvm_types::runner_protocol::ASLEEP;
use neonvm_types::{Bytes, MilliCpu, Resources, Revision, RevisionFlags};

use crate::agent::{
    action::{ActionSet, Change, Outcome, PluginRequest, ScalingEvent, Warning},
    desired::{self, CPU_PRESSURE_HOLD, Desired, MEMORY_PRESSURE_HOLD, RequestedAmount},
    evidence::{Coupling, Range},
    goal::{self, Goal},
    machine::Limits,
    metrics::SystemMetrics,
    monitor_peer::{Kind, Sizes},
    note::GoalNote,
    plugin::Need,
    state::{Reported, State},
    units,
    usage::CpuNeed,
};

impl State {
    /// Metrics that are young enough to act on, in any direction.
    fn fresh(&self, now: Duration) -> Option<&SystemMetrics> {
        let (at, metrics) = self.known.system.as_ref()?;
        (now.saturating_sub(*at) <= self.settings.metrics_stale_after).then_some(metrics)
    }

    /// The goal from metrics. Old metrics still show how much is needed, but count as incomplete.
    pub(super) fn goal(&self, now: Duration) -> Goal {
        let inputs = goal::Inputs {
            system: self.known.system.as_ref().map(|(_, metrics)| metrics),
            lfc: self.known.lfc.as_ref().map(|(_, metrics)| metrics),
            user: self.vm.info.config.metric.as_ref(),
            usage: self.usage(now),
            coupling: if self.monitor.requests_cpu() { Coupling::Bounds } else { Coupling::Units },
            asked: self.machine.asked,
            min: self.vm.info.min(),
        };
        let mut goal = goal::goal(inputs, &self.config, self.settings.compute_unit);
        let old = |at: Duration| now.saturating_sub(at) > self.settings.metrics_stale_after;
        let lfc_old = self.known.lfc.as_ref().is_some_and(|(at, _)| old(*at));
        goal.complete &= self.fresh(now).is_some() && !(self.config.lfc && lfc_old);
        if goal.evidence.coupling == Coupling::Bounds && self.known.memory_caution.holds(now) {
            goal.evidence.keep.mem = goal.evidence.keep.mem.max(self.machine.asked.mem);
        }
        goal
    }

    /// The VM's bounds and the compute unit.
    pub(super) fn range(&self) -> Range {
        let info = &self.vm.info;
        Range { unit: self.settings.compute_unit, min: info.min(), max: info.max() }
    }

    /// What the use of the CPU calls for. A monitor that does not request CPU by itself leaves growth to the load average. While
    /// requested CPU has not arrived, what is needed is not known, unless it does not arrive at all.
    pub(super) fn usage(&self, now: Duration) -> CpuNeed {
        if !self.monitor.requests_cpu() || self.fresh(now).is_none() {
            return CpuNeed::Unknown;
        }
        let (asked, has) = (self.machine.asked.vcpus, self.machine.now.vcpus);
        let arrives = asked != has && self.machine.differs_since.is_some_and(|(_, is_late)| !is_late);
        match self.known.usage.need(has) {
            CpuNeed::Unknown => CpuNeed::Unknown,
            _ if arrives => CpuNeed::Pending,
            need => need,
        }
    }

    /// Whether the guest is under pressure, or grew by its own request a moment ago.
    fn settling(&self, now: Duration) -> bool {
        let above = |value: Option<f64>, limit: f64| value.is_some_and(|value| value > limit);
        let pressed = self.fresh(now).is_some_and(|metrics| {
            above(metrics.cpu_pressure, CPU_PRESSURE_HOLD)
                || above(metrics.memory_pressure, MEMORY_PRESSURE_HOLD)
        });
        pressed || self.monitor.settled_at.is_some_and(|until| now < until)
    }

    /// The monitor's request that is in force: until it expires, or until the use of the CPU after it is known.
    fn wanted(&self, now: Duration) -> Option<RequestedAmount> {
        let period = self.settings.monitor_requested_upscale_valid_period;
        let is_known = self.usage(now) != CpuNeed::Unknown;
        let is_over = |wanted: &RequestedAmount| {
            is_known && self.known.usage.is_after(wanted.until.saturating_sub(period))
        };
        let cpu = self.monitor.wants_cpu.filter(|wanted| !is_over(wanted));
        RequestedAmount::in_force([cpu, self.monitor.wants_mem], now)
    }

    /// The size to aim at.
    pub(super) fn desired(&self, now: Duration) -> Desired {
        let goal = self.goal(now);
        self.desired_for(now, &goal)
    }

    fn desired_for(&self, now: Duration, goal: &Goal) -> Desired {
        desired::desired(&self.inputs(now, goal))
    }

    /// Whether the guest's memory calls for more than `mem` by itself, and not because its CPU grows.
    pub(super) fn needs_memory(&self, now: Duration, mem: Bytes) -> bool {
        desired::evidence(&self.inputs(now, &self.goal(now))).grow.mem > mem
    }

    fn inputs(&self, now: Duration, goal: &Goal) -> desired::Inputs {
        let info = &self.vm.info;
        desired::Inputs {
            unit: self.settings.compute_unit,
            slot: info.mem.slot_size,
            min: info.min(),
            max: info.max(),
            asked: self.machine.asked,
            now: self.machine.now,
            goal: goal.evidence,
            complete: goal.complete,
            settling: self.settling(now),
            turned: self.known.usage.holds(now) || self.known.memory_caution.holds(now),
            pressed: self.known.pressed.filter(|_| self.fresh(now).is_some()),
            room: self.machine.room(now),
            hold: self.hold(now).map(|(size, _)| size),
            forced: self.vm.forced,
            requested: self.monitor.requested.filter(|requested| now < requested.until),
            wanted: self.wanted(now),
            denied: self.monitor.denied(now),
        }
    }

    /// The size that a person fixed, while it is in force, and its end.
    pub(super) fn hold(&self, now: Duration) -> Option<(Resources, Duration)> {
        self.vm.hold.filter(|(_, until)| now < *until)
    }

    /// The CPU that applies without the guest's consent, because a person forced it.
    pub(super) fn forced_cpu(&self, now: Duration) -> Option<MilliCpu> {
        let (size, _) = self.hold(now).filter(|_| self.vm.forced)?;
        let (min, max) = (self.vm.info.min(), self.vm.info.max());
        Some(size.vcpus.min(max.vcpus).max(min.vcpus))
    }

    /// All that is due. Gives a new revision where the aim changed, otherwise changes nothing.
    #[must_use]
    pub fn next_actions(&mut self, now: Duration) -> ActionSet {
        let now = self.advance(now);
        let goal = self.goal(now);
        let desired = self.desired_for(now, &goal);
        self.revise(now, desired.size);
        self.plan(now, &goal, &desired)
    }

    /// Numbers a new aim.
    fn revise(&mut self, now: Duration, size: Resources) {
        let before = self.last_desired.unwrap_or(self.machine.asked);
        if size != before {
            let up = if size.any_greater(before) { RevisionFlags::UPSCALE } else { RevisionFlags::NONE };
            let down = if size.any_less(before) { RevisionFlags::DOWNSCALE } else { RevisionFlags::NONE };
            self.target_revision = self.revisions.advance(now, up.union(down));
        }
        self.last_desired = Some(size);
    }

    /// All that is due for an aim.
    pub(super) fn plan(&self, now: Duration, goal: &Goal, desired: &Desired) -> ActionSet {
        let mut set = ActionSet::default();
        if self.monitor.suspended {
            set.warnings.push(Warning::Suspended);
            return set;
        }
        for (wrong, warning) in [
            (!goal.complete, Warning::IncompleteMetrics),
            (goal.short_series, Warning::ShortLfcSeries),
            (desired.above_max, Warning::AboveMaximumByDenial),
        ] {
            if wrong {
                set.warnings.push(warning);
            }
        }
        let revision = self.target_revision;
        let size = desired.size;
        let current = self.held();
        let stays = self.announced.is_some() || self.vm.paused;
        let need = Need { current, desired: if stays { current } else { size } };
        let target = if self.machine.certain {
            self.plugin.plan(now, need, &self.settings, &mut set)
        } else {
            // An agent that starts in the middle of a change must not release the rest to another VM. Meanwhile the scheduler
            // keeps the permit.
            set.warnings.push(Warning::NowUnknown);
            None
        };
        set.plugin = target.map(|target| PluginRequest {
            last_permit: self.plugin.permit,
            target,
            metrics: self.known.system.as_ref().map(|(_, metrics)| metrics.for_scheduler()),
            revision,
        });
        if stays {
            let why = if self.vm.paused { Warning::Paused } else { Warning::MigrationAnnounced };
            set.warnings.push(why);
            self.plan_upscale(now, self.machine.asked, &mut set);
            return set;
        }
        self.plan_neonvm(now, desired, &mut set);
        self.plan_upscale(now, size, &mut set);
        self.plan_downscale(now, size, &mut set);
        if set.is_idle()
            && let Some(size) = self.monitor.plan_introduction(now, &self.sizes(size))
        {
            let revision = self.target_revision;
            set.monitor_upscale = Some(Change { current: size, target: size, revision });
        }
        let asking_down = self.monitor.asking.is_some_and(|asking| asking.kind == Kind::Downscale);
        let denied_until = desired.denied_until.filter(|_| !asking_down && set.monitor_downscale.is_none());
        if let Some(until) = denied_until {
            set.wait_for(until.saturating_sub(now));
        }
        if let Some(until) = desired.request_until {
            set.wait_for(until.saturating_sub(now));
        }
        set
    }

    /// What the VM needs a permit for in any case: what it has, or next to nothing while its memory is in a file.
    pub(super) fn held(&self) -> Resources {
        match self.vm.suspended {
            Some(_) => Resources::new(ASLEEP.cpu, ASLEEP.memory),
            None => self.machine.most(),
        }
    }

    /// What the permit allows of the size to aim at.
    fn permitted(&self, desired: &Desired) -> Option<Resources> {
        let (range, slot) = (self.range(), self.vm.info.mem.slot_size);
        let usable = self.plugin.usable(desired.size, range.unit)?;
        let Some(evidence) = desired.evidence.filter(|e| e.coupling == Coupling::Bounds) else {
            return Some(usable);
        };
        let mut size = evidence.within(usable).size(self.machine.asked, &range).max(range.min);
        size.mem = units::round_up_to_slot(size.mem, slot);
        Some(usable.min(size))
    }

    fn plan_neonvm(&self, now: Duration, desired: &Desired, set: &mut ActionSet) {
        let size = desired.size;
        let planned = set.plugin.map(|request| request.target);
        let forced = self.forced_cpu(now);
        let agreed = self.monitor.connection.map(|connection| connection.exposed);
        let agreed = agreed.or(forced.map(|_| self.machine.asked));
        // A consent may be for bounds that no longer hold; of such a size the whole units remain. Upstream takes it as it is.
        let unit = self.settings.compute_unit;
        let whole = |consent| units::fit(consent, unit, size).max(consent);
        let agreed = if self.monitor.requests_cpu() { agreed.map(whole) } else { agreed };
        let limits = Limits {
            desired: size,
            agreed: agreed.map(|size| without(size, forced)),
            permitted: self.permitted(desired),
            scheduler_target: self.plugin.asking.map(|asking| asking.target).or(planned),
        };
        let slot = self.vm.info.mem.slot_size;
        let Some(mut target) = self.machine.plan(now, &limits, &self.settings, set) else { return };
        // What was permitted or agreed in part may end within a slot.
        let asked = self.machine.asked;
        target.mem = if target.mem > asked.mem {
            units::round_down_to_slot(target.mem, slot).max(asked.mem)
        } else {
            units::round_up_to_slot(target.mem, slot).min(asked.mem)
        };
        let slots = target.mem.slots(slot).and_then(|slots| u16::try_from(slots).ok());
        let confirms = target == asked;
        if (confirms && !self.machine.doubtful(now)) || slots.is_none() {
            return;
        }
        let revision = if confirms { self.machine.revision } else { self.patch_revision(size) };
        set.neonvm = Some(Change { current: asked, target, revision });
    }

    /// The target revision, but no newer than the one that all peers whose consent was needed have received.
    fn patch_revision(&self, size: Resources) -> Revision {
        let older = |a: Revision, b: Revision| if b.value > 0 && b.value < a.value { b } else { a };
        let mut revision = self.target_revision;
        if size.any_less(self.machine.asked) {
            revision = older(revision, self.monitor.revision);
        }
        if size.any_greater(self.machine.asked) {
            revision = older(revision, self.plugin.revision);
        }
        revision
    }

    fn sizes(&self, desired: Resources) -> Sizes {
        let slot = self.vm.info.mem.slot_size;
        let is_late = self.machine.differs_since.is_some_and(|(_, is_late)| is_late);
        let step = if is_late { Resources::new(MilliCpu::new(1), slot) } else { self.settings.compute_unit };
        Sizes {
            now: self.machine.low,
            asked: self.machine.asked,
            least: self.machine.least(),
            desired,
            forced: self.forced_cpu(self.clock),
            slot,
            step,
        }
    }

    fn plan_upscale(&self, now: Duration, size: Resources, set: &mut ActionSet) {
        if self.machine.conflict {
            return;
        }
        let up = self.monitor.plan_upscale(now, &self.sizes(size), &self.settings, set);
        set.monitor_upscale =
            up.map(|(current, target)| Change { current, target, revision: self.target_revision });
    }

    fn plan_downscale(&self, now: Duration, size: Resources, set: &mut ActionSet) {
        let down = self.monitor.plan_downscale(now, &self.sizes(size), &self.settings, set);
        set.monitor_downscale =
            down.map(|(current, target)| Change { current, target, revision: self.target_revision });
    }

    /// When to step again at the latest: what the plan waits for, and every deadline.
    pub(super) fn wake_at(&self, now: Duration, wait: Option<Duration>) -> Option<Duration> {
        let settings = &self.settings;
        let planned = wait.map(|wait| now.saturating_add(wait));
        let plugin = self.plugin.asking.map(|a| a.since.saturating_add(settings.plugin_reply_deadline));
        let patch = self.machine.patching.map(|p| p.since.saturating_add(settings.neonvm_reply_deadline));
        let monitor = self.monitor.asking.map(|a| a.since.saturating_add(settings.monitor_reply_deadline));
        let silence =
            self.monitor.connection.map(|c| c.last_contact.saturating_add(settings.monitor_silence));
        let resize = self
            .machine
            .differs_since
            .filter(|(_, noted)| !noted && !self.vm.paused)
            .map(|(since, _)| since.saturating_add(settings.resize_deadline));
        let hold = self.hold(now).map(|(_, until)| until);
        let settled = self.monitor.settled_at.filter(|until| now < *until);
        let doubt = self.machine.doubt.map(|doubt| doubt.until).filter(|until| now < *until);
        let node = self.machine.node_denial.map(|denial| denial.until).filter(|until| now < *until);
        let all = [doubt, planned, plugin, patch, monitor, silence, resize, hold, settled, node];
        // Never at once: a deadline that has come was dealt with in this step.
        all.into_iter().flatten().min().map(|at| at.max(now.saturating_add(Duration::from_millis(1))))
    }

    /// The goal in words, with what it was made from.
    pub(super) fn goal_note(&self, now: Duration) -> GoalNote {
        let goal = self.goal(now);
        let units = |part: Option<f64>| part.map(units::ceil_units);
        let system = self.known.system.as_ref().map(|(_, metrics)| metrics);
        GoalNote {
            load1: system.map(|metrics| metrics.load1),
            units: goal.units,
            cpu: goal.parts.cpu.map(|cpu| units::ceil_units(cpu.round())),
            mem: units(goal.parts.mem),
            cache: units(goal.parts.lfc),
            user: units(goal.parts.user),
            cpu_pressure: system.and_then(|metrics| metrics.cpu_pressure),
            memory_pressure: system.and_then(|metrics| metrics.memory_pressure),
            used: self.known.usage.most(),
            steal: self.known.steal,
        }
    }

    /// The patch as a scaling event, if both sizes are whole compute units.
    pub(super) fn actual(&self, change: &Change) -> Option<ScalingEvent> {
        let unit = self.settings.compute_unit;
        let current = units::exact(change.current, unit)?;
        Some(ScalingEvent::Actual { current, target: units::exact(change.target, unit)? })
    }

    /// Reports what the metrics alone would have the VM be, if that changed.
    pub(super) fn report_goal(&mut self, now: Duration, outcome: &mut Outcome) {
        let goal = self.goal(now);
        let Some(current) = units::exact(self.machine.asked, self.settings.compute_unit) else { return };
        if !goal.complete {
            return;
        }
        let parts = goal.parts;
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => (a - b).abs() < self.settings.rereport_threshold,
            _ => false,
        };
        let same = self.reported.is_some_and(|last| {
            last.target == goal.units
                && near(last.parts.cpu, parts.cpu)
                && near(last.parts.mem, parts.mem)
                && near(last.parts.lfc, parts.lfc)
        });
        if same {
            return;
        }
        self.reported = Some(Reported { target: goal.units, parts });
        outcome.scaling.push(ScalingEvent::Hypothetical {
            current,
            target: goal.units,
            cpu: parts.cpu,
            mem: parts.mem,
            lfc: parts.lfc,
        });
    }
}

/// A size with no more CPU than `forced`.
fn without(size: Resources, forced: Option<MilliCpu>) -> Resources {
    Resources { vcpus: forced.map_or(size.vcpus, |cpu| size.vcpus.min(cpu)), ..size }
}
