//! Live migrations, as the scheduler asks for them: a second pod, placed like any other; then the machine is there.

use neonvm_core_placement::permits::{MigrationRole, MigrationSeen, WantedMigration};
use neonvm_types::NamespacedName;

use super::model::{Event, Id, Migration, Phase};
use super::notes::Line;
use super::{World, micros};
use crate::Invariant;
use crate::queue::{MILLI, SECOND, Time};

/// How long a target may wait for a node.
const UNPLACED: Time = 60 * SECOND;

impl World {
    /// The scheduler makes a migration.
    pub(super) fn create_migration(&mut self, wanted: &WantedMigration) -> bool {
        let Some(source) = self.keys.get(&wanted.pod).copied() else { return false };
        let Some(pod) = self.pods.get(source).filter(|pod| pod.alive && pod.uid == wanted.pod_uid) else {
            return false;
        };
        let (Some(at), node) = (pod.vm, pod.node) else { return false };
        let movable = self.vms.get(at).is_some_and(|vm| vm.phase == Phase::Running && vm.pod == Some(source));
        if !movable {
            return false;
        }
        self.check(Invariant::OneMigration);
        if self.vms.get(at).is_some_and(|vm| vm.target.is_some()) {
            let name = self.vm_name(at);
            self.fail(Invariant::OneMigration, format!("{name} is moved twice at the same time"));
        }
        self.uids += 1;
        let uid = format!("m{}", self.uids);
        let usage = self.vms.get(at).map_or_else(Default::default, |vm| vm.has.max(vm.asked));
        let target = self.make_pod(Some(at), usage);
        let seen = MigrationSeen {
            migration: NamespacedName::new("default", wanted.name()),
            uid: uid.clone(),
            vm: wanted.vm.clone(),
            ours: true,
            ended: false,
            deleting: false,
        };
        let id = self.migrations.len();
        let entry =
            Migration { seen, vm: at, source, target, node, at: self.now, gone: false, dirty: [false; 2] };
        self.migrations.push(entry);
        for (pod, role) in [(source, MigrationRole::Source), (target, MigrationRole::Target)] {
            if let Some(pod) = self.pods.get_mut(pod) {
                pod.role = Some((role, uid.clone()));
            }
        }
        if let Some(vm) = self.vms.get_mut(at) {
            (vm.target, vm.phase) = (Some(target), Phase::Migrating);
        }
        self.count_leaving(node, 1);
        self.stats.migrations_started += 1;
        self.note(Line::Vm(at, "a migration begins"));
        self.waiting.insert(target);
        self.touch_pod(source);
        self.touch_pod(target);
        self.touch_migration(id);
        self.show(at);
        self.after(UNPLACED, Event::MigrationStep(id));
        true
    }

    fn count_leaving(&mut self, node: Option<Id>, change: i32) {
        let Some(at) = node else { return };
        let Some(node) = self.nodes.get_mut(at) else { return };
        node.leaving = node.leaving.saturating_add_signed(change);
        let (leaving, name) = (node.leaving, node.name.clone());
        self.check(Invariant::OneMigration);
        // A scheduler that took over may not have heard of one that another began a moment before.
        let limit = if self.stats.scheduler_starts > 1 { 2 } else { 1 };
        if leaving > limit {
            self.fail(Invariant::OneMigration, format!("{leaving} VMs leave {name} at once, limit {limit}"));
        }
    }

    /// The target has a node: the copy begins.
    pub(super) fn target_bound(&mut self, uid: &str) {
        let Some(id) = self.migrations.iter().rposition(|one| one.seen.uid == uid) else { return };
        let takes = micros(self.settings.migration_takes);
        let wait = self.rngs.people.between(takes / 3, takes * 2) + 500 * MILLI;
        self.after(wait, Event::MigrationStep(id));
    }

    /// A migration has had its time: it succeeds if its target has a node.
    pub(super) fn migration_step(&mut self, id: Id) {
        let Some(migration) = self.migrations.get(id) else { return };
        if migration.seen.ended || migration.gone {
            return;
        }
        let (at, source, target, begun) = (migration.vm, migration.source, migration.target, migration.at);
        let placed = self.pods.get(target).is_some_and(|pod| pod.alive && pod.node.is_some());
        let alive =
            self.vms.get(at).is_some_and(|vm| vm.phase == Phase::Migrating && vm.target == Some(target));
        if !alive {
            return self.migration_ends(id);
        }
        if placed && self.now >= begun + UNPLACED && self.now < begun + 2 * UNPLACED {
            // It may be copying still; the step of the copy decides.
            return self.after(2 * UNPLACED, Event::MigrationStep(id));
        }
        let (stays, goes) = if placed { (target, source) } else { (source, target) };
        self.account(at);
        let now = self.now;
        let Some(vm) = self.vms.get_mut(at) else { return };
        vm.there_since = now;
        vm.pod = Some(stays);
        vm.target = None;
        vm.phase = Phase::Running;
        self.stats.migrations_succeeded += u64::from(placed);
        self.stats.migrations_failed += u64::from(!placed);
        let what = if placed { "a migration has succeeded" } else { "a migration has failed" };
        self.note(Line::Vm(at, what));
        if placed {
            self.detach(at);
            if let Some(vm) = self.vms.get_mut(at) {
                vm.guest.connection = None;
            }
            self.pod_removed(goes);
            if let Some(pod) = self.pods.get_mut(stays) {
                pod.role = None;
            }
        } else {
            self.pod_removed(goes);
            if let Some(pod) = self.pods.get_mut(stays) {
                pod.role = None;
            }
        }
        self.recount(stays);
        self.touch_pod(stays);
        self.migration_ends(id);
        self.show(at);
        self.control_soon(at);
        let wait = self.latency(20, 300);
        self.after(wait, Event::Attach(at));
    }

    /// The migration has ended, either way.
    pub(super) fn migration_ends(&mut self, id: Id) {
        let Some(migration) = self.migrations.get_mut(id).filter(|one| !one.seen.ended) else { return };
        migration.seen.ended = true;
        let node = migration.node;
        self.count_leaving(node, -1);
        self.touch_migration(id);
    }

    /// The scheduler deletes a migration that has ended.
    pub(super) fn delete_migration(&mut self, uid: &str) -> bool {
        let Some(id) = self.migrations.iter().rposition(|one| one.seen.uid == uid) else { return true };
        if let Some(migration) = self.migrations.get_mut(id) {
            migration.gone = true;
        }
        self.touch_migration(id);
        true
    }
}
