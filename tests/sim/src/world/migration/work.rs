//! The controller at work on the migrations of a VM.

use std::rc::Rc;

use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::MigrationPhase;
use neonvm_core_migration::phases::queue::{Active, Admission, Waiting, admit, ordered};
use neonvm_core_migration::phases::{
    self, MigrationAction, MigrationObserved, MigrationOutcome, is_over, is_waiting, ready,
};

use super::World;
use super::machine::{Failed, STEPS, Turn};
use super::objects::{Care, Kind, stamp};
use crate::Bug;
use crate::world::model::Id;

impl World {
    pub(super) fn work_on_moves(&mut self, id: Id, care: &mut Care) -> Turn {
        let names: Vec<String> = care.seen.moves.keys().cloned().collect();
        let mut result = Turn::Done(None);
        for name in names {
            let one = self.work_on_move(id, care, &name);
            result = match (result, one) {
                (Turn::Done(a), Turn::Done(b)) => Turn::Done(a.into_iter().chain(b).min()),
                _ => Turn::Failed,
            };
        }
        result
    }

    fn work_on_move(&mut self, id: Id, care: &mut Care, name: &str) -> Turn {
        let (mut fresh, mut done) = (false, Vec::<MigrationAction>::new());
        for _ in 0..STEPS {
            let Some(now) = stamp(self.now) else { return Turn::Failed };
            let Some(object) = care.seen.moves.get(name).cloned() else { return Turn::Done(None) };
            let outcome = {
                let observed = self.observe_move(id, care, &object, fresh);
                phases::step(now, &object, &observed, &self.controller.settings)
            };
            if outcome.actions == [MigrationAction::Refresh] {
                if fresh || self.now < self.controller.outage_until {
                    return Turn::Failed;
                }
                self.refresh(id, care);
                fresh = true;
                continue;
            }
            let before = object.status.clone().unwrap_or_default();
            let todo: Vec<MigrationAction> =
                outcome.actions.iter().filter(|action| !done.contains(action)).cloned().collect();
            if outcome.status == before && todo.is_empty() {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                if let Some(state) = care.key_states.of.get_mut(&uid) {
                    state.failure = None;
                }
                return Turn::Done(outcome.wake_at);
            }
            match self.carry_out(id, care, name, (&object, &outcome, todo, &mut done)) {
                Ok(()) => {}
                Err(Failed::Conflict) if !fresh => {
                    self.refresh(id, care);
                    fresh = true;
                }
                Err(_) => return Turn::Failed,
            }
        }
        self.restless(id);
        Turn::Failed
    }

    fn carry_out(
        &mut self,
        id: Id,
        care: &mut Care,
        name: &str,
        (object, outcome, todo, done): (
            &Rc<VirtualMachineMigration>,
            &MigrationOutcome,
            Vec<MigrationAction>,
            &mut Vec<MigrationAction>,
        ),
    ) -> Result<(), Failed> {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        // The VM's own reconcile acts on the decision.
        let soon = self.lapse(1, 5);
        if Some(&outcome.status) != object.status.as_ref() {
            self.write_move(id, care, name, outcome)?;
            self.look_soon(id, care, soon);
        }
        for action in todo {
            match self.act_on_move(id, care, name, &action) {
                Ok(()) => done.push(action),
                Err(failed) => {
                    if let Failed::Failure(failure) = &failed {
                        care.key_states.of.entry(uid).or_default().failure = Some(failure.clone());
                    }
                    return Err(failed);
                }
            }
            self.look_soon(id, care, soon);
        }
        if let Some(state) = care.key_states.of.get_mut(&uid) {
            state.failure = None;
        }
        Ok(())
    }

    /// A write of a migration's status, if its version is still the one that was read.
    fn write_move(
        &mut self,
        id: Id,
        care: &mut Care,
        name: &str,
        outcome: &MigrationOutcome,
    ) -> Result<(), Failed> {
        self.spend()?;
        let (Some(now), Some(seen)) = (care.now.moves.get(name), care.seen.moves.get(name)) else {
            return Err(Failed::Conflict);
        };
        if !Rc::ptr_eq(now, seen) {
            return Err(Failed::Conflict);
        }
        let phase = |object: &VirtualMachineMigration| object.status.as_ref().and_then(|now| now.phase);
        let before = phase(now);
        let mut object = (**now).clone();
        object.status = Some(outcome.status.clone());
        self.check_end(id, care, &object);
        let changed = phase(&object) != before;
        let object = Rc::new(object);
        care.now.moves.insert(name.to_owned(), Rc::clone(&object));
        self.touch(id, care, Kind::Moves);
        if is_over(&object) {
            let status = &outcome.status;
            let text = format!("its migration has ended: {}, {}", status.reason, status.message);
            self.note_vm(id, text);
        }
        self.show_migration(id, care, name);
        if changed {
            self.wake_line(id);
        }
        if self.goes_wrong(crate::Fault::LostReply, 0.01) {
            return Err(Failed::Lost);
        }
        care.seen.moves.insert(name.to_owned(), object);
        Ok(())
    }

