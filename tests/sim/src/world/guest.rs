//! Guests: what their load needs, what their metrics show, and the real policy of the monitor.

use neonvm_core_vertical_scaling::agent::{Event as Input, SystemMetrics, Verdict, units};
use neonvm_core_vertical_scaling::monitor::{Action, Event as PolicyEvent, Sample};
use neonvm_types::monitor_protocol::{AgentMessage, MonitorMessage};
use neonvm_types::{MilliCpu, Resources, version::MonitorProtoVersion};

use super::event::Event;
use super::model::{GuestState, Id, Phase, Vm};
use super::{World, duration};
use crate::queue::{MILLI, SECOND, Time};
use crate::rng::Rng;
use crate::scenario::Guest;
use crate::{Fault, Invariant};

/// Load per CPU that agents aim at, and the share of memory.
const LOAD_TARGET: f64 = 0.9;
const MEMORY_TARGET: f64 = 0.75;
/// What agents add to the memory in use.
const MARGIN: u64 = 100 << 20;
/// What the kernel keeps for itself.
const KERNEL: u64 = 64 << 20;

/// How many times the CPU that a load needs a VM may keep: of a size up to 40 % may be in use after a VM that turned too soon shrank.
pub(super) const KEPT: f64 = LOAD_TARGET / 0.4;

/// What levels of CPU and memory need, in whole compute units of each.
pub(super) fn needed(cpu: f64, memory: f64, unit: Resources) -> Resources {
    let units = |count: f64| units::times(unit, count.max(0.0) as u32);
    Resources { vcpus: units(cpu.round()).vcpus, mem: units((memory - 1e-6).ceil()).mem }
}

impl GuestState {
    /// Tasks that can run, on average.
    fn load(&self, unit: Resources) -> f64 {
        self.cpu_level * unit.vcpus.as_f64() * LOAD_TARGET
    }

    /// The load averages and the time in use follow the load, while the VM has `cpu`.
    pub(super) fn settle(&mut self, now: Time, unit: Resources, cpu: MilliCpu) {
        let load = self.load(unit);
        let elapsed = now.saturating_sub(self.load_at) as f64 / SECOND as f64;
        self.busy += load.min(cpu.as_f64()) * elapsed;
        self.load_at = now;
        self.load1 = load + (self.load1 - load) * (-elapsed / 60.0).exp();
        self.load5 = load + (self.load5 - load) * (-elapsed / 300.0).exp();
    }
}

impl Vm {
    /// Memory in use as agents reckon it, in bytes: no more than there is.
    fn memory_in_use(&self, unit: Resources) -> u64 {
        let wanted = self.guest.memory_level * unit.mem.get() as f64 * MEMORY_TARGET;
        (wanted as u64).min(self.has.mem.get().saturating_sub(KERNEL))
    }

    /// The guest at one instant. Whether a task is seen to run is chance, as often as it runs.
    fn sampled(&self, unit: Resources, rng: &mut Rng) -> Sample {
        let load = self.guest.load(unit);
        let seen = u32::from(rng.chance(load.fract()));
        let total = self.has.mem.get().saturating_sub(KERNEL);
        let anonymous = self.memory_in_use(unit).saturating_sub(MARGIN);
        Sample {
            anonymous,
            total,
            available: total.saturating_sub(anonymous),
            runnable: (load as u32).saturating_add(seen),
            online: self.has.vcpus.cpus_rounded_up().max(1),
            ..Sample::default()
        }
    }

    /// Whether the guest is near the end of what it has.
    fn is_tight(&self, unit: Resources) -> bool {
        let cpu = self.guest.load(unit) >= self.has.vcpus.as_f64() * 0.85;
        cpu || self.memory_in_use(unit) as f64 > self.has.mem.get() as f64 * 0.8
    }
}

