//! Migrations of VMs. As long as a VM has migrations it is handled by the real cores: those of the controller
//! ([`work`], [`machine`]), and those of both sides of a migration in its runners ([`ends`]). Around them there are an
//! API server with watches that lag, a link that breaks, and two QEMUs that only count what the guest has written
//! ([`qemu`]).

mod act;
mod audit;
mod calls;
mod ends;
mod faults;
mod kubelet;
mod machine;
mod objects;
mod orders;
mod pods;
mod qemu;
mod runner;
pub(super) mod step;
mod sync;
mod work;

use std::rc::Rc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use neonvm_api::migration::MigrationPhase;
use neonvm_api::{VirtualMachineMigration, VirtualMachineMigrationSpec};
use neonvm_core_migration::phases::is_over;
use neonvm_core_migration::source;
use neonvm_core_scheduling::permits::{MigrationSeen, WantedMigration};
use neonvm_core_vm_lifecycle::Settings;
use neonvm_types::NamespacedName;
use neonvm_types::runner_protocol::PostCopy;

use super::World;
use super::event::Event;
use super::model::{Id, Migration, Phase};
use super::notes::Line;
use crate::queue::{SECOND, Time};
use crate::{Fault, Invariant};

use objects::Kind;
pub(super) use objects::{Care, uid_of};
use step::Step;

/// How long a target may wait for a node and start.
const PREPARE: i64 = 60;
/// Default time limit of a migration, in seconds.
const COMPLETION: i32 = 180;

#[derive(Debug)]
pub(crate) struct Controller {
    up: bool,
    outage_until: Time,
    started: Time,
    pub(super) settings: Settings,
}

impl Controller {
    pub(super) fn new() -> Self {
        let mut settings = Settings::default();
        settings.migration.prepare_timeout = PREPARE;
        Self { up: true, outage_until: 0, started: 0, settings }
    }
}

impl World {
    /// Works on a VM's objects with the rest of the world at hand.
    fn with_care<T>(&mut self, id: Id, work: impl FnOnce(&mut Self, &mut Care) -> T) -> Option<T> {
        let mut care = self.cares.remove(&id)?;
        let result = work(self, &mut care);
        self.cares.insert(id, care);
        Some(result)
    }

    fn later(&mut self, id: Id, wait: Time, step: Step) {
        self.after(wait, Event::Move { vm: id, step: Box::new(step) });
    }

    /// A time between the two, in milliseconds, for events of migrations.
    fn lapse(&mut self, low: u64, high: u64) -> Time {
        self.rngs.moves.between(low * crate::queue::MILLI, high * crate::queue::MILLI)
    }

    fn note_vm(&mut self, id: Id, what: impl Into<String>) {
        self.note(Line::VmText(id, what.into()));
    }

    /// Whether a fault of migrations happens now.
    fn goes_wrong(&mut self, fault: Fault, probability: f64) -> bool {
        let happens = self.faults_on && self.faults.has(fault) && self.rngs.moves.chance(probability);
        self.stats.faults += u64::from(happens);
        happens
    }

    /// An event of a VM in migration happens.
    pub(super) fn moves(&mut self, id: Id, step: Step) {
        self.with_care(id, |world, care| {
            world.do_step(id, care, step);
            world.check_move(id, care);
        });
        self.leave_alone(id);
    }

    fn do_step(&mut self, id: Id, care: &mut Care, step: Step) {
        match step {
            Step::Seen(kind) => self.seen(id, care, kind),
            Step::Report { pod } => self.report_arrives(id, care, pod),
            Step::Linked { pod } => self.linked(id, care, pod),
            Step::Starts { pod } => self.starts(id, care, pod),
            Step::Source { pod, tag, event } => {
                if care.runners.get(&pod).is_some_and(|runner| runner.tag == tag) {
                    let _ = self.source(id, care, pod, event);
                }
            }
            Step::Target { pod, event } => drop(self.target(id, care, pod, event)),
            Step::Words { pod, phase, words } => self.words(id, care, pod, (phase, words)),
            Step::Pass { pod, pass } => {
                if care.runners.get(&pod).is_some_and(runner::Runner::is_source) {
                    let _ = self.source(id, care, pod, source::Event::Pass(pass));
                }
            }
            Step::Timer { pod, at } => self.timer(id, care, pod, at),
            Step::Qemu { pod, epoch } => self.qemu(id, care, pod, epoch),
            Step::Order { from, tag, order, until } => {
                self.order_arrives(id, care, from, (tag, order, until));
            }
            Step::Running { from, tag, until } => self.answer_run(id, care, from, (tag, until)),
            Step::Cleaned { pod, tag } => self.cleaned(id, care, pod, tag),
            Step::Continue { pod } => self.continues(id, care, pod),
            Step::Call { pod, call, sent } => self.late_call(id, care, pod, (&call, sent)),
            Step::Stop { pod } => self.stop(id, care, pod),
            Step::Kill { pod } => self.kill(id, care, pod),
            Step::Kubelet { pod } => self.kubelet(id, care, pod),
            Step::Ends { pod, exit } => self.pod_has_ended(id, care, pod, exit),
            Step::Goes { pod } => self.pod_goes(id, care, pod),
            Step::Inject { pod, fault, length } => self.inject_move(id, care, pod, (fault, length)),
            Step::Tidy { name } => self.delete_move(id, care, &name, false),
        }
    }