    fn observe_move<'a>(
        &self,
        id: Id,
        care: &'a Care,
        object: &VirtualMachineMigration,
        fresh: bool,
    ) -> MigrationObserved<'a> {
        let vm = &care.seen.vm;
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let (status, of_vm) = (object.status.as_ref(), vm.status.as_ref());
        let lock = of_vm.and_then(|now| now.migration.as_ref()).filter(|lock| lock.uid == uid);
        fn first<'n>(own: Option<&'n String>, other: Option<&'n String>) -> &'n str {
            own.filter(|name| !name.is_empty()).or(other).map_or("", String::as_str)
        }
        let source = first(status.map(|now| &now.source_pod_name), of_vm.map(|now| &now.pod_name));
        let target = first(status.map(|now| &now.target_pod_name), lock.map(|lock| &lock.target_pod_name));
        let (source, source_runner) = self.observe_pod(care, source);
        let (target, target_runner) = self.observe_pod(care, target);
        let admission = if is_waiting(object, lock.is_some()) {
            self.admission(id, care, uid)
        } else {
            Admission::Wait(String::new())
        };
        let node = target.as_ref().map(|pod| pod.node.as_str()).unwrap_or_default();
        let inbound = if node.is_empty() { 0 } else { self.inbound(care, uid, node) };
        let state = care.key_states.of.get(uid).cloned().unwrap_or_default();
        MigrationObserved {
            claims: Vec::new(),
            fresh,
            vm: Some(&**vm).filter(|_| !care.seen.gone),
            source,
            source_runner,
            target,
            target_runner,
            policies: Vec::new(),
            admission,
            cordoned: false,
            inbound,
            held_up: 0,
            unknown_at_source: state.unknown_at_source,
            failure: state.failure,
            suffix: self.suffix(id),
        }
    }

    /// Every migration that has not ended, with the objects of its VM.
    fn line<'a>(
        &'a self,
        id: Id,
        own: &'a Care,
    ) -> impl Iterator<Item = (u64, &'a Care, &'a Rc<VirtualMachineMigration>)> {
        let all = self.open.iter().filter_map(|at| self.migrations.get(*at));
        all.filter_map(move |one| {
            let care = if one.vm == id { own } else { self.cares.get(&one.vm)? };
            Some((one.at, care, care.seen.moves.get(&one.name)?))
        })
    }

    fn admission(&self, id: Id, own: &Care, uid: &str) -> Admission {
        if self.bug(Bug::QueueIgnored) {
            return Admission::Go;
        }
        let (mut waiting, mut active) = (Vec::new(), Vec::new());
        for vm in &self.locked {
            // Migrations are reconciled one by one, and each reads the writes of those before it, whatever watches have
            // brought.
            let status = if *vm == id {
                own.seen.vm.status.as_ref()
            } else {
                self.cares.get(vm).and_then(|care| care.now.vm.status.as_ref())
            };
            active.extend(status.filter(|now| now.migration.is_some()).map(|now| self.leaves(&now.node)));
        }
        for (at, care, object) in self.line(id, own) {
            let is_own = std::ptr::eq(care, own);
            let vm = if is_own { &care.seen.vm } else { &care.now.vm };
            let Some(status) = &vm.status else { continue };
            let holds =
                status.migration.as_ref().is_some_and(|lock| Some(&lock.uid) == object.metadata.uid.as_ref());
            if !is_waiting(object, holds) {
                continue;
            }
            let (_, runner) = self.observe_pod(care, &status.pod_name);
            let free = vm.metadata.deletion_timestamp.is_none() && ready(vm, &runner).is_ok();
            waiting.push(Waiting {
                name: object.metadata.name.clone().unwrap_or_default(),
                uid: object.metadata.uid.clone().unwrap_or_default(),
                vm: vm.metadata.uid.clone().unwrap_or_default(),
                namespace: "default".to_owned(),
                drain: self.leaves(&status.node).drain,
                priority: object.spec.priority,
                created: stamp(at),
                node: status.node.clone(),
                ready: free,
            });
        }
        active.sort_unstable();
        let waiting = ordered(waiting);
        let answers = admit(&waiting, &active, &self.controller.settings.migration);
        let found = waiting.iter().zip(answers).find(|(one, _)| one.uid == uid);
        found.map_or(Admission::Wait(String::new()), |(_, answer)| answer)
    }

    fn leaves(&self, node: &str) -> Active {
        let found = self.node_named(node).and_then(|id| self.nodes.get(id));
        let drain = found.is_some_and(|node| !node.open);
        Active { node: node.to_owned(), namespace: "default".to_owned(), drain }
    }

    /// Other machines that are on their way to a node.
    fn inbound(&self, own: &Care, uid: &str, node: &str) -> usize {
        let coming = |object: &VirtualMachineMigration| {
            object.metadata.uid.as_deref() != Some(uid)
                && !is_over(object)
                && object.status.as_ref().is_some_and(|status| {
                    status.phase == Some(MigrationPhase::Running) && status.target_node == node
                })
        };
        let others = self.line(usize::MAX, own).filter(|(_, _, object)| coming(object));
        others.count() + own.seen.moves.values().filter(|object| coming(object)).count()
    }
}
