//! One VM with fake object, scheduler and guest, whose replies the test chooses. After each step the invariants of §7.9 are
//! checked against the state of the peers, not against that of the agent.

use std::time::Duration;

use neonvm_core_vertical_scaling::agent::{
    Action, Event, Outcome, PatchError, Settings, State, SystemMetrics, Verdict, Vm,
};
use neonvm_types::{Resources, version::MonitorProtoVersion};

use crate::dsl::{CU, cu, secs, settings, vm};

/// How a peer treats the request it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Treat {
    /// Does what it should.
    Well,
    /// Does it, but the reply is lost.
    Silently,
    /// Fails without doing it.
    Fail,
    /// Denies, or grants less.
    Deny,
}

pub struct World {
    pub state: State,
    pub settings: Settings,
    pub now: Duration,
    /// The object, with the requested size and its generation; `observed` is its status.
    pub vm: Vm,
    /// What the VM has, what the controller brings it to, and the generation its last look was at.
    pub has: Resources,
    commanded: Resources,
    looked_at: Option<i64>,
    /// What the scheduler holds for the VM, and the most it gives.
    pub reserved: Resources,
    pub capacity: Resources,
    /// The guest: connected, its version, what it may have to live with, and what it does not go below.
    pub connected: Option<MonitorProtoVersion>,
    pub knows: Resources,
    pub needs: Resources,
    pub load: f64,
    asks: Option<(u64, Resources, Option<Resources>, Duration)>,
    patch: Option<(u64, Resources, Resources, Duration)>,
    question: Option<(u64, Resources, bool, Duration)>,
    /// The last denial the agent received: until when it is in force, of what; and how many there were in a row.
    denied: Option<(Duration, Resources)>,
    denials: u32,
    metrics_at: Option<Duration>,
    pub hold_until: Duration,
    /// Whether the hold of `hold_until` takes CPU without consent.
    pub forced: bool,
    outside: bool,
    lied: bool,
    wake_at: Option<Duration>,
}

impl World {
    pub fn new(using: u16, capacity: u16) -> Self {
        let mut settings = settings();
        settings.monitor_silence = secs(1e6);
        let mut vm = vm(cu(1), cu(8), cu(using));
        vm.generation = Some(1);
        Self {
            state: State::new(vm.clone(), settings, Duration::ZERO),
            settings,
            now: Duration::ZERO,
            vm,
            has: cu(using),
            commanded: cu(using),
            looked_at: Some(1),
            reserved: cu(using),
            capacity: cu(capacity.max(using)),
            connected: None,
            knows: cu(using),
            needs: cu(0),
            load: 0.0,
            asks: None,
            patch: None,
            question: None,
            denied: None,
            denials: 0,
            metrics_at: None,
            hold_until: Duration::ZERO,
            forced: false,
            outside: false,
            lied: false,
            wake_at: None,
        }
    }

    pub fn asked(&self) -> Resources {
        self.vm.info.using()
    }

    /// A step, twice from the same state, with all checks.
    pub fn step(&mut self, event: Event) {
        let mut twin = self.state.clone();
        let outcome = self.state.step(self.now, event.clone());
        let again = twin.step(self.now, event);
        assert_eq!(outcome, again, "not deterministic");
        assert_eq!(self.state, twin, "not deterministic");
        self.check(&outcome);
        for action in &outcome.actions {
            self.sent(action);
        }
        self.wake_at = outcome.wake_at;
    }

    fn check(&self, outcome: &Outcome) {
        let now = self.now;
        let mut same = self.state.clone();
        assert!(same.next_actions(now).is_idle(), "something is left to do");
        assert_eq!(same.next_actions(now), same.next_actions(now), "invariant 9");
        assert!(outcome.wake_at.is_none_or(|at| at > now), "would spin");
        let view = self.state.view(now);
        assert!(view.decisions.len() <= State::MOST_NOTES);
        if !self.outside {
            let uses = self.asked().max(self.has);
            assert!(!uses.any_greater(self.reserved), "S2: {uses:?} > {:?}", self.reserved);
            if let Some(permit) = view.permit.filter(|_| !self.lied) {
                assert!(!view.asked.any_greater(permit), "invariant 1: {:?} > {permit:?}", view.asked);
            }
        }
        let (min, max) = (self.vm.info.min(), self.vm.info.max());
        assert!(!view.goal.any_less(min), "below the minimum");
        assert!(
            !view.goal.any_greater(max) || self.cooldown().is_some(),
            "above the maximum without a denial"
        );
    }

