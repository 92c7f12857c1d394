//! The world's own audit of migrations: where guests run, what they find there, what is left.

use neonvm_api::migration::MigrationPhase;
use neonvm_api::virtual_machine::Phase as Stage;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_migration::phases::is_over;
use neonvm_types::runner_protocol::MigrationRole;

use super::World;
use super::objects::Care;
use crate::Invariant;
use crate::queue::{SECOND, Time};
use crate::world::model::{Id, Phase};

/// Longest that a migration may take that began in the calm, including its time in the queue.
const MIGRATION: Time = 600 * SECOND;
/// Longest that a pod with a node may take until its VM is reported running: its containers start within 4 s, its VM boots, the
/// controller writes the status.
const START: Time = 30 * SECOND;

impl World {
    /// A guest continues in a runner: it must find there what it wrote last.
    pub(super) fn let_run(&mut self, id: Id, care: &mut Care, pod: Id) {
        self.check(Invariant::Intact);
        let written = care.written;
        let Some(runner) = care.runners.get_mut(&pod).filter(|runner| runner.alive) else { return };
        runner.guest = true;
        self.check_move(id, care);
        let Some(runner) = care.runners.get_mut(&pod) else { return };
        let (memory, disk) = (runner.memory, runner.disk);
        let disk = if care.disks { disk } else { written };
        if memory != written || disk != written {
            let what = if memory != written { "memory" } else { "disks" };
            let (name, pod) = (self.vm_name(id), self.pod_name(pod));
            let message = format!(
                "{name} continues in pod {pod} with {what} as of its write {}, and had written {written} times",
                memory.min(disk)
            );
            self.fail(Invariant::Intact, message);
        }
        if let Some(runner) = care.runners.get_mut(&pod) {
            runner.disk = written;
        }
        Self::writes(care, pod);
    }

    /// The other side died before the controller received the report that the guest ran there: what was written there is lost.
    /// The guest continues here in the state in which it left, or never again.
    pub(super) fn lose_unreported(&mut self, id: Id, care: &mut Care, here: Id) {
        let Some(runner) = care.runners.get(&here) else { return };
        let there = runner.partner.and_then(|pod| care.runners.get(&pod));
        let memory = runner.memory;
        if there.is_some_and(|there| !there.alive && !there.is_reported_running()) && memory < care.written {
            care.written = memory;
            self.note_vm(id, "what it wrote on the other side, unreported, is lost with that");
        }
    }

    fn pod_name(&self, pod: Id) -> String {
        self.pods.get(pod).map(|pod| pod.key.name.clone()).unwrap_or_default()
    }

    /// S3: where the guest runs.
    pub(super) fn check_move(&mut self, id: Id, care: &Care) {
        self.check(Invariant::OneGuest);
        let mut guests = care.runners.iter().filter(|(_, runner)| runner.guest).map(|(pod, _)| *pod);
        let (Some(one), Some(other)) = (guests.next(), guests.next()) else { return };
        let (one, other, name) = (self.pod_name(one), self.pod_name(other), self.vm_name(id));
        self.fail(Invariant::OneGuest, format!("the guest of {name} runs in pod {one} and in pod {other}"));
    }

    /// S8: a VM is released only when no runner migrates it any more.
    pub(super) fn check_let_go(&mut self, id: Id, care: &Care, before: &VirtualMachine) {
        self.check(Invariant::Intact);
        let (Some(was), Some(is)) = (&before.status, &care.now.vm.status) else { return };
        let Some(lock) = &was.migration else { return };
        let stays = is.pod_name == was.pod_name && is.phase.is_some_and(Stage::is_alive);
        if !stays || care.now.vm.metadata.deletion_timestamp.is_some() {
            return;
        }
        let Some(at) = care.pod_named(&is.pod_name) else { return };
        let busy = care.runners.get(&at).filter(|runner| runner.alive && runner.is_leaving());
        if busy.is_some_and(|runner| runner.is_in(&lock.uid, MigrationRole::Source)) {
            let message = format!("{} is let go while its runner still moves it", self.vm_name(id));
            self.fail(Invariant::Intact, message);
        }
    }

    /// S8: a migration with an ended status locks no VM.
    pub(super) fn check_end(&mut self, id: Id, care: &Care, object: &VirtualMachineMigration) {
        if !is_over(object) {
            return;
        }
        self.check(Invariant::Intact);
        let Some(status) = &object.status else { return };
        let of_vm = care.now.vm.status.as_ref();
        let lock = of_vm.and_then(|now| now.migration.as_ref());
        let holds = lock.is_some_and(|lock| Some(&lock.uid) == object.metadata.uid.as_ref());
        let name = self.vm_name(id);
        if holds && !care.now.gone {
            self.fail(Invariant::Intact, format!("a migration of {name} has ended and still holds it"));
        }
        let there = of_vm.is_some_and(|now| now.pod_name == status.target_pod_name);
        let left = care.now.pods.values().any(|view| {
            view.name == status.target_pod_name && view.deleting.is_none() && view.ended.is_none()
        });
        if status.phase == Some(MigrationPhase::Failed) && left && !there {
            self.fail(Invariant::Intact, format!("a migration of {name} has failed and its target lives"));
        }
        if status.reason.is_empty() {
            self.fail(Invariant::MigrationEnds, format!("a migration of {name} has ended without a reason"));
        }
    }

