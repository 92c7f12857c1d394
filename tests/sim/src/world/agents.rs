//! Agents: one state of the real core for each VM; what it wants is sent, what comes is given to it.

use neonvm_core_vertical_scaling::agent::{
    Action, Event as Input, MetricsSource, Outcome, PatchError, PluginAnswer, State, SystemMetrics, Verdict,
    Vm as Observation, units,
};
use neonvm_types::monitor_protocol::Wants;
use neonvm_types::{Resources, Revision, RevisionWithTime, version::MonitorProtoVersion};

use super::event::Event;
use super::model::{Account, Agent, Id, Phase, Snapshot};
use super::notes::Line;
use super::{World, duration};
use crate::queue::{MILLI, SECOND, Time};
use crate::{Bug, Fault, Invariant};

impl World {
    /// An agent finds a VM on its node.
    pub(super) fn attach(&mut self, id: Id) {
        let Some(seen) = self.snapshot(id) else { return };
        let Some(vm) = self.vms.get(id) else { return };
        let node = vm.pod.and_then(|pod| self.pods.get(pod)?.node).and_then(|node| self.nodes.get(node));
        let up = node.is_some_and(|node| node.agent_up && !node.lost);
        if !up || vm.phase != Phase::Running || vm.agent.is_some() || vm.observed.is_none() {
            return;
        }
        self.incs += 1;
        let inc = self.incs;
        let observation = self.observation(id, &seen);
        let Some(observation) = observation else { return };
        let state =
            State::found(observation, Some(seen.status_generation), self.agent_settings, duration(self.now));
        let agent = Agent {
            state,
            inc,
            wake: None,
            connection: 0,
            seen,
            steps: 0,
            last_scrape: (-1.0, -1.0),
            account: Account::default(),
        };
        if let Some(vm) = self.vms.get_mut(id) {
            vm.agent = Some(Box::new(agent));
            vm.watched = vm.watched.max(self.now);
        }
        self.note(Line::Vm(id, "an agent takes care of it"));
        let first = self.latency(100, 500);
        self.after(first, Event::Connect { vm: id, inc });
        let first = self.latency(50, 1000);
        self.after(first, Event::Scrape { vm: id, inc });
        self.agent_step(id, Input::Timer);
    }

