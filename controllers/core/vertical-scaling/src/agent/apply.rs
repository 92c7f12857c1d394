//! How each event changes the state.

use std::time::Duration;

use neonvm_types::{MoreResources, Resources, monitor_protocol::Wants};

use crate::agent::{
    action::{Action, Latency, LatencyOf, Outcome, Warning},
    desired::{MEMORY_PRESSURE_GROW, Requested, RequestedAmount},
    event::{Event, PatchError, PluginAnswer, Verdict},
    evidence,
    machine::{Patching, grown},
    metrics::{LfcMetrics, SystemMetrics},
    monitor_peer::Kind,
    note::{Cause, Note, shorten},
    revision::propagate,
    state::State,
    units,
    vm::Vm,
};

impl State {
    pub(super) fn apply(&mut self, now: Duration, event: Event, note: &mut Note, outcome: &mut Outcome) {
        match event {
            Event::Vm(vm) => self.vm_seen(now, vm, None, note, outcome),
            Event::VmSeen { vm, status_generation } => {
                self.vm_seen(now, vm, status_generation, note, outcome);
            }
            Event::SystemMetrics(metrics) => self.system_metrics(now, metrics, note),
            Event::LfcMetrics(metrics) => self.lfc_metrics(now, metrics, note),
            // What was under way when the guest was paused.
            Event::MetricsFailed { .. } | Event::MonitorConnected { .. } | Event::MonitorSuspended
                if self.vm.paused => {}
            Event::MetricsFailed { reason, .. } => self.metrics_failed(&reason, note),
            Event::MonitorConnected { version } => {
                note.causes.push(Cause::Connected(version.to_string()));
                self.monitor.connected(now, version, self.machine.low, self.machine.most());
            }
            Event::MonitorLost { reason } => {
                let reason = shorten(&reason);
                if self.monitor.connection.is_some() {
                    note.causes.push(Cause::Lost(reason.clone()));
                    self.monitor.reset(now);
                }
                self.monitor.suspended = false;
                self.monitor.reason = reason;
            }
            Event::MonitorSuspended => {
                if !self.monitor.suspended {
                    note.causes.push(Cause::Suspended);
                }
                self.monitor.reset(now);
                self.monitor.suspended = true;
            }
            Event::MonitorAlive => self.monitor.contact(now),
            Event::UpscaleRequested { wants } => self.upscale_requested(now, wants, note),
            Event::PluginReply { id, result } => self.plugin_reply(now, id, result, note, outcome),
            Event::PatchReply { id, result } => self.patch_reply(now, id, result, note),
            Event::MonitorReply { id, result } => self.monitor_reply(now, id, result, note, outcome),
            Event::Timer => {}
        }
    }

    fn system_metrics(&mut self, now: Duration, metrics: SystemMetrics, note: &mut Note) {
        let Some(metrics) = metrics.sane() else {
            return self.metrics_failed("a value is negative or not a number", note);
        };
        let before = self.known.system.as_ref().and_then(|(at, old)| Some((*at, old.steal_seconds?)));
        self.known.steal = before.zip(metrics.steal_seconds).and_then(|((at, old), new)| {
            let elapsed = now.saturating_sub(at).as_secs_f64();
            (elapsed > 0.0 && new >= old).then(|| (new - old) / elapsed)
        });
        let has = self.machine.now;
        self.known.memory_caution.pass(now);
        self.known.usage.observe(now, metrics.busy_seconds, has.vcpus);
        // Counted from the observed size of the VM: otherwise the same measurement would cause another
        // request after each growth.
        let unit = self.settings.compute_unit;
        let (_, has) = units::floor_each(has.min(self.machine.asked), unit);
        let pressed = metrics.memory_pressure.is_some_and(|pressure| pressure > MEMORY_PRESSURE_GROW);
        self.known.pressed = pressed.then(|| units::times(unit, has.saturating_add(1)).mem);
        self.known.system = Some((now, metrics));
        self.known.error.clear();
    }

    fn lfc_metrics(&mut self, now: Duration, metrics: LfcMetrics, note: &mut Note) {
        match metrics.sane() {
            None => self.metrics_failed("a window of the file cache is negative or not a number", note),
            // A scrape that was under way when the file cache was switched off.
            Some(_) if !self.config.lfc => {}
            Some(metrics) => self.known.lfc = Some((now, metrics)),
        }
    }

