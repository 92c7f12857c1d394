//! The controller at work on migrations.

use neonvm_api::migration::MigrationPhase;
use neonvm_api::names::FINALIZER;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_migration::phases::queue::{Admission, Waiting, admit, ordered};
use neonvm_core_migration::phases::{MigrationAction, MigrationObserved, is_waiting, plan_target, ready};
use neonvm_core_vm_lifecycle::RunnerView;
use neonvm_types::runner_protocol::{MigrationRole, MigrationState as S};

use super::runners::status;
use super::world::{Version, World};
use crate::machine::{at, pod, settings};

impl World {
    pub(super) fn work_on_move(&mut self, name: &str, view: &mut Version, writes: &mut usize) -> bool {
        let mut fresh = false;
        let mut done: Vec<MigrationAction> = Vec::new();
        for _ in 0..12 {
            let Some(migration) = view.moves.get(name).cloned() else { return true };
            let outcome = {
                let seen = self.observe_move(&migration, view, fresh);
                neonvm_core_migration::phases::step(at(self.now), &migration, &seen, &settings())
            };
            if outcome.actions == [MigrationAction::Refresh] {
                assert!(!fresh, "asks for what it has");
                (*view, fresh) = (self.newest().clone(), true);
                continue;
            }
            let mut changed = false;
            let current = self.newest().moves.get(name).cloned();
            if outcome.status != migration.status.clone().unwrap_or_default() {
                if *writes == 0 {
                    return false;
                }
                if current.as_ref() != Some(&migration) {
                    (*view, fresh) = (self.newest().clone(), true);
                    continue;
                }
                *writes -= 1;
                let begins = migration.status.as_ref().and_then(|status| status.phase)
                    != outcome.status.phase
                    && outcome.status.phase == Some(MigrationPhase::Running);
                let undone = !outcome.status.drained_node.is_empty() && !self.cordoned;
                assert!(!(begins && undone), "L3: {name} leaves a node that accepts pods again");
                if begins {
                    let (source, target) = (&outcome.status.source_pod_name, &outcome.status.target_pod_name);
                    let gib = self.runners[source].gib;
                    assert_eq!(self.made[target], gib, "L4: the target was made for another size");
                }
                self.with_move(name, |migration| migration.status = Some(outcome.status.clone()));
                changed = true;
            }
            for action in &outcome.actions {
                if done.contains(action) {
                    continue;
                }
                if *writes == 0 {
                    return false;
                }
                *writes -= 1;
                if !self.act_on_move(name, action, &view.vm) {
                    (*view, fresh) = (self.newest().clone(), true);
                }
                done.push(action.clone());
                changed = true;
            }
            if !changed {
                return true;
            }
            *view = self.newest().clone();
        }
        panic!("{name} does not converge: {done:?}");
    }