    fn cooldown(&self) -> Option<Resources> {
        self.denied.filter(|(until, _)| self.now < *until).map(|(_, size)| size)
    }

    /// The agent receives a denial. The same wait twice, then twice as long each time, at most 16 times.
    fn denies(&mut self, asked_at: Duration, size: Resources) {
        if self.denied.is_none_or(|(until, _)| asked_at >= until) {
            self.denials += 1;
        }
        let factor = 2_u32.pow(self.denials.saturating_sub(2).min(4));
        self.denied = Some((self.now + self.settings.monitor_denied_downscale_cooldown * factor, size));
    }

    /// What the guest denied ends with the connection.
    fn forget(&mut self) {
        (self.question, self.denied, self.denials) = (None, None, 0);
    }

    fn sent(&mut self, action: &Action) {
        let reports = matches!(action, Action::AskScheduler { .. });
        assert!(reports || !self.vm.paused, "a guest that stands still: {action:?}");
        let late = |since: Duration, deadline: Duration| self.now >= since + deadline;
        match *action {
            Action::AskScheduler { id, request } => {
                let deadline = self.settings.plugin_reply_deadline;
                assert!(self.asks.is_none_or(|a| late(a.3, deadline)), "invariant 3: scheduler");
                let known = self.state.view(self.now);
                let mut least = known.asked.max(known.now);
                // A patch whose reply is long overdue was not made.
                let patch = self.patch.filter(|p| !late(p.3, self.settings.neonvm_reply_deadline * 2));
                if let Some((_, _, to, _)) = patch {
                    least = least.max(to);
                }
                assert!(!request.target.any_less(least), "invariant 4: {:?} < {least:?}", request.target);
                self.asks = Some((id, request.target, request.last_permit, self.now));
            }
            Action::PatchVm { id, from, to, .. } => {
                let deadline = self.settings.neonvm_reply_deadline;
                assert!(self.patch.is_none_or(|p| late(p.3, deadline)), "invariant 3: patch");
                self.check_patch(from, to);
                self.patch = Some((id, from, to, self.now));
            }
            Action::AskMonitorDownscale { id, to, .. } => {
                self.check_question();
                if let Some(denied) = self.cooldown() {
                    assert!(to.any_greater(denied), "invariant 6: {to:?} after {denied:?}");
                }
                self.question = Some((id, to, true, self.now));
            }
            Action::NotifyUpscale { id, to, .. } => {
                self.check_question();
                assert!(
                    !to.any_greater(self.has),
                    "notified of what is not there: {to:?}, {:?}, {:?}",
                    self.has,
                    self.state.view(self.now)
                );
                self.question = Some((id, to, false, self.now));
            }
            Action::ResetMonitor { .. } => panic!("the monitor was not silent"),
        }
    }

    fn check_question(&self) {
        let deadline = self.settings.monitor_reply_deadline;
        assert!(self.question.is_none_or(|q| self.now >= q.3 + deadline), "invariant 3: monitor");
        assert!(self.connected.is_some(), "asked without a connection");
    }