    /// Nothing of a VM may run when it is taken from the API server.
    pub(super) fn check_removed(&mut self, id: Id, care: &Care) {
        let lives = care.runners.values().any(|runner| runner.guest);
        if lives {
            let message = format!("{} is gone, and its guest runs", self.vm_name(id));
            self.fail(Invariant::OneGuest, message);
        }
    }

    /// L2: every migration ends, and those of the scheduler are deleted.
    pub(in crate::world) fn check_migrations(&mut self) {
        self.check(Invariant::MigrationEnds);
        let now = self.now;
        let bad = self.open.iter().chain(&self.ended).filter_map(|at| self.migrations.get(*at)).find(|one| {
            let old = now.saturating_sub(one.at) > MIGRATION;
            // A migration of a VM without a node waits until it has one.
            let pod = self.vms.get(one.vm).and_then(|vm| vm.pod);
            let waits = pod.is_some_and(|pod| self.waiting.contains(&pod));
            old && !waits && (!one.seen.ended || one.seen.ours)
        });
        if let Some(bad) = bad {
            let what = if bad.seen.ended { "has ended and is not deleted" } else { "does not end" };
            let object = self.cares.get(&bad.vm).and_then(|care| care.now.moves.get(&bad.name));
            let status = object.and_then(|object| object.status.as_ref());
            let state = status.map(|now| format!("{}: {}", now.reason, now.message)).unwrap_or_default();
            let message = format!(
                "migration of {}, begun at {}, {what}; {state}",
                bad.seen.vm,
                crate::world::notes::clock(bad.at)
            );
            self.fail(Invariant::MigrationEnds, message);
        }
    }

    /// L3: when all is calm.
    pub(in crate::world) fn check_settled(&mut self) {
        let young: std::collections::BTreeSet<Id> = self
            .migrations
            .iter()
            .filter(|one| self.now.saturating_sub(one.at) <= MIGRATION)
            .map(|one| one.vm)
            .collect();
        let mut live = std::collections::BTreeMap::<Id, Vec<Id>>::new();
        for (at, pod) in self.pods.iter().enumerate().filter(|(_, pod)| pod.alive) {
            if let Some(vm) = pod.vm {
                live.entry(vm).or_default().push(at);
            }
        }
        for id in (0..self.vms.len()).filter(|id| !young.contains(id)) {
            self.check(Invariant::Settled);
            let pods = live.remove(&id).unwrap_or_default();
            if let Some(what) = self.unsettled(id, &pods) {
                let name = self.vm_name(id);
                return self.fail(Invariant::Settled, format!("{name}: {what}"));
            }
        }
    }

    fn unsettled(&self, id: Id, pods: &[Id]) -> Option<String> {
        let vm = self.vms.get(id)?;
        let names = || pods.iter().map(|pod| self.pod_name(*pod)).collect::<Vec<_>>().join(", ");
        if vm.phase == Phase::Gone {
            if !pods.is_empty() {
                return Some(format!("is deleted, and pods are left: {}", names()));
            }
            return self.cares.get(&id).map(|_| "is deleted, and its object does not go".to_owned());
        }
        let one = pods.first().filter(|pod| pods.len() == 1 && vm.pod == Some(**pod));
        if one.is_none() {
            return Some(format!(
                "has one pod {:?}, and there are: {}",
                vm.pod.map(|pod| self.pod_name(pod)),
                names()
            ));
        }
        let waits = one.is_some_and(|pod| self.waiting.contains(pod));
        let bound_at = one.and_then(|pod| self.pods.get(*pod)).map(|pod| pod.bound_at).unwrap_or_default();
        // A pod that waited for room may get its node at any time, also just before the check.
        let starts = vm.phase == Phase::Pending && self.now.saturating_sub(bound_at) <= START;
        if vm.phase != Phase::Running && !waits && !starts {
            return Some(format!("does not run: it is {:?}", vm.phase));
        }
        let care = self.cares.get(&id)?;
        if waits || starts {
            return None;
        }
        if care.now.vm.status.as_ref().is_some_and(|status| status.migration.is_some()) {
            return Some("a migration holds it for ever".to_owned());
        }
        if care.runners.values().any(|runner| runner.alive && runner.open) {
            return Some("a port for moves is open".to_owned());
        }
        if care.runners.values().filter(|runner| runner.guest).count() != 1 {
            return Some("its guest runs nowhere".to_owned());
        }
        let moving = care.runners.values().any(|runner| runner.alive && !runner.is_at_rest());
        moving.then(|| "a runner still moves it".to_owned())
    }
}