    /// A VM that has nothing to do with migrations any more is looked after in the short way.
    fn leave_alone(&mut self, id: Id) {
        let rests = self
            .cares
            .get(&id)
            .is_some_and(|care| care.is_at_rest() && care.dirty == [false; 3] && care.due.is_none());
        let phase = self.vms.get(id).map(|vm| vm.phase);
        if rests && matches!(phase, Some(Phase::Running | Phase::Gone)) {
            self.cares.remove(&id);
            if phase == Some(Phase::Gone) {
                self.give_back_address(id);
            }
        }
    }

    /// The scheduler makes a migration.
    pub(super) fn create_migration(&mut self, wanted: &WantedMigration) -> bool {
        let Some(source) = self.keys.get(&wanted.pod).copied() else { return false };
        let Some(pod) = self.pods.get(source).filter(|pod| pod.alive && pod.uid == wanted.pod_uid) else {
            return false;
        };
        let Some(id) = pod.vm else { return false };
        let spec = VirtualMachineMigrationSpec::new(&wanted.vm);
        self.make_migration(id, wanted.name(), spec, true)
    }

    /// A user migrates a VM.
    pub(super) fn person_moves(&mut self, id: Id) {
        let Some(vm) = self.vms.get(id).filter(|vm| vm.phase != Phase::Gone) else { return };
        let mut spec = VirtualMachineMigrationSpec::new(&vm.name);
        let draw = self.rngs.moves.below(8);
        spec.tuning.post_copy = match draw {
            0 => Some(PostCopy::AfterFirstPass),
            1 => Some(PostCopy::OnTimeout),
            _ => None,
        };
        spec.priority = i32::try_from(self.rngs.moves.below(3)).unwrap_or(0);
        self.uids += 1;
        let name = format!("move-{}", self.uids);
        self.make_migration(id, name, spec, false);
    }

    /// Whether there is one now.
    fn make_migration(
        &mut self,
        id: Id,
        name: String,
        mut spec: VirtualMachineMigrationSpec,
        ours: bool,
    ) -> bool {
        if !self.take_care(id) {
            return false;
        }
        self.uids += 1;
        let uid = format!("m{}", self.uids);
        let takes = super::micros(self.settings.migration_takes);
        let patience = i32::try_from(takes * 6 / SECOND).unwrap_or(i32::MAX);
        spec.completion_timeout = patience.max(COMPLETION);
        let key = NamespacedName::new("default", name.clone());
        let mut made = VirtualMachineMigration::new(&name, spec);
        made.metadata.namespace = Some("default".to_owned());
        made.metadata.uid = Some(uid.clone());
        made.metadata.generation = Some(1);
        let new = self.with_care(id, |world, care| {
            if care.now.gone || care.now.moves.contains_key(&name) {
                return false;
            }
            care.now.moves.insert(name.clone(), Rc::new(made));
            world.touch(id, care, Kind::Moves);
            true
        });
        if new != Some(true) {
            return false;
        }
        let vm = self.vm_name(id);
        let (pending, ended, deleting) = (true, false, false);
        let seen = MigrationSeen { migration: key, uid, vm, ours, pending, placed: false, ended, deleting };
        let source = self.vms.get(id).and_then(|vm| vm.pod);
        let node = source.and_then(|pod| self.pods.get(pod)?.node);
        let migration = self.migrations.len();
        self.migrations.push(Migration {
            seen,
            vm: id,
            name,
            source,
            node,
            at: self.now,
            gone: false,
            dirty: [false; 2],
        });
        self.open.insert(migration);
        if ours {
            self.check_leaving(node);
        }
        self.note_vm(id, if ours { "the scheduler wants it moved" } else { "a person wants it moved" });
        self.touch_migration(migration);
        true
    }

    /// The objects of a VM, made if there are none yet.
    fn take_care(&mut self, id: Id) -> bool {
        let Some(vm) = self.vms.get(id) else { return false };
        if self.cares.contains_key(&id) {
            return true;
        }
        if vm.phase != Phase::Running {
            return false;
        }
        let Some(at) = vm.pod else { return false };
        let Some(pod) = self.pods.get(at).filter(|pod| pod.alive && !pod.ended) else { return false };
        let Some(node) = pod.node.and_then(|node| self.nodes.get(node)) else { return false };
        let mut care =
            Care::new(id, vm, (at, pod), &node.name, self.settings.slot, &self.controller.settings);
        care.disks = self.rngs.moves.chance(0.5);
        self.cares.insert(id, Box::new(care));
        true
    }