    fn metrics_failed(&mut self, reason: &str, note: &mut Note) {
        if self.known.error.is_empty() {
            note.causes.push(Cause::MetricsFailed(shorten(reason)));
        }
        self.known.error = shorten(reason);
        if self.known.error.is_empty() {
            "no reason given".clone_into(&mut self.known.error);
        }
    }

    fn vm_seen(
        &mut self,
        now: Duration,
        vm: Vm,
        status_generation: Option<i64>,
        note: &mut Note,
        outcome: &mut Outcome,
    ) {
        let asked = vm.info.using();
        if self.machine.is_stale(now, asked, vm.generation, &self.settings) {
            self.stale_observations = self.stale_observations.saturating_add(1);
            return;
        }
        let before = (self.machine.asked, self.machine.now, self.vm.info.min(), self.vm.info.max());
        let hold_before = self.hold(now).map(|(size, _)| size);
        let paused_before = self.vm.paused;
        // With a new generation, a patch of ours may have been made and undone again by another client.
        let newer = vm.generation.zip(self.machine.generation).is_some_and(|(seen, known)| seen > known);
        let least = if newer { self.machine.least() } else { before.0 };
        let certain = self.machine.certain;
        let outside = self.machine.observed(now, asked, &vm, status_generation);
        self.vm = vm;
        self.vm.hold = self.hold(now);
        self.config = self.settings.config_for(&self.vm);
        if !self.config.lfc {
            self.known.lfc = None;
        }
        self.pause_seen(now, paused_before, note);
        if outside {
            note.causes.push(Cause::Outside { from: self.size(before.0), to: self.size(asked) });
            self.monitor.given(asked);
            self.last_desired = None;
        }
        // Also a patch of our own may have been made after the guest agreed to less.
        self.monitor.given(grown(least, asked));
        if !certain && self.machine.certain {
            self.monitor.given(self.machine.high);
        }
        if self.forced_cpu(now).is_some() {
            self.monitor.forced(self.machine.most().vcpus);
        }
        if self.machine.now != before.1 {
            note.causes.push(Cause::Reports(self.size(self.machine.now)));
        }
        let (min, max) = (self.vm.info.min(), self.vm.info.max());
        if (min, max) != (before.2, before.3) {
            note.causes.push(Cause::Bounds { min: self.size(min), max: self.size(max) });
        }
        let hold = self.hold(now).map(|(size, _)| size);
        if hold != hold_before {
            note.causes.push(Cause::Hold(hold.map(|size| self.size(size))));
        }
        let denied = self.vm.denied.clone().filter(|_| !self.vm.status_is_old(status_generation));
        if self.machine.node_answers(now, denied.is_some()) {
            let reason = shorten(&denied.unwrap_or_default());
            note.causes.push(Cause::NodeDenies { size: self.size(asked), reason });
        }
        self.migration_seen(note);
        self.revision_seen(now, outcome);
    }

    fn revision_seen(&mut self, now: Duration, outcome: &mut Outcome) {
        let shown = self.vm.info.current_revision.map(|r| r.revision).unwrap_or_default();
        if shown.value == 0 || shown.value == self.machine.revision.value {
            return;
        }
        self.last_desired = None;
        match self.revisions.observe(now, shown.value) {
            Ok(None) => {}
            Ok(Some((took, flags))) => {
                outcome.latencies.push(Latency { of: LatencyOf::Scaling, flags, took });
            }
            Err(unknown) => {
                outcome.warnings.push(Warning::UnknownRevision(unknown.0));
                self.revisions.skip_to(shown.value);
            }
        }
        let target = self.machine.target_revision;
        if shown.value >= target.revision.value {
            let mut slot = self.machine.revision;
            if let Some((took, flags)) = propagate(now, target, &mut slot) {
                outcome.latencies.push(Latency { of: LatencyOf::NeonVm, flags, took });
            }
        }
        self.machine.revision = shown;
    }

