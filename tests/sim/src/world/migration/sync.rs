//! What the API server has is shown: to the controller by watches that lag, and to the rest of the world.

use std::rc::Rc;

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase as Stage;
use neonvm_core_scheduling::permits::MigrationRole;
use neonvm_types::Resources;

use super::objects::{Care, Kind, set_use};
use super::{Step, World};
use crate::queue::Time;
use crate::world::event::Event;
use crate::world::model::{Id, Phase};
use crate::world::notes::Line;
use crate::{Fault, Invariant};

impl World {
    /// Something has changed: the controller will see it.
    pub(super) fn touch(&mut self, id: Id, care: &mut Care, kind: Kind) {
        let Some(dirty) = care.dirty.get_mut(kind as usize) else { return };
        if !std::mem::replace(dirty, true) {
            let lag = if self.goes_wrong(Fault::WatchLag, 0.05) { self.lapse(500, 10_000) } else { 0 };
            let wait = self.lapse(1, 15) + lag;
            self.later(id, wait, Step::Seen(kind));
        }
    }

    /// A watch shows what is there now.
    pub(super) fn seen(&mut self, id: Id, care: &mut Care, kind: Kind) {
        if let Some(dirty) = care.dirty.get_mut(kind as usize) {
            *dirty = false;
        }
        if !self.controller.up {
            return;
        }
        match kind {
            Kind::Vm => {
                care.seen.vm = Rc::clone(&care.now.vm);
                care.seen.gone = care.now.gone;
            }
            Kind::Moves => care.seen.moves.clone_from(&care.now.moves),
            Kind::Pods => {
                care.seen.pods.clone_from(&care.now.pods);
                self.link_all(id, care);
            }
        }
        let wait = self.lapse(1, 10);
        self.look_soon(id, care, wait);
    }

    /// The controller reconciles a VM, soon.
    pub(super) fn look_soon(&mut self, id: Id, care: &mut Care, wait: Time) {
        let at = self.now + wait;
        if care.due.is_none_or(|due| due > at) {
            care.due = Some(at);
            self.after(wait, Event::Reconcile { vm: id, at });
        }
    }

    /// All is read from the API server itself.
    pub(super) fn refresh(&mut self, id: Id, care: &mut Care) {
        care.seen = care.now.clone();
        self.link_all(id, care);
    }

    /// The VM has another status: the world follows.
    pub(super) fn put_vm(&mut self, id: Id, care: &mut Care, vm: VirtualMachine) {
        let before = std::mem::replace(&mut care.now.vm, Rc::new(vm));
        self.touch(id, care, Kind::Vm);
        let locked = |vm: &VirtualMachine| vm.status.as_ref().is_some_and(|now| now.migration.is_some());
        if locked(&before) && !locked(&care.now.vm) {
            self.check_let_go(id, care, &before);
        }
        if locked(&care.now.vm) {
            self.locked.insert(id);
        } else {
            self.locked.remove(&id);
        }
        self.follow(id, care);
        if !locked(&before) && locked(&care.now.vm) {
            self.check_locks(id);
        }
        if locked(&before) != locked(&care.now.vm) {
            self.wake_line(id);
        }
    }

    /// Updates the simulated machine from its status.
    fn follow(&mut self, id: Id, care: &mut Care) {
        let Some(status) = care.now.vm.status.as_ref() else { return };
        let at = care.pod_named(&status.pod_name);
        let to = status.migration.as_ref().and_then(|lock| care.pod_named(&lock.target_pod_name));
        let (stage, locked, held) = (status.phase, status.migration.is_some(), status.size_is_held());
        let Some(vm) = self.vms.get(id).filter(|vm| vm.phase != Phase::Gone) else { return };
        let (phase, pod) = (vm.phase, vm.pod);
        let alive = stage.is_some_and(Stage::is_alive);
        match (alive, locked && held) {
            (true, true) if phase == Phase::Running => {
                self.moves_off(id, to);
            }
            (true, false) if phase != Phase::Running || (at.is_some() && at != pod) => {
                self.goes_on(id, at);
            }
            (true, _) => {}
            (false, _) => {
                self.waits(id, at);
            }
        }
        if alive
            && locked
            && let Some(vm) = self.vms.get_mut(id)
        {
            vm.target = to;
        }
    }

    /// A migration to that pod has it from now on.
    fn moves_off(&mut self, id: Id, to: Option<Id>) {
        self.account(id);
        self.stats.migrations_started += 1;
        if let Some(vm) = self.vms.get_mut(id) {
            (vm.phase, vm.target) = (Phase::Migrating, to);
        }
        self.note(Line::Vm(id, "a migration has it"));
        self.show(id);
    }

