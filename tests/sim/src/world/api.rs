//! The API server: the VM objects, changes to them, and watches.

use neonvm_types::{Resources, Revision};

use super::World;
use super::event::Event;
use super::model::{Id, Phase, Snapshot};
use super::notes::Line;
use crate::queue::{MILLI, SECOND};
use crate::{Bug, Fault};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) from: Resources,
    pub(crate) to: Resources,
    pub(crate) revision: Revision,
    /// Whether this is a second copy of it.
    pub(crate) again: bool,
}

impl World {
    /// The object as it is now.
    pub(super) fn snapshot(&self, id: Id) -> Option<Snapshot> {
        let vm = self.vms.get(id)?;
        Some(Snapshot {
            asked: vm.asked,
            observed: vm.observed,
            min: vm.min,
            max: vm.max,
            hold: vm.hold,
            generation: vm.generation,
            status_generation: vm.observed_generation,
            revision: vm.revision,
            moving: vm.phase != Phase::Running,
        })
    }

    /// The object has changed: each watcher gets the change, in order.
    pub(super) fn show(&mut self, id: Id) {
        let Some(seen) = self.snapshot(id) else { return };
        let wait = self.latency(1, 20);
        let late = if self.fault(Fault::WatchLag, 0.05) { self.latency(500, 20_000) } else { 0 };
        let now = self.now;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let Some(inc) = vm.agent.as_deref().map(|agent| agent.inc) else { return };
        vm.watched = vm.watched.max(now + wait + late);
        let wait = vm.watched - now;
        self.after(wait, Event::Watch { vm: id, inc, seen: Box::new(seen) });
    }

    /// A change of size arrives.
    pub(super) fn patch(&mut self, id: Id, inc: u64, number: u64, change: &Change) {
        // A process that has ended sends nothing any more.
        if self.agent_of(id, inc).is_none() {
            return;
        }
        let result = self.try_patch(id, inc, change);
        if result.is_ok() && !change.again && self.fault(Fault::Duplicate, 0.1) {
            // The preconditions are on values, which may be the same again later: a copy comes at once.
            let Change { from, to, revision, .. } = *change;
            self.after(0, Event::Patch { vm: id, inc, id: number, from, to, revision, again: true });
        }
        if change.again || (result.is_ok() && self.fault(Fault::LostReply, 0.1)) {
            return;
        }
        let wait = self.latency(2, 20);
        let late = if self.fault(Fault::Delay, 0.03) { self.latency(500, 20_000) } else { 0 };
        let to = change.to;
        self.after(wait + late, Event::Patched { vm: id, inc, id: number, result, to });
    }

    fn try_patch(&mut self, id: Id, inc: u64, change: &Change) -> Result<Option<i64>, Option<&'static str>> {
        if !change.again && self.fault(Fault::ApiError, 0.05) {
            return Err(Some("the API server answered 500"));
        }
        if !change.again && self.fault(Fault::Conflict, 0.1) {
            self.stats.conflicts += 1;
            return Err(None);
        }
        if self.bug(Bug::PatchesLost) {
            return Ok(None);
        }
        let precondition = !self.bug(Bug::PatchWithoutPrecondition);
        let Some(vm) = self.vms.get(id) else { return Err(Some("not found")) };
        // The size of a VM does not change during a migration: its target has room for the current size only.
        if vm.phase != Phase::Running || (precondition && vm.asked != change.from) {
            self.stats.conflicts += 1;
            return Err(None);
        }
        self.write(id, inc, change);
        Ok(self.vms.get(id).map(|vm| vm.generation))
    }

    pub(super) fn write(&mut self, id: Id, inc: u64, change: &Change) {
        self.check_write(id, change);
        let (has, to) = (change.from, change.to);
        self.stats.upscales += u64::from(to.any_greater(has));
        self.stats.downscales += u64::from(to.any_less(has));
        let Some(vm) = self.vms.get_mut(id) else { return };
        let grown = to.max(vm.asked);
        // A resource given on top of the size it consented to needs a new consent before it can be taken back.
        if to.vcpus > vm.asked.vcpus {
            vm.guest.agreed.vcpus = vm.guest.agreed.vcpus.max(grown.vcpus);
        }
        if to.mem > vm.asked.mem {
            vm.guest.agreed.mem = vm.guest.agreed.mem.max(grown.mem);
        }
        vm.asked = to;
        vm.target_revision = change.revision;
        vm.generation += 1;
        if let Some(agent) = vm.agent.as_deref_mut().filter(|agent| agent.inc == inc) {
            agent.account.unacknowledged.push(to);
        }
        let pod = vm.pod;
        if let Some(pod) = pod {
            self.recount(pod);
        }
        self.spec_changes(id);
        self.note(Line::Size(id, "spec.use is now", to));
        self.show(id);
        self.control_soon(id);
    }

    /// The controller will reconcile a VM.
    pub(super) fn control_soon(&mut self, id: Id) {
        let wait = self.latency(5, 40);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if !std::mem::replace(&mut vm.controlled, true) {
            self.after(wait, Event::Control(id));
        }
    }

    /// A user creates a VM.
    pub(super) fn create(&mut self, id: Id) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        vm.phase = Phase::Pending;
        vm.counted_at = self.now;
        let asked = vm.asked;
        self.stats.vms_created += 1;
        self.after(0, Event::Demand(id));
        self.after(0, Event::Memory(id));
        if self.vms.get(id).is_some_and(|vm| vm.network) {
            self.give_pod_when_ready(id);
        } else {
            self.give_pod(id, asked);
        }
    }

    /// A VM on the overlay network has its address before it has a pod.
    pub(super) fn give_pod_when_ready(&mut self, id: Id) {
        let Some(vm) = self.vms.get(id).filter(|vm| vm.phase == Phase::Pending && vm.pod.is_none()) else {
            return;
        };
        let asked = vm.asked;
        if vm.address.is_some() || self.take_address(id) {
            self.give_pod(id, asked);
        } else {
            self.after(SECOND, Event::Address(id));
        }
    }

    /// A VM gets a runner pod, which waits for a node.
    pub(super) fn give_pod(&mut self, id: Id, usage: Resources) {
        let pod = self.make_pod(Some(id), usage);
        if let Some(vm) = self.vms.get_mut(id) {
            vm.pod = Some(pod);
            vm.phase = Phase::Pending;
        }
        self.waiting.insert(pod);
        self.touch_pod(pod);
    }

    /// A user deletes a VM. Its VM stops at once, its pod is gone a while later.
    pub(super) fn delete(&mut self, id: Id) {
        self.account(id);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.phase == Phase::Gone {
            return;
        }
        vm.phase = Phase::Gone;
        let pods = [vm.pod, vm.target];
        self.stats.vms_deleted += 1;
        self.note(Line::Vm(id, "is deleted"));
        self.detach(id);
        self.address_while_deleting(id);
        if self.delete_machine(id) {
            return;
        }
        for pod in pods.into_iter().flatten() {
            let wait = self.rngs.people.between(100 * MILLI, 10 * SECOND);
            self.after(wait, Event::Removed(pod));
        }
    }
}
