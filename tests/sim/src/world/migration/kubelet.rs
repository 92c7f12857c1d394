//! The kubelet of a pod whose VM has migrations: it resizes the pod, late or much later, and reports what is in force.
//! The model of S12 is here too: whatever state the controller has, no VM is larger than the limits that its kubelet
//! enforces.

use std::rc::Rc;

use neonvm_core_vm_lifecycle::pod::PodSize;
use neonvm_core_vm_lifecycle::{Obstacle, Resize, ResizeDenial};
use neonvm_types::Resources;

use super::objects::{Care, Kind, size_of, stamp};
use super::{Step, World};
use crate::queue::MILLI;
use crate::world::model::Id;
use crate::{Fault, Invariant};

impl World {
    /// The controller writes other requests and limits by the subresource `resize`.
    pub(super) fn resize_pod(&mut self, id: Id, care: &mut Care, (name, uid): (&str, &str), size: PodSize) {
        let Some(pod) = care.pod_named(name) else { return };
        if care.now.pods.get(&pod).is_none_or(|view| view.uid != uid) {
            return;
        }
        self.change_pod(id, care, name, |view| {
            view.size = Some(size);
            (view.current, view.resize) = (false, Resize::None);
        });
        let wait = self.rngs.sizes.between(20 * MILLI, 300 * MILLI);
        self.later(id, wait, Step::Kubelet { pod });
    }

    /// The kubelet gets to the newest size of a pod.
    pub(super) fn kubelet(&mut self, id: Id, care: &mut Care, pod: Id) {
        let Some(view) = care.now.pods.get(&pod).filter(|view| view.running && view.ended.is_none()) else {
            return;
        };
        if view.applied == view.size && view.current {
            return;
        }
        let defers = self.faults_on && self.faults.has(Fault::ResizeDeferred) && self.rngs.sizes.chance(0.2);
        let away = self.faults_on
            && self.faults.has(Fault::DevicesAway)
            && view.applied != view.size
            && self.rngs.sizes.chance(0.2);
        self.stats.faults += u64::from(defers || away);
        let since = stamp(self.now);
        let Some(view) = care.now.pods.get_mut(&pod) else { return };
        let view = Rc::make_mut(view);
        view.current = true;
        let denied = |obstacle, message: &str| {
            Resize::Denied(ResizeDenial { obstacle, message: message.to_owned(), since })
        };
        if away {
            view.resize = denied(Obstacle::DevicesAway, "no healthy devices present");
        } else if defers {
            view.resize = denied(Obstacle::NoRoom, "node has no room now");
            let wait = self.rngs.sizes.between(1_000 * MILLI, 60_000 * MILLI);
            self.later(id, wait, Step::Kubelet { pod });
        } else {
            (view.applied, view.resize) = (view.size, Resize::None);
        }
        self.touch(id, care, Kind::Pods);
        self.check_pod_size(id, care, pod);
    }

    /// The size of the pod for a VM whose guest has this size.
    pub(super) fn pod_size(&self, vm: &neonvm_api::VirtualMachine, guest: Resources) -> PodSize {
        size_of(vm, guest, &self.controller.settings)
    }

    /// S12: the guest of a pod, and what it may take any moment, fit into the limits that are in force.
    pub(super) fn check_pod_size(&mut self, id: Id, care: &Care, pod: Id) {
        self.check(Invariant::PodSize);
        let Some(runner) = care.runners.get(&pod).filter(|runner| runner.alive && runner.guest) else {
            return;
        };
        let Some(view) = care.now.pods.get(&pod) else { return };
        let Some(applied) = view.applied.map(|applied| applied.limits) else { return };
        let needed = self.pod_size(&care.now.vm, runner.size).limits;
        if needed.cpu <= applied.cpu && needed.memory <= applied.memory {
            return;
        }
        let message = format!(
            "{} needs {} and {} in pod {}, whose limits in force are {} and {}",
            self.vm_name(id),
            needed.cpu.to_quantity(),
            needed.memory.to_quantity(),
            view.name,
            applied.cpu.to_quantity(),
            applied.memory.to_quantity()
        );
        self.fail(Invariant::PodSize, message);
    }
}
