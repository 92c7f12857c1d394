//! The controller, the runner and QEMU: CPU comes at once, memory slot by slot.

use neonvm_types::{Bytes, Resources};

use super::World;
use super::event::Event;
use super::model::{Id, Phase};
use super::notes::Line;
use crate::queue::{MILLI, SECOND};
use crate::{Bug, Invariant};

impl World {
    /// A pod was bound and has started: the VM is there with the size that its object requests.
    pub(super) fn boot(&mut self, id: Id) {
        let Some(pod) = self.pods.get(id).filter(|pod| pod.alive && !pod.ended) else { return };
        let Some(at) = pod.vm else { return };
        let usage = pod.usage;
        self.account(at);
        let now = self.now;
        let Some(vm) = self.vms.get_mut(at).filter(|vm| vm.pod == Some(id) && vm.phase == Phase::Pending)
        else {
            return;
        };
        (vm.phase, vm.there_since) = (Phase::Running, now);
        vm.has = usage;
        vm.asked = usage;
        vm.generation += 1;
        vm.observed = Some(vm.has);
        vm.observed_generation = vm.generation;
        vm.guest.agreed = vm.has;
        vm.guest.policy = super::build::policy(vm.max);
        vm.guest.connection = None;
        self.note(Line::Size(at, "runs with", usage));
        self.recount(id);
        self.after(0, Event::Attach(at));
        self.watch_guest(at);
    }

    /// A VM that the cores manage has booted; it counts as running when its status shows that.
    pub(super) fn machine_boots(&mut self, at: Id, pod: Id, usage: Resources) {
        self.account(at);
        let Some(vm) = self.vms.get_mut(at).filter(|vm| vm.phase == Phase::Pending) else { return };
        vm.has = usage;
        vm.asked = usage;
        vm.observed = Some(vm.has);
        vm.observed_generation = vm.generation;
        vm.guest.agreed = vm.has;
        vm.guest.policy = super::build::policy(vm.max);
        vm.guest.connection = None;
        self.note(Line::Size(at, "boots with", usage));
        self.recount(pod);
    }

    /// The controller reads the object and sends its size to the runner.
    pub(super) fn control(&mut self, id: Id) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        vm.controlled = false;
        if vm.phase != Phase::Running {
            return;
        }
        let (asked, pod) = (vm.asked, vm.pod);
        let before = (vm.observed, vm.observed_generation, vm.revision);
        let mut generation = vm.generation;
        if self.bug(Bug::GenerationFallsBack) && self.rngs.faults.chance(0.1) {
            generation -= 1;
        }
        self.check(Invariant::Monotonic);
        let (now, unit) = (self.now, self.unit);
        let hides = self.bug(Bug::StatusHidesMemory);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if generation < vm.observed_generation {
            let (name, was) = (vm.name.clone(), vm.observed_generation);
            return self
                .fail(Invariant::Monotonic, format!("{name}: observed generation {generation} after {was}"));
        }
        vm.observed_generation = generation;
        let mut observed = vm.observed.unwrap_or(asked);
        let resized = vm.has.vcpus != asked.vcpus;
        vm.guest.settle(now, unit, vm.has.vcpus);
        vm.has.vcpus = asked.vcpus;
        observed.vcpus = asked.vcpus;
        vm.mem_epoch += 1;
        let moves = vm.has.mem != asked.mem;
        // Memory comes in steps; the status shows only the final size, or the current one when the target size changes.
        if !moves || !hides {
            observed.mem = vm.has.mem;
        }
        vm.observed = Some(observed);
        if !moves {
            vm.revision = vm.target_revision;
        }
        let (epoch, changed) = (vm.mem_epoch, before != (vm.observed, vm.observed_generation, vm.revision));
        if moves {
            let wait = self.latency(50, 200);
            self.after(wait, Event::MemoryStep { vm: id, epoch });
        }
        if let Some(pod) = pod {
            self.use_changes(pod, asked.max(observed));
            self.recount(pod);
        }
        if changed {
            self.show(id);
        }
        if resized {
            self.account(id);
            self.watch_guest(id);
        }
    }

    /// The pod shows what its VM is to have, and what it has while it returns more.
    fn use_changes(&mut self, id: Id, usage: Resources) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        if pod.usage != usage {
            pod.usage = usage;
            self.touch_pod(id);
        }
    }

    /// Some memory has come or gone.
    pub(super) fn memory_step(&mut self, id: Id, epoch: u32) {
        let (now, slot) = (self.now, self.settings.slot.get().max(1));
        self.account(id);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.mem_epoch != epoch || vm.phase != Phase::Running {
            return;
        }
        if now < vm.stuck_until {
            let wait = vm.stuck_until - now + 100 * MILLI;
            return self.after(wait, Event::MemoryStep { vm: id, epoch });
        }
        let (has, asked) = (vm.has.mem.get(), vm.asked.mem.get());
        let slots = (has.abs_diff(asked) / slot).div_ceil(2).max(1);
        let step = (slots * slot).min(has.abs_diff(asked));
        vm.has.mem = Bytes::new(if asked > has { has + step } else { has - step });
        let slow = now < vm.slow_until;
        let done = vm.has.mem.get() == asked;
        if done {
            vm.observed = vm.observed.map(|observed| Resources { mem: vm.has.mem, ..observed });
            if vm.has == vm.asked {
                vm.revision = vm.target_revision;
            }
        }
        let (pod, uses) = (vm.pod, vm.asked.max(vm.observed.unwrap_or(vm.asked)));
        if let Some(pod) = pod {
            if done {
                self.use_changes(pod, uses);
            }
            self.recount(pod);
        }
        if done {
            self.show(id);
        } else {
            let wait = if slow { self.latency(2_000, 15_000) } else { self.latency(50, 200) };
            self.after(wait.min(15 * SECOND), Event::MemoryStep { vm: id, epoch });
        }
        self.watch_guest(id);
    }
}