impl World {
    /// The load of a VM changes.
    pub(super) fn demand_changes(&mut self, id: Id, memory: bool) {
        self.account(id);
        let (now, unit, faults_on) = (self.now, self.unit, self.faults_on);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.phase == Phase::Gone || !faults_on {
            return;
        }
        vm.guest.settle(now, unit, vm.has.vcpus);
        let rng = &mut self.rngs.load;
        let next = if memory {
            let (level, next) = vm.guest.memory.next(now, rng);
            vm.guest.memory_level = level;
            next
        } else {
            let (level, next) = vm.guest.cpu.next(now, rng);
            vm.guest.cpu_level = level;
            next
        };
        vm.needs = needed(vm.guest.cpu_level, vm.guest.memory_level, unit);
        if let Some(wait) = next {
            self.after(wait, if memory { Event::Memory(id) } else { Event::Demand(id) });
        }
        self.watch_guest(id);
    }

    /// What a scrape shows; `None` if there is no guest.
    pub(super) fn metrics(&mut self, id: Id) -> Option<SystemMetrics> {
        let (now, unit, fast) = (self.now, self.unit, self.settings.fast_requests);
        let vm = self.vms.get_mut(id)?;
        vm.guest.settle(now, unit, vm.has.vcpus);
        let memory = vm.memory_in_use(unit) as f64;
        let (load1, load5) = (vm.guest.load1, vm.guest.load5);
        Some(SystemMetrics {
            load1,
            load5,
            memory_usage_bytes: memory,
            memory_cached_bytes: 0.0,
            // Where guests request nothing, growth depends on the load average alone.
            busy_seconds: fast.then_some(vm.guest.busy),
            ..SystemMetrics::default()
        })
    }

    pub(super) fn guest_connected(&mut self, id: Id) {
        let now = duration(self.now);
        let Some(vm) = self.vms.get_mut(id) else { return };
        let total = vm.has.mem.get().saturating_sub(KERNEL);
        let _ =
            vm.guest.policy.step(now, PolicyEvent::Connected { version: MonitorProtoVersion::V2_0, total });
        self.watch_guest(id);
    }

    /// Something in the guest has changed: the monitor samples for a while.
    pub(super) fn watch_guest(&mut self, id: Id) {
        if !self.settings.fast_requests {
            return;
        }
        let Some(vm) = self.vms.get_mut(id) else { return };
        vm.guest.samples = 0;
        if vm.phase == Phase::Running && vm.guest.connection.is_some() && !vm.guest.sampling {
            vm.guest.sampling = true;
            self.after(100 * MILLI, Event::Sample(id));
        }
    }

    /// A sample of the monitor. If nothing is short, the next samples would change nothing, and are skipped.
    pub(super) fn sample(&mut self, id: Id) {
        let (now, unit) = (self.now, self.unit);
        let Some(vm) = self.vms.get_mut(id) else { return };
        vm.guest.sampling = false;
        if vm.phase != Phase::Running {
            return;
        }
        let Some((inc, connection)) = vm.guest.connection else { return };
        let sample = vm.sampled(unit, &mut self.rngs.guest);
        let outcome = vm.guest.policy.step(duration(now), PolicyEvent::Sample(Some(sample)));
        vm.guest.samples += 1;
        let (samples, tight) = (vm.guest.samples, vm.is_tight(unit));
        let silent = now < vm.guest.silent_until;
        if samples < 6 || tight {
            vm.guest.sampling = true;
            let wait = if samples < 10 {
                100 * MILLI
            } else if samples < 60 {
                SECOND
            } else {
                5 * SECOND
            };
            self.after(wait, Event::Sample(id));
        }
        for action in outcome.actions {
            if let Action::Send { message: MonitorMessage::UpscaleRequest { wants }, .. } = action
                && !silent
            {
                self.stats.guest_requests += 1;
                let wants = wants.map(Box::new);
                self.after(MILLI, Event::GuestRequest { vm: id, inc, connection, wants });
            }
        }
    }

