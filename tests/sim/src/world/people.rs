//! What people do, and nodes that come and go.

use neonvm_core_vertical_scaling::agent::units;

use super::World;
use super::api::Change;
use super::event::Event;
use super::model::{Id, Person, Phase};
use super::notes::Line;
use crate::Bug;
use crate::queue::SECOND;

impl World {
    fn a_running_vm(&mut self) -> Option<Id> {
        // A few tries, so that it takes no longer with more VMs.
        for _ in 0..8 {
            let id = usize::try_from(self.rngs.people.below(self.vms.len() as u64)).ok()?;
            if self.vms.get(id).is_some_and(|vm| vm.phase == Phase::Running) {
                return Some(id);
            }
        }
        None
    }

    /// One that runs, in migration or not.
    fn a_living_vm(&mut self) -> Option<Id> {
        for _ in 0..8 {
            let id = usize::try_from(self.rngs.people.below(self.vms.len() as u64)).ok()?;
            if self.vms.get(id).is_some_and(|vm| matches!(vm.phase, Phase::Running | Phase::Migrating)) {
                return Some(id);
            }
        }
        None
    }

    /// A user does something.
    pub(super) fn person(&mut self, person: Person) {
        if !self.faults_on {
            return;
        }
        self.schedule_people(person);
        match person {
            Person::Creates => {
                let group = usize::try_from(self.rngs.people.below(self.groups.len() as u64)).unwrap_or(0);
                if self.vms.len() < 200_000
                    && let Some(vm) = self.make_vm(group)
                {
                    self.create(vm);
                }
            }
            Person::Deletes => {
                if let Some(vm) = self.a_living_vm() {
                    self.delete(vm);
                }
            }
            Person::Drains => {
                let node = usize::try_from(self.rngs.people.below(self.nodes.len() as u64)).unwrap_or(0);
                self.drain(node);
            }
            Person::Moves => {
                if let Some(vm) = self.a_running_vm() {
                    self.person_moves(vm);
                    // Another user does the same.
                    if self.rngs.people.chance(0.2) {
                        self.person_moves(vm);
                    }
                }
            }
            Person::Cancels => self.person_cancels(),
            Person::Bounds => self.change_bounds(),
            Person::Holds => self.hold(),
            Person::Cordons => {
                let node = usize::try_from(self.rngs.people.below(self.nodes.len() as u64)).unwrap_or(0);
                self.set_open(node, false);
                let wait = self.rngs.people.between(60 * SECOND, 600 * SECOND);
                self.after(wait, Event::Uncordon(node));
            }
        }
    }

    /// A node is closed, and all its VMs are migrated away.
    fn drain(&mut self, node: Id) {
        let open = self.nodes.iter().filter(|node| node.open && !node.lost).count();
        if open < 2 {
            return;
        }
        self.set_open(node, false);
        self.note(Line::Node(node, "is drained"));
        for vm in self.vms_on(node) {
            self.person_moves(vm);
        }
        let wait = self.rngs.people.between(120 * SECOND, 600 * SECOND);
        self.after(wait, Event::Uncordon(node));
    }

    fn change_bounds(&mut self) {
        let Some(id) = self.a_living_vm() else { return };
        let unit = self.unit;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let top = units::floor(vm.first_bounds.1, unit).max(1);
        let max = u32::try_from(self.rngs.people.between(1, u64::from(top))).unwrap_or(1);
        let min = u32::try_from(self.rngs.people.between(1, u64::from(max))).unwrap_or(1);
        let bounds = (units::times(unit, min), units::times(unit, max));
        (vm.min, vm.max) = super::build::shape(bounds, &self.settings, &mut self.rngs.shapes);
        let (max, pods) = (vm.max, [vm.pod, vm.target]);
        self.note(Line::Size(id, "its bounds change, at most", max));
        for pod in pods.into_iter().flatten() {
            self.touch_pod(pod);
        }
        self.show(id);
    }

    fn hold(&mut self) {
        let Some(id) = self.a_living_vm() else { return };
        let (now, unit) = (self.now, self.unit);
        let wait = self.rngs.people.between(60 * SECOND, 600 * SECOND);
        let Some(vm) = self.vms.get_mut(id) else { return };
        let top = units::floor(vm.max, unit).max(1);
        let size = u32::try_from(self.rngs.people.between(1, u64::from(top))).unwrap_or(1);
        let to = units::times(unit, size);
        vm.hold = Some((to, now + wait));
        let (from, revision) = (vm.asked, vm.target_revision);
        self.note(Line::Size(id, "a person fixes its size at", to));
        self.show(id);
        if self.bug(Bug::HoldIgnored) {
            self.write(id, 0, &Change { from, to, revision, again: false });
        }
    }

    pub(super) fn set_open(&mut self, id: Id, open: bool) {
        let Some(node) = self.nodes.get_mut(id).filter(|node| node.open != open && !node.lost) else {
            return;
        };
        node.open = open;
        self.note(Line::Node(id, if open { "is open" } else { "is closed" }));
        self.touch_node(id);
    }

    /// A node is gone, with all that ran there. VMs get new pods elsewhere.
    pub(super) fn lose_node(&mut self, id: Id) {
        let left = self.nodes.iter().filter(|node| !node.lost).count();
        let Some(node) = self.nodes.get_mut(id).filter(|node| !node.lost) else { return };
        if left < 2 {
            return;
        }
        node.lost = true;
        let pods: Vec<Id> = node.pods.iter().copied().collect();
        self.note(Line::Node(id, "is lost"));
        self.touch_node(id);
        for pod in pods {
            // Gone already, with the one before it.
            let Some(entry) = self.pods.get(pod).filter(|pod| pod.alive) else { continue };
            let vm = entry.vm;
            if vm.is_some_and(|vm| self.pod_is_lost(vm, pod)) {
                continue;
            }
            self.pod_removed(pod);
            let Some(vm) = vm else { continue };
            self.vm_lost(vm);
        }
    }

    /// A VM that the cores do not look after is lost with its pod: it gets another one.
    fn vm_lost(&mut self, id: Id) {
        self.account(id);
        let Some(vm) = self.vms.get_mut(id) else { return };
        if vm.phase == Phase::Gone {
            return;
        }
        vm.has = neonvm_types::Resources::default();
        vm.observed = None;
        vm.mem_epoch += 1;
        let asked = vm.asked;
        self.detach(id);
        self.give_pod(id, asked);
    }
}