    /// S4: no more leave a node at once, for the scheduler, than it may begin.
    fn check_leaving(&mut self, at: Option<Id>) {
        let Some(name) = at.and_then(|at| self.nodes.get(at)).map(|node| node.name.clone()) else { return };
        let leaving = self.open.iter().filter_map(|at| self.migrations.get(*at)).filter(|one| {
            let pod = one.source.and_then(|pod| self.pods.get(pod));
            let here = self.vms.get(one.vm).is_some_and(|vm| vm.pod == one.source);
            let there = here && pod.is_some_and(|pod| pod.alive && !pod.ended);
            one.seen.ours && one.node == at && there
        });
        let leaving = leaving.count();
        self.check(Invariant::OneMigration);
        // A scheduler that took over may not have received one that another created a moment before, and a third may take over
        // before that one is visible.
        let limit = usize::try_from(self.stats.scheduler_starts).unwrap_or(usize::MAX).clamp(1, 3);
        if leaving > limit {
            let message = format!("the scheduler moves {leaving} VMs off {name} at once, limit {limit}");
            self.fail(Invariant::OneMigration, message);
        }
    }

    /// The migration as others see it, brought up to date.
    fn show_migration(&mut self, id: Id, care: &Care, name: &str) {
        let open = self.open.iter().chain(&self.ended).copied();
        let mut found = open.filter(|at| {
            self.migrations.get(*at).is_some_and(|one| one.vm == id && one.name == name && !one.gone)
        });
        let Some(at) = found.next() else { return };
        let object = care.now.moves.get(name);
        let ended = object.is_none_or(|object| is_over(object));
        let deleting = object.is_none_or(|object| object.metadata.deletion_timestamp.is_some());
        let phase = object.and_then(|object| object.status.as_ref()?.phase);
        let pending = matches!(phase, None | Some(MigrationPhase::Pending));
        let placed = object
            .and_then(|object| object.status.as_ref())
            .is_some_and(|status| !status.target_node.is_empty());
        let Some(migration) = self.migrations.get_mut(at) else { return };
        let seen = &mut migration.seen;
        let before = (seen.ended, seen.deleting, migration.gone, (seen.pending, seen.placed));
        (seen.ended, seen.deleting, migration.gone, (seen.pending, seen.placed)) =
            (ended, deleting, object.is_none(), (pending, placed));
        let (ours, gone) = (migration.seen.ours, migration.gone);
        if before == (ended, deleting, gone, (pending, placed)) {
            return;
        }
        if ended && !before.0 {
            self.open.remove(&at);
            self.ended.insert(at);
            if !ours && !gone {
                let wait = self.rngs.people.between(5 * SECOND, 60 * SECOND);
                self.later(id, wait, Step::Tidy { name: name.to_owned() });
            }
        }
        if gone {
            self.ended.remove(&at);
        }
        self.touch_migration(at);
    }

    /// The scheduler deletes a migration that has ended, or that waits for a VM that has left.
    pub(super) fn delete_migration(&mut self, uid: &str) -> bool {
        let mut all = self.ended.iter().chain(&self.open).filter_map(|at| self.migrations.get(*at));
        let Some(found) = all.find(|one| one.seen.uid == uid) else { return true };
        let (id, name) = (found.vm, found.name.clone());
        self.with_care(id, |world, care| world.delete_move(id, care, &name, false));
        true
    }

    /// A user deletes a migration; `by_force`: without finalizers, so that the controller cannot clean up.
    fn delete_move(&mut self, id: Id, care: &mut Care, name: &str, by_force: bool) {
        let Some(object) = care.now.moves.get_mut(name) else { return };
        let object = Rc::make_mut(object);
        object.metadata.deletion_timestamp = Some(MetaTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        if by_force {
            object.metadata.finalizers = None;
        }
        self.collect(id, care, name);
    }

    /// Removes a migration that is deleted and has no finalizers.
    fn collect(&mut self, id: Id, care: &mut Care, name: &str) {
        let gone = care.now.moves.get(name).is_some_and(|object| {
            let meta = &object.metadata;
            meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        });
        if gone {
            care.now.moves.remove(name);
        }
        self.touch(id, care, Kind::Moves);
        self.show_migration(id, care, name);
    }

    /// A user cancels a migration, deletes it, or removes it by force.
    pub(super) fn person_cancels(&mut self) {
        let open: Vec<Id> = self.open.iter().copied().collect();
        let Some(at) = self.rngs.people.pick(&open).copied() else { return };
        let Some(migration) = self.migrations.get(at) else { return };
        let (id, name) = (migration.vm, migration.name.clone());
        let draw = self.rngs.people.below(4);
        let what = match draw {
            0 => "its migration is removed by force",
            1 => "its migration is deleted",
            _ => "its migration is to be cancelled",
        };
        self.note_vm(id, what);
        self.with_care(id, |world, care| match draw {
            0 | 1 => world.delete_move(id, care, &name, draw == 0),
            _ => {
                if let Some(object) = care.now.moves.get_mut(&name) {
                    Rc::make_mut(object).spec.cancel = true;
                }
                world.touch(id, care, Kind::Moves);
            }
        });
    }
}