    fn check_patch(&self, from: Resources, to: Resources) {
        let view = self.state.view(self.now);
        assert!(!to.any_greater(from.max(view.permit.unwrap_or(from))), "invariant 2: above the permit");
        assert!(CU.mem.get() > 0 && to.mem.is_multiple_of(self.vm.info.mem.slot_size));
        if !to.any_less(from) {
            return;
        }
        let held = self.now < self.hold_until;
        let is_forced = held && self.forced;
        let consents = self.connected.is_some() || (is_forced && to.mem >= from.mem);
        assert!(consents, "S6: shrinks without a monitor");
        let mut knows = self.knows;
        if is_forced {
            knows.vcpus = to.vcpus;
        }
        for (was, becomes, agreed) in [
            (from.vcpus.milli().into(), to.vcpus.milli().into(), knows.vcpus.milli().into()),
            (from.mem.get(), to.mem.get(), knows.mem.get()),
        ] as [(u64, u64, u64); 2]
        {
            assert!(becomes >= was || becomes >= agreed, "S6: {to:?} although the guest knows {knows:?}");
        }
        let fresh = self.metrics_at.is_some_and(|at| self.now <= at + self.settings.metrics_stale_after);
        let forced = from.min(self.vm.info.max());
        assert!(fresh || held || !to.any_less(forced), "invariant 5: shrinks blind");
    }

    // What the peers do.

    pub fn scheduler(&mut self, treat: Treat) {
        let Some((id, target, last_permit, _)) = self.asks.take() else { return };
        let held = last_permit.unwrap_or(self.reserved).max(self.reserved);
        let less = if treat == Treat::Deny { Resources::default() } else { self.capacity };
        let permit = target.min(held.max(less));
        let result = match treat {
            Treat::Fail => Err("refused".to_owned()),
            _ => {
                self.reserved = permit;
                Ok(permit.into())
            }
        };
        if treat != Treat::Silently {
            self.step(Event::PluginReply { id, result });
        }
    }

    /// The scheduler replies with any amount. It reserves that for the VM, as far as it was requested, and what the VM has or
    /// is on its way to. A scheduler that reduces a permit must reply in time.
    pub fn scheduler_replies(&mut self, reply: Resources) {
        let Some((id, target, _, since)) = self.asks.take() else { return };
        if self.now >= since + self.settings.plugin_reply_deadline {
            return;
        }
        let coming = self.patch.map_or(self.asked(), |(_, _, to, _)| to);
        self.reserved = reply.min(target).max(self.asked()).max(coming).max(self.has).max(self.commanded);
        self.lied |= reply.any_less(target);
        self.step(Event::PluginReply { id, result: Ok(reply.into()) });
    }

    pub fn api(&mut self, treat: Treat) {
        let Some((id, from, to, since)) = self.patch.take() else { return };
        // One that seemed to have failed may still be made, but not for ever.
        if self.now > since + self.settings.neonvm_reply_deadline * 2 {
            return;
        }
        let made = treat == Treat::Well || treat == Treat::Silently;
        let result = if !made || self.asked() != from {
            if treat == Treat::Fail {
                Err(PatchError::Failed("500".into()))
            } else {
                Err(PatchError::Conflict)
            }
        } else {
            self.writes(to);
            Ok(self.vm.generation)
        };
        if treat != Treat::Silently {
            self.step(Event::PatchReply { id, result });
        }
    }

    /// The requested size changes. A field that grows is one that the guest has not consented to release.
    fn writes(&mut self, to: Resources) {
        let from = self.asked();
        if to.vcpus > from.vcpus {
            self.knows.vcpus = self.knows.vcpus.max(to.vcpus);
        }
        if to.mem > from.mem {
            self.knows.mem = self.knows.mem.max(to.mem);
        }
        self.vm.info.set_using(to).unwrap();
        self.vm.generation = self.vm.generation.map(|g| g + 1);
    }

    pub fn monitor(&mut self, treat: Treat) {
        let Some((id, target, down, since)) = self.question.take() else { return };
        let in_time = treat != Treat::Silently && self.now < since + self.settings.monitor_reply_deadline;
        let denies = down && (treat == Treat::Deny || target.any_less(self.needs));
        let result = match treat {
            Treat::Fail => Err("broken".to_owned()),
            _ if denies => {
                if in_time {
                    self.denies(since, target);
                }
                Ok(Verdict::Denied { status: "in use".into() })
            }
            _ => {
                self.knows = target;
                if down && in_time {
                    self.denials = 0;
                }
                Ok(if down { Verdict::Agreed { status: String::new() } } else { Verdict::Confirmed })
            }
        };
        if treat != Treat::Silently {
            self.step(Event::MonitorReply { id, result });
        }
    }