    /// The agent of a VM ends, or has no business with it any more.
    pub(super) fn detach(&mut self, id: Id) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.agent.take().is_none() {
            return;
        }
        vm.guest.connection = None;
        let wait = neonvm_core_vertical_scaling::monitor::Event::Disconnected;
        let _ = vm.guest.policy.step(duration(self.now), wait);
        if let Some(pod) = vm.pod {
            self.recount(pod);
        }
    }

    fn observation(&self, id: Id, seen: &Snapshot) -> Option<Observation> {
        let vm = self.vms.get(id)?;
        let mut info = vm.info.clone();
        info.set_using(seen.asked)?;
        let (min, max) = if self.bug(Bug::BoundsIgnored) { vm.first_bounds } else { (seen.min, seen.max) };
        (info.cpu.min, info.cpu.max) = (min.vcpus, max.vcpus);
        let slots = |size: Resources| u16::try_from(size.mem.slots(info.mem.slot_size)?).ok();
        (info.mem.min, info.mem.max) = (slots(min)?, slots(max)?);
        let shown = seen.revision != Revision::default();
        info.current_revision =
            shown.then_some(RevisionWithTime { revision: seen.revision, updated_at: None });
        Some(Observation {
            info,
            observed: seen.observed,
            hold: seen.hold.map(|(size, until)| (size, duration(until))),
            forced: false,
            denied: None,
            migrating: seen.moving,
            paused: false,
            suspended: None,
            generation: Some(seen.generation),
        })
    }

    /// The agent's watch shows a VM.
    pub(super) fn watched(&mut self, id: Id, inc: u64, seen: &Snapshot) {
        if self.agent_of(id, inc).is_none() || self.bug(Bug::LostWatch) {
            return;
        }
        if seen.moving {
            self.detach(id);
            // By now it may have ended.
            return self.after(SECOND, Event::Attach(id));
        }
        if let Some(agent) =
            self.agent_of(id, inc).filter(|agent| seen.generation >= agent.account.generation)
        {
            agent.account.generation = seen.generation;
            agent.seen = *seen;
        }
        if let Some(observation) = self.observation(id, seen) {
            let status_generation = Some(seen.status_generation);
            self.agent_step(id, Input::VmSeen { vm: observation, status_generation });
        }
    }

    pub(super) fn agent_of(&mut self, id: Id, inc: u64) -> Option<&mut Agent> {
        self.vms.get_mut(id)?.agent.as_deref_mut().filter(|agent| agent.inc == inc)
    }

    pub(super) fn wake(&mut self, id: Id, inc: u64, at: Time) {
        if self.bug(Bug::UnboundedQueue) {
            for _ in 0..2 {
                self.after(SECOND, Event::Wake { vm: id, inc, at: 0 });
            }
        }
        let Some(agent) = self.agent_of(id, inc).filter(|agent| agent.wake == Some(at)) else { return };
        agent.wake = None;
        if self.bug(Bug::RestlessAgent) {
            self.ask_again(id, inc);
        }
        self.agent_step(id, Input::Timer);
    }

    /// The agent takes something in, and does what it then wants.
    pub(super) fn agent_step(&mut self, id: Id, input: Input) {
        let now = duration(self.now);
        let Some(agent) = self.vms.get_mut(id).and_then(|vm| vm.agent.as_deref_mut()) else { return };
        let outcome = agent.state.step(now, input);
        agent.steps = agent.steps.wrapping_add(1);
        let inc = agent.inc;
        let quiet = agent.steps.is_multiple_of(8).then(|| agent.state.step(now, Input::Timer));
        let Outcome { actions, wake_at, notes, .. } = outcome;
        for note in notes {
            self.note(Line::Agent(id, Box::new(note)));
        }
        for action in actions {
            self.perform(id, inc, &action);
        }
        if let Some(again) = quiet {
            self.check(Invariant::Quiet);
            if let Some(action) = again.actions.first() {
                let name = self.vm_name(id);
                self.fail(Invariant::Quiet, format!("{name}: a second step without news wants {action:?}"));
            }
        }
        let Some(at) = wake_at.map(super::micros).map(|at| at.max(self.now + 1)) else { return };
        if let Some(agent) = self.agent_of(id, inc)
            && agent.wake.is_none_or(|wake| at < wake)
        {
            agent.wake = Some(at);
            let wait = at - self.now;
            self.after(wait, Event::Wake { vm: id, inc, at });
        }
    }

    fn perform(&mut self, id: Id, inc: u64, action: &Action) {
        match *action {
            Action::AskScheduler { id: number, request } => {
                let load = request.metrics.map(|metrics| metrics.load_avg_1m);
                self.send_request(id, inc, number, request.target, request.last_permit, load);
            }
            Action::PatchVm { id: number, from, to, revision } => {
                self.send_patch(id, inc, number, (from, to), revision);
            }
            Action::AskMonitorDownscale { id: number, to, .. } => {
                self.send_question(id, inc, number, to, true);
            }
            Action::NotifyUpscale { id: number, to, .. } => {
                self.send_question(id, inc, number, to, false);
            }
            Action::ResetMonitor { .. } => {
                if let Some(vm) = self.vms.get_mut(id) {
                    vm.guest.connection = None;
                }
                if let Some(agent) = self.agent_of(id, inc) {
                    agent.connection = 0;
                }
                let wait = self.latency(300, 2000);
                self.after(wait, Event::Connect { vm: id, inc });
            }
        }
    }

    fn send_request(
        &mut self,
        id: Id,
        inc: u64,
        number: u64,
        target: Resources,
        last: Option<Resources>,
        load: Option<f32>,
    ) {
        self.stats.requests += 1;
        self.book_request(id, number, target);
        if self.fault(Fault::Loss, 0.05) {
            return self.lose_request(id, inc, number, target);
        }
        let wait = self.latency(1, 5);
        self.after(wait, Event::Ask { vm: id, inc, id: number, to: target, last, load, again: false });
        let again = self.fault(Fault::Duplicate, 0.1);
        if again {
            // Requests of one agent do not overtake each other.
            self.after(wait, Event::Ask { vm: id, inc, id: number, to: target, last, load, again });
        }
    }

    fn lose_request(&mut self, id: Id, inc: u64, number: u64, target: Resources) {
        self.note(Line::Size(id, "a request to the scheduler is lost:", target));
        if self.bug(Bug::TimeoutIsPermit) {
            self.after(4 * SECOND, Event::Permit { vm: id, inc, id: number, result: Ok(target.into()) });
        }
    }

    /// A request that is repeated for no reason: by planted bugs alone.
    pub(super) fn ask_again(&mut self, id: Id, inc: u64) {
        let asking = self.agent_of(id, inc).and_then(|agent| agent.account.asking);
        if let Some((number, target, ..)) = asking {
            self.send_request(id, inc, number, target, None, None);
        }
    }

    /// The scheduler's answer arrives.
    pub(super) fn permitted(
        &mut self,
        id: Id,
        inc: u64,
        number: u64,
        result: Result<PluginAnswer, &'static str>,
    ) {
        let stale = self.bug(Bug::StaleReply);
        let Some(agent) = self.agent_of(id, inc) else { return };
        let number = match agent.account.asking {
            Some((current, ..)) if stale => current,
            _ => number,
        };
        self.book_permit(id, inc, number, result.ok().map(|answer| answer.permit));
        self.agent_step(id, Input::PluginReply { id: number, result: result.map_err(str::to_owned) });
        if result.is_err() && self.bug(Bug::RetryWithoutWait) {
            self.ask_again(id, inc);
        }
    }

    fn send_patch(
        &mut self,
        id: Id,
        inc: u64,
        number: u64,
        sizes: (Resources, Resources),
        revision: Revision,
    ) {
        let (from, mut to) = sizes;
        self.book_patch(id, number, from, to);
        if self.bug(Bug::PatchWithoutPermit)
            && let Some((_, target, ..)) = self.agent_of(id, inc).and_then(|agent| agent.account.asking)
        {
            to = to.max(target);
        }
        let wait = self.latency(2, 20);
        let late = if self.fault(Fault::Delay, 0.03) { self.latency(500, 20_000) } else { 0 };
        self.after(wait + late, Event::Patch { vm: id, inc, id: number, from, to, revision, again: false });
        if self.bug(Bug::NotifiedTooEarly) {
            self.send_question(id, inc, 0, to, false);
        }
    }

    /// The API server's answer arrives. `Err(None)` is a conflict.
    pub(super) fn patched(
        &mut self,
        id: Id,
        inc: u64,
        number: u64,
        result: Result<Option<i64>, Option<&'static str>>,
        to: Resources,
    ) {
        if self.agent_of(id, inc).is_none() {
            return;
        }
        self.book_patched(id, inc, number, to, result);
        let result = result.map_err(|error| match error {
            None => PatchError::Conflict,
            Some(error) => PatchError::Failed(error.to_owned()),
        });
        let ok = result.is_ok();
        self.agent_step(id, Input::PatchReply { id: number, result });
        if ok
            && self.bug(Bug::PatchCountsAsDone)
            && let Some(seen) = self.snapshot(id)
            && let Some(observation) =
                self.observation(id, &Snapshot { observed: Some(to), asked: to, ..seen })
        {
            self.agent_step(id, Input::Vm(observation));
        }
    }

    fn send_question(&mut self, id: Id, inc: u64, number: u64, to: Resources, down: bool) {
        let Some(connection) = self.agent_of(id, inc).map(|agent| agent.connection) else { return };
        if down && self.bug(Bug::NoMonitorNeeded) {
            let result = Ok(Verdict::Agreed { status: String::new() });
            return self.after(MILLI, Event::Verdict { vm: id, inc, connection, id: number, result });
        }
        let wait = self.latency(1, 5);
        let Some(vm) = self.vms.get_mut(id) else { return };
        // One stream: nothing overtakes.
        let at = (self.now + wait).max(vm.guest.inbox);
        vm.guest.inbox = at;
        let wait = at - self.now;
        self.after(wait, Event::Question { vm: id, inc, connection, id: number, to, down });
    }

    /// The monitor's answer arrives.
    pub(super) fn verdict(
        &mut self,
        id: Id,
        (inc, connection): (u64, u64),
        number: u64,
        result: Result<Verdict, String>,
    ) {
        if self.agent_of(id, inc).is_none_or(|agent| agent.connection != connection) {
            return;
        }
        let consent = self.bug(Bug::DenialIsConsent);
        let result = match result {
            Ok(Verdict::Denied { status }) if consent => Ok(Verdict::Agreed { status }),
            result => result,
        };
        self.agent_step(id, Input::MonitorReply { id: number, result });
    }

    /// The handshake with a monitor, if that answers.
    pub(super) fn connect(&mut self, id: Id, inc: u64) {
        let Some(agent) = self.agent_of(id, inc) else { return };
        if agent.connection != 0 {
            return;
        }
        self.incs += 1;
        let (now, connection) = (self.now, self.incs);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if now < vm.guest.silent_until {
            return self.after(SECOND, Event::Connect { vm: id, inc });
        }
        vm.guest.connection = Some((inc, connection));
        if let Some(agent) = vm.agent.as_deref_mut() {
            agent.connection = connection;
        }
        self.guest_connected(id);
        self.agent_step(id, Input::MonitorConnected { version: MonitorProtoVersion::V2_0 });
    }

    /// The connection to a monitor ends, and is made again.
    pub(super) fn disconnect(&mut self, id: Id) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        let Some(agent) = vm.agent.as_deref_mut().filter(|agent| agent.connection != 0) else { return };
        agent.connection = 0;
        vm.guest.connection = None;
        let inc = agent.inc;
        self.agent_step(id, Input::MonitorLost { reason: "connection reset".to_owned() });
        let wait = self.latency(100, 3000);
        self.after(wait, Event::Connect { vm: id, inc });
    }

    /// Metrics are read, and with them it is seen that the monitor is alive.
    pub(super) fn scrape(&mut self, id: Id, inc: u64) {
        let now = self.now;
        let Some(vm) = self.vms.get(id) else { return };
        let (lost, lies) = (now < vm.guest.metrics_lost_until, now < vm.guest.metrics_lie_until);
        let silent = now < vm.guest.silent_until || vm.guest.kind == crate::scenario::Guest::Stalls;
        let Some(agent) = vm.agent.as_deref().filter(|agent| agent.inc == inc) else { return };
        let connected = agent.connection != 0;
        let before = agent.last_scrape;
        if lost {
            let reason = "connection refused".to_owned();
            self.agent_step(id, Input::MetricsFailed { source: MetricsSource::System, reason });
        } else if lies {
            let metrics = self.lie();
            self.agent_step(id, Input::SystemMetrics(metrics));
        } else if let Some(metrics) = self.metrics(id) {
            if let Some(agent) = self.agent_of(id, inc) {
                agent.last_scrape = (metrics.load1, metrics.memory_usage_bytes);
            }
            self.agent_step(id, Input::SystemMetrics(metrics));
            if self.bug(Bug::HasIsNeed) {
                self.has_is_need(id);
            }
        }
        if connected && !silent {
            self.agent_step(id, Input::MonitorAlive);
        } else if silent && connected && self.vms.get(id).is_some_and(|vm| now >= vm.guest.silent_until) {
            // It stalls on a request to shrink, and is alive otherwise.
            self.agent_step(id, Input::MonitorAlive);
        }
        let Some(agent) = self.agent_of(id, inc) else { return };
        let moved =
            (agent.last_scrape.0 - before.0).abs() > 0.01 || (agent.last_scrape.1 - before.1).abs() > 1e6;
        let busy = agent.seen.observed != Some(agent.seen.asked) || moved || lost || lies;
        let pause = if busy { self.settings.scrape } else { self.settings.idle_scrape };
        let pause = super::micros(pause);
        let jitter = self.rngs.latency.below(pause / 20 + 1);
        self.after(pause - jitter, Event::Scrape { vm: id, inc });
    }

    /// The rule of version 0.2.0 for the time after a change.
    fn has_is_need(&mut self, id: Id) {
        let unit = self.unit;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let (has, before) = (vm.has, vm.guest.scraped.replace(vm.has));
        if before.is_none_or(|before| before == has) {
            return;
        }
        let size = units::times(unit, units::ceil(has, unit));
        let wants = Wants { cpu: Some(size.vcpus), mem: Some(size.mem), reason: String::new() };
        self.agent_step(id, Input::UpscaleRequested { wants: Some(wants) });
    }

    fn lie(&mut self) -> SystemMetrics {
        let load = match self.rngs.faults.below(4) {
            0 => f64::NAN,
            1 => -5.0,
            2 => 1e12,
            _ => f64::INFINITY,
        };
        SystemMetrics { load1: load, load5: load, memory_usage_bytes: 1e6, ..SystemMetrics::default() }
    }

    pub(super) fn agent_ends(&mut self, node: Id) {
        let Some(entry) = self.nodes.get_mut(node) else { return };
        if !entry.agent_up || entry.lost {
            return;
        }
        entry.agent_up = false;
        self.stats.agent_crashes += 1;
        self.note(Line::Node(node, "its agent ends"));
        for vm in self.vms_on(node) {
            self.detach(vm);
        }
        let wait = self.latency(500, 20_000);
        self.after(wait, Event::AgentStart { node });
    }

    pub(super) fn agent_starts(&mut self, node: Id) {
        let Some(entry) = self.nodes.get_mut(node) else { return };
        entry.agent_up = true;
        self.note(Line::Node(node, "an agent starts"));
        for vm in self.vms_on(node) {
            let wait = self.latency(10, 200);
            self.after(wait, Event::Attach(vm));
        }
    }

    /// VMs whose pod is on a node.
    pub(super) fn vms_on(&self, node: Id) -> Vec<Id> {
        let Some(entry) = self.nodes.get(node) else { return Vec::new() };
        let pods = entry.pods.iter().filter_map(|pod| Some((*pod, self.pods.get(*pod)?.vm?)));
        pods.filter(|(pod, vm)| self.vms.get(*vm).is_some_and(|vm| vm.pod == Some(*pod)))
            .map(|(_, vm)| vm)
            .collect()
    }

    pub(super) fn vm_name(&self, id: Id) -> String {
        self.vms.get(id).map_or_else(|| "?".to_owned(), |vm| vm.name.clone())
    }
}