    /// It runs, in the pod it was in or in another one.
    fn goes_on(&mut self, id: Id, at: Option<Id>) {
        self.account(id);
        let now = self.now;
        let Some(vm) = self.vms.get_mut(id) else { return };
        let (from, before) = (vm.pod, vm.phase);
        let moved = at.is_some() && at != from;
        vm.phase = Phase::Running;
        vm.target = None;
        vm.pod = at.or(from);
        if moved || before == Phase::Pending {
            vm.there_since = now;
        }
        if before == Phase::Migrating {
            self.stats.migrations_succeeded += u64::from(moved);
            self.stats.migrations_failed += u64::from(!moved);
            self.note(Line::Vm(id, if moved { "it has moved" } else { "it stays, no migration has it" }));
        }
        if moved {
            self.detach(id);
        }
        for pod in [from, at].into_iter().flatten() {
            self.recount(pod);
            self.touch_pod(pod);
        }
        self.show(id);
        self.control_soon(id);
        let wait = self.latency(20, 300);
        self.after(wait, Event::Attach(id));
    }

    /// It does not run.
    fn waits(&mut self, id: Id, at: Option<Id>) {
        let Some(vm) = self.vms.get_mut(id) else { return };
        let changed = vm.phase != Phase::Pending || vm.pod != at;
        let had = vm.phase == Phase::Migrating;
        if !changed {
            return;
        }
        self.account(id);
        let Some(vm) = self.vms.get_mut(id) else { return };
        let ran = vm.phase != Phase::Pending;
        let from = std::mem::replace(&mut vm.pod, at);
        (vm.phase, vm.target) = (Phase::Pending, None);
        if ran {
            vm.has = Resources::default();
            vm.observed = None;
            vm.mem_epoch += 1;
            self.stats.migrations_failed += u64::from(had);
            self.note(Line::Vm(id, "it has ended, and is started again"));
            self.detach(id);
            self.show(id);
        }
        for pod in [from, at].into_iter().flatten() {
            self.recount(pod);
        }
    }

    /// The spec requests another size.
    pub(in crate::world) fn spec_changes(&mut self, id: Id) {
        let slot = self.settings.slot;
        let Some(asked) = self.vms.get(id).map(|vm| (vm.asked, vm.generation)) else { return };
        self.with_care(id, |world, care| {
            let vm = Rc::make_mut(&mut care.now.vm);
            set_use(vm, asked.0, slot);
            vm.metadata.generation = Some(asked.1);
            world.touch(id, care, Kind::Vm);
        });
    }

    /// The VM is deleted: its finalizer keeps it until nothing of it runs.
    pub(in crate::world) fn delete_machine(&mut self, id: Id) -> bool {
        let deleted = self.with_care(id, |world, care| {
            Rc::make_mut(&mut care.now.vm).metadata.deletion_timestamp =
                Some(super::MetaTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
            world.touch(id, care, Kind::Vm);
        });
        deleted.is_some()
    }

    /// Derives the pod's role in a migration from its owners.
    pub(super) fn follow_owners(&mut self, care: &Care, pod: Id) {
        let role = care.now.pods.get(&pod).and_then(|view| {
            let uid = view.migrations.first()?;
            let target = view.controller == *uid;
            Some((if target { MigrationRole::Target } else { MigrationRole::Source }, uid.clone()))
        });
        let Some(entry) = self.pods.get_mut(pod) else { return };
        if entry.role != role {
            entry.role = role;
            self.touch_pod(pod);
        }
    }

    /// S4: machines that migrations have, for each node and in all.
    fn check_locks(&mut self, id: Id) {
        self.check(Invariant::OneMigration);
        let limits = &self.controller.settings.migration;
        let (cluster, outbound) = (limits.cluster, limits.outbound);
        let node = |world: &Self, vm: Id| world.vms.get(vm).and_then(|vm| world.pods.get(vm.pod?)?.node);
        let own = node(self, id);
        let all = self.locked.len();
        let here = self.locked.iter().filter(|vm| node(self, **vm) == own).count();
        if all > cluster || here > outbound {
            let name = self.vm_name(id);
            let message = format!(
                "{name} begins to move as number {all} in all, {here} from its node; at most {cluster} and {outbound}"
            );
            self.fail(Invariant::OneMigration, message);
        }
    }

    /// Others may be admitted now.
    pub(super) fn wake_line(&mut self, id: Id) {
        let others: std::collections::BTreeSet<Id> =
            self.open.iter().filter_map(|at| self.migrations.get(*at)).map(|one| one.vm).collect();
        for vm in others.into_iter().filter(|vm| *vm != id) {
            self.with_care(vm, |world, care| {
                let wait = world.lapse(1, 10);
                world.look_soon(vm, care, wait);
            });
        }
    }
}