    /// A request of the guest for more arrives.
    pub(super) fn guest_request(
        &mut self,
        id: Id,
        (inc, connection): (u64, u64),
        wants: Option<Box<neonvm_types::monitor_protocol::Wants>>,
    ) {
        if self.agent_of(id, inc).is_some_and(|agent| agent.connection == connection) {
            self.agent_step(id, Input::UpscaleRequested { wants: wants.map(|wants| *wants) });
        }
    }

    /// A message of the agent arrives in the guest.
    pub(super) fn question(
        &mut self,
        id: Id,
        (inc, connection): (u64, u64),
        number: u64,
        to: Resources,
        down: bool,
    ) {
        let now = self.now;
        let garbage_answer =
            Ok(if down { Verdict::Confirmed } else { Verdict::Denied { status: String::new() } });
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.guest.connection != Some((inc, connection)) {
            return;
        }
        if !down {
            self.check_notified(id, to);
        }
        let Some(vm) = self.vms.get_mut(id) else { return };
        if now < vm.guest.silent_until || (down && vm.guest.kind == Guest::Stalls) {
            return;
        }
        let refuses = vm.guest.kind == Guest::Refuses || now < vm.guest.refuses_until;
        let garbage = now < vm.guest.garbage_until;
        let result = if garbage {
            garbage_answer
        } else if down && refuses {
            Ok(Verdict::Denied { status: "the guest is not to be shrunk now".to_owned() })
        } else {
            self.answer(id, number, to, down)
        };
        if matches!(result, Ok(Verdict::Denied { .. })) {
            self.stats.guest_denials += 1;
        }
        let wait = self.latency(1, 10);
        if self.fault(Fault::MonitorSilent, 0.02) {
            return;
        }
        self.after(wait, Event::Verdict { vm: id, inc, connection, id: number, result });
    }

    /// The monitor's policy answers.
    fn answer(&mut self, id: Id, number: u64, to: Resources, down: bool) -> Result<Verdict, String> {
        let (now, unit) = (self.now, self.unit);
        let no_answer = || Err("no answer".to_owned());
        let Some(vm) = self.vms.get_mut(id) else { return no_answer() };
        // What it would have sampled meanwhile.
        for before in (0..5).rev() {
            let sample = vm.sampled(unit, &mut self.rngs.guest);
            let at = duration(now.saturating_sub(before * 100 * MILLI));
            let _ = vm.guest.policy.step(at, PolicyEvent::Sample(Some(sample)));
        }
        let message = if down {
            AgentMessage::DownscaleRequest { target: to.into() }
        } else {
            AgentMessage::UpscaleNotification { granted: to.into() }
        };
        let outcome = vm.guest.policy.step(duration(now), PolicyEvent::Message { id: number, message });
        let reply = outcome.actions.into_iter().find_map(|action| match action {
            Action::Send { id, message } if id == number => Some(message),
            _ => None,
        });
        match reply {
            Some(MonitorMessage::UpscaleConfirmation) => {
                vm.guest.agreed = vm.guest.agreed.max(to);
                Ok(Verdict::Confirmed)
            }
            Some(MonitorMessage::DownscaleResult { ok: true, status }) => {
                vm.guest.agreed = to;
                Ok(Verdict::Agreed { status })
            }
            Some(MonitorMessage::DownscaleResult { ok: false, status }) => Ok(Verdict::Denied { status }),
            Some(other) => Err(format!("{other:?}")),
            None => no_answer(),
        }
    }

    /// The guest is notified of no more than it has.
    fn check_notified(&mut self, id: Id, to: Resources) {
        self.check(Invariant::Consent);
        let Some(vm) = self.vms.get(id) else { return };
        if to.any_greater(vm.has) {
            let (name, has) = (&vm.name, vm.has);
            let message =
                format!("{name}: notified of {}/{}, has {}/{}", to.vcpus, to.mem, has.vcpus, has.mem);
            self.fail(Invariant::Consent, message);
        }
    }
}