    fn observe_move<'a>(
        &mut self,
        migration: &VirtualMachineMigration,
        view: &'a Version,
        fresh: bool,
    ) -> MigrationObserved<'a> {
        let status = migration.status.clone().unwrap_or_default();
        let of_vm = view.vm.status.clone().unwrap_or_default();
        let uid = migration.metadata.uid.clone().unwrap();
        let lock = of_vm.migration.filter(|lock| lock.uid == uid);
        let source = if status.source_pod_name.is_empty() { of_vm.pod_name } else { status.source_pod_name };
        let target = if status.target_pod_name.is_empty() {
            lock.as_ref().map(|lock| lock.target_pod_name.clone()).unwrap_or_default()
        } else {
            status.target_pod_name
        };
        let (source, source_runner) = self.observe(view, &source);
        let (target, target_runner) = self.observe(view, &target);
        let admission = self.admission(migration, view, &source_runner);
        MigrationObserved {
            claims: view.claims.clone(),
            fresh,
            vm: Some(&view.vm).filter(|_| !view.gone),
            source,
            source_runner,
            target,
            target_runner,
            policies: Vec::new(),
            admission,
            cordoned: self.cordoned,
            inbound: 0,
            held_up: self.held_up,
            unknown_at_source: self.unknown.contains(&uid),
            failure: None,
            suffix: self.suffix(),
        }
    }

    fn admission(&self, own: &VirtualMachineMigration, view: &Version, runner: &RunnerView) -> Admission {
        let locked = view.vm.status.as_ref().and_then(|status| status.migration.clone());
        let holds = |uid: Option<&String>| locked.as_ref().is_some_and(|lock| Some(&lock.uid) == uid);
        let waiting =
            view.moves.iter().filter(|(_, other)| is_waiting(other, holds(other.metadata.uid.as_ref())));
        let line = waiting.map(|(name, other)| Waiting {
            name: name.clone(),
            uid: other.metadata.uid.clone().unwrap(),
            vm: "u-1".into(),
            namespace: "d".into(),
            drain: false,
            priority: 0,
            created: None,
            node: "n".into(),
            ready: ready(&view.vm, runner).is_ok(),
        });
        let line = ordered(line.collect());
        let answers = admit(&line, &[], &settings().migration);
        let found = line.iter().zip(answers).find(|(one, _)| Some(&one.uid) == own.metadata.uid.as_ref());
        found.map_or(Admission::Wait(String::new()), |(_, answer)| answer)
    }

    /// Whether it was taken.
    fn act_on_move(&mut self, name: &str, action: &MigrationAction, seen: &VirtualMachine) -> bool {
        match action {
            MigrationAction::Adopt => {
                self.with_move(name, |migration| {
                    migration.metadata.finalizers = Some(vec![FINALIZER.into()]);
                });
            }
            MigrationAction::Lock(status) => {
                if self.newest().vm != *seen || self.newest().gone {
                    return false;
                }
                self.change(|next| next.vm.status = Some((**status).clone()));
            }
            MigrationAction::CreateTarget { name: target, receive } => {
                let version = self.newest().clone();
                if version.gone || version.pods.iter().any(|pod| pod.name == *target) {
                    return true;
                }
                let Some(migration) = version.moves.get(name) else { return true };
                plan_target(&version.vm, migration, target, "n1", receive.size, &settings()).unwrap();
                self.make_copies(target);
                self.mount(target, Some(target));
                let mut made = pod(&version.vm, target);
                made.controller = receive.migration.clone();
                made.migrations = [receive.migration.clone()].into();
                self.targets.insert(target.clone(), receive.migration.clone());
                self.made.insert(target.clone(), u32::try_from(receive.size.memory.get() >> 30).unwrap());
                self.change(|next| next.pods.push(made));
            }
            MigrationAction::Start(request) => self.begin(name, &request.id.clone()),
            MigrationAction::Cancel(call) => {
                let status = self.newest().moves.get(name).and_then(|migration| migration.status.clone());
                let source = status.map(|status| status.source_pod_name).unwrap_or_default();
                self.cancel(&source, &call.id);
            }
            MigrationAction::DeletePod { name, uid: Some(uid) } => self.delete_pod(name, uid),
            MigrationAction::RemoveFinalizer => {
                self.with_move(name, |migration| migration.metadata.finalizers = None);
                self.collect();
            }
            MigrationAction::DeletePod { .. } | MigrationAction::Refresh => {}
        }
        self.check();
        true
    }

    fn begin(&mut self, name: &str, id: &str) {
        let status_of =
            self.newest().moves.get(name).and_then(|migration| migration.status.clone()).unwrap_or_default();
        let Some(run) = self.runners.get_mut(&status_of.source_pod_name).filter(|run| run.alive) else {
            return;
        };
        let busy = run.migration.as_ref().is_some_and(|migration| {
            migration.id == id
                || (migration.role == MigrationRole::Source && !migration.state.is_over())
                || (migration.role == MigrationRole::Target && migration.state != S::Completed)
        });
        if !busy {
            run.migration = Some(status(id, MigrationRole::Source, S::Negotiating));
            run.partner = status_of.target_pod_name;
        }
    }
}