    /// The VM goes where the controller brings it: wholly, or a part of the way.
    pub fn machine(&mut self, wholly: bool) {
        let before = self.has;
        self.has = if wholly {
            self.commanded
        } else {
            let mem = self.has.mem.get().midpoint(self.commanded.mem.get());
            Resources::new(self.has.vcpus, neonvm_types::Bytes::new(mem))
        };
        // A guest cannot count on what it no longer has.
        if self.has.vcpus < before.vcpus {
            self.knows.vcpus = self.knows.vcpus.min(self.has.vcpus);
        }
        if self.has.mem < before.mem {
            self.knows.mem = self.knows.mem.min(self.has.mem);
        }
    }

    /// The controller reads the object, and writes the runner's size into the status.
    pub fn look(&mut self) {
        (self.commanded, self.looked_at) = (self.asked(), self.vm.generation);
        self.vm.observed = Some(self.has);
    }

    pub fn see(&mut self) {
        self.step(self.seen());
    }

    pub fn seen(&self) -> Event {
        Event::VmSeen { vm: self.vm.clone(), status_generation: self.looked_at }
    }

    /// The object shows that the guest stands still, or runs again. Meanwhile the agent keeps no connection.
    pub fn pause(&mut self, paused: bool) {
        self.vm.paused = paused;
        self.vm.generation = self.vm.generation.map(|g| g + 1);
        if paused {
            self.connected = None;
        }
        self.forget();
        self.see();
    }

    pub fn connect(&mut self, version: MonitorProtoVersion) {
        if self.vm.paused {
            return;
        }
        self.connected = Some(version);
        // It received no notification, so it uses the size that it measures.
        self.knows = self.has.max(self.asked());
        self.forget();
        self.step(Event::MonitorConnected { version });
    }

    pub fn lose(&mut self) {
        self.connected = None;
        self.forget();
        self.step(Event::MonitorLost { reason: "reset".into() });
    }

    pub fn scrape(&mut self) {
        self.metrics_at = Some(self.now);
        self.step(Event::SystemMetrics(SystemMetrics { load1: self.load, ..SystemMetrics::default() }));
    }

    /// Another client changes the requested size: the scheduler's permit is no longer the agent's doing.
    pub fn outside(&mut self, units: u16) {
        self.outside = true;
        self.writes(cu(units));
        self.see();
    }

    pub fn bounds(&mut self, min: u16, max: u16) {
        let (min, max) = (min.min(max), max.max(min));
        (self.vm.info.cpu.min, self.vm.info.cpu.max) = (cu(min).vcpus, cu(max).vcpus);
        (self.vm.info.mem.min, self.vm.info.mem.max) = (min, max);
        self.see();
    }

    pub fn timer(&mut self) {
        self.step(Event::Timer);
    }

    /// All components work without faults until the time is over.
    pub fn calm(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.outside = true;
        let mut scrape_at = self.now;
        while self.now < end {
            for _ in 0..4 {
                self.scheduler(Treat::Well);
                self.api(Treat::Well);
                self.monitor(Treat::Well);
                self.look();
                self.machine(true);
                self.look();
                self.see();
            }
            if self.now >= scrape_at {
                self.scrape();
                scrape_at = self.now + secs(5.0);
            }
            let next = self.wake_at.map_or(scrape_at, |at| at.min(scrape_at));
            self.now = next.max(self.now + secs(0.05));
            self.timer();
        }
    }

    /// The agent restarts: its state is lost, its peers keep theirs.
    pub fn restart(&mut self) {
        self.state = State::found(self.vm.clone(), self.looked_at, self.settings, self.now);
        (self.asks, self.patch, self.metrics_at) = (None, None, None);
        self.forget();
        if let Some(version) = self.connected {
            self.connect(version);
        }
    }
}