    fn upscale_requested(&mut self, now: Duration, wants: Option<Wants>, note: &mut Note) {
        self.monitor.contact(now);
        let until = now.saturating_add(self.settings.monitor_requested_upscale_valid_period);
        let Some(Wants { cpu, mem, reason }) = wants else {
            // Before the handshake is through nothing is approved; then the monitor can only mean what the VM has.
            let base = self.monitor.approved().unwrap_or_else(|| self.machine.now.min(self.machine.asked));
            let more = MoreResources { cpu: false, memory: true };
            let renewed = self.monitor.requested.is_some_and(|r| now < r.until && r.base == base);
            self.monitor.requested = Some(Requested { until, base, more });
            if !renewed {
                note.causes.push(Cause::MoreMemory);
            }
            return;
        };
        let (range, asked) = (self.range(), self.machine.asked);
        let before = self.monitor.wanted(now).map(|wanted| wanted.size);
        if let Some(cpu) = cpu {
            let vcpus = evidence::requested_cpu(cpu, asked, &range).min(range.max.vcpus);
            let new = RequestedAmount { size: Resources { vcpus, ..Resources::default() }, until };
            self.monitor.wants_cpu = Some(RequestedAmount::renewed(self.monitor.wants_cpu, new, now));
        }
        if let Some(mem) = mem {
            let mem = evidence::requested_mem(mem, asked, &range).min(range.max.mem);
            let new = RequestedAmount { size: Resources { mem, ..Resources::default() }, until };
            self.monitor.wants_mem = Some(RequestedAmount::renewed(self.monitor.wants_mem, new, now));
        }
        if self.monitor.wanted(now).map(|wanted| wanted.size) != before {
            note.causes.push(Cause::Wants { cpu, mem, reason: shorten(&reason) });
        }
    }

    fn plugin_reply(
        &mut self,
        now: Duration,
        id: u64,
        result: Result<PluginAnswer, String>,
        note: &mut Note,
        outcome: &mut Outcome,
    ) {
        let Some(asking) = self.plugin.asking.filter(|asking| asking.id == id) else {
            self.stale_replies = self.stale_replies.saturating_add(1);
            return;
        };
        let before = asking.held;
        let permitted = result.and_then(|answer| {
            let permitted = self.plugin.permitted(answer.permit, self.machine.least());
            permitted.map_err(|bad| format!("{bad}: {}", self.size(answer.permit)))?;
            Ok(answer)
        });
        let PluginAnswer { permit, migrate } = match permitted {
            Ok(answer) => answer,
            Err(error) => return self.plugin_failed(now, &error, note),
        };
        self.migration_announced(now, migrate, note);
        let denied = asking.target.any_greater(permit);
        if before != Some(permit) || denied {
            let asked = self.size(asking.target);
            note.causes.push(Cause::Permits { size: self.size(permit), asked });
        }
        let passed = propagate(now, asking.stamped, &mut self.plugin.revision);
        let latency = |(took, flags)| Latency { of: LatencyOf::Plugin, flags, took };
        outcome.latencies.extend(passed.map(latency));
    }

    fn plugin_failed(&mut self, now: Duration, error: &str, note: &mut Note) {
        self.plugin.failed(now, shorten(error));
        self.plugin_failures.increment(now);
        note.causes.push(Cause::SchedulerFailed(shorten(error)));
    }

    fn patch_reply(
        &mut self,
        now: Duration,
        id: u64,
        result: Result<Option<i64>, PatchError>,
        note: &mut Note,
    ) {
        if self.machine.patching.is_none_or(|patching| patching.id != id) {
            self.stale_replies = self.stale_replies.saturating_add(1);
            return;
        }
        match result {
            Ok(generation) => {
                let made = self.machine.patched(now, generation);
                // What a person fixed shows nothing of the load.
                if let Some(Patching { from, target, .. }) = made.filter(|_| self.hold(now).is_none()) {
                    self.known.usage.resized(now, from.vcpus, target.vcpus);
                    // Memory that grew along with the CPU was not needed for itself.
                    let is_own = target.mem < from.mem || self.needs_memory(now, from.mem);
                    let mem = if is_own { target.mem } else { from.mem };
                    self.known.memory_caution.resized(now, from.mem.get(), mem.get(), false);
                }
            }
            Err(PatchError::Conflict) => {
                self.machine.conflicted(now);
                note.causes.push(Cause::PatchConflict);
            }
            Err(PatchError::Failed(error)) => self.patch_failed(now, &error, note),
        }
    }

    fn patch_failed(&mut self, now: Duration, error: &str, note: &mut Note) {
        self.machine.failed(now, self.settings.neonvm_reply_deadline, shorten(error));
        self.neonvm_failures.increment(now);
        note.causes.push(Cause::PatchFailed(shorten(error)));
    }

    fn monitor_reply(
        &mut self,
        now: Duration,
        id: u64,
        result: Result<Verdict, String>,
        note: &mut Note,
        outcome: &mut Outcome,
    ) {
        let Some(asking) = self.monitor.asking.filter(|asking| asking.id == id) else {
            self.stale_replies = self.stale_replies.saturating_add(1);
            return;
        };
        if result.is_ok() {
            self.monitor.contact(now);
        }
        match (asking.kind, result) {
            (Kind::Upscale, Ok(Verdict::Confirmed)) | (Kind::Downscale, Ok(Verdict::Agreed { .. })) => {
                self.monitor.accepted();
                note.causes.push(Cause::Accepts(self.size(asking.target)));
            }
            (Kind::Downscale, Ok(Verdict::Denied { status })) => {
                self.monitor.denied_now(now, shorten(&status), &self.settings);
                note.causes.push(Cause::Denies { size: self.size(asking.target), status: shorten(&status) });
            }
            (_, Ok(verdict)) => {
                let error = format!("the answer does not fit the request: {verdict:?}");
                return self.monitor_failed(now, &error, note);
            }
            (_, Err(error)) => return self.monitor_failed(now, &error, note),
        }
        let passed = propagate(now, asking.stamped, &mut self.monitor.revision);
        let latency = |(took, flags)| Latency { of: LatencyOf::Monitor, flags, took };
        outcome.latencies.extend(passed.map(latency));
    }

    fn monitor_failed(&mut self, now: Duration, error: &str, note: &mut Note) {
        self.monitor.failed(now, shorten(error));
        self.monitor_failures.increment(now);
        note.causes.push(Cause::MonitorFailed(shorten(error)));
    }

    /// Handles timeouts: of requests without reply, of a silent monitor, and of scaling requests.
    pub(super) fn expire(&mut self, now: Duration, note: &mut Note, outcome: &mut Outcome) {
        let settings = self.settings;
        let late = |since: Duration, deadline: Duration| now >= since.saturating_add(deadline);
        if self.plugin.asking.is_some_and(|a| late(a.since, settings.plugin_reply_deadline)) {
            self.plugin_failed(now, "no reply", note);
        }
        if self.machine.patching.is_some_and(|p| late(p.since, settings.neonvm_reply_deadline)) {
            self.patch_failed(now, "no reply", note);
        }
        if self.monitor.asking.is_some_and(|a| late(a.since, settings.monitor_reply_deadline)) {
            self.monitor_failed(now, "no reply", note);
        }
        if self.monitor.connection.is_some_and(|c| late(c.last_contact, settings.monitor_silence)) {
            let reason = format!("no message for {:?}", settings.monitor_silence);
            note.causes.push(Cause::Silent(settings.monitor_silence));
            self.monitor.reset(now);
            self.monitor.reason.clone_from(&reason);
            outcome.actions.push(Action::ResetMonitor { reason });
        }
        let overdue = self
            .machine
            .differs_since
            .filter(|_| !self.vm.paused)
            .filter(|(since, noted)| !noted && late(*since, settings.resize_deadline));
        if let Some((since, _)) = overdue {
            self.machine.differs_since = Some((since, true));
            let (asked, now) = (self.size(self.machine.asked), self.size(self.machine.now));
            note.causes.push(Cause::Slow { asked, now });
        }
        if self.vm.hold.is_some_and(|(_, until)| until <= now) {
            self.vm.hold = None;
            note.causes.push(Cause::Hold(None));
        }
        let monitor = &mut self.monitor;
        monitor.requested = monitor.requested.filter(|requested| now < requested.until);
        monitor.wants_cpu = monitor.wants_cpu.filter(|wanted| now < wanted.until);
        monitor.wants_mem = monitor.wants_mem.filter(|wanted| now < wanted.until);
        monitor.settled_at = monitor.settled_at.filter(|until| now < *until);
    }
}
