//! An abstract world: an API server with a history, two or more runners, a controller that dies between any two writes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use neonvm_api::migration::MigrationPhase;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{
    VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationSpec, VirtualMachineStatus,
};
use neonvm_core_migration::phases::{self as migration, is_over};
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_core_vm_lifecycle::{Action, Moving, Observed, PodView, RunnerView, owned_pod, step};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationRole, MigrationState as S};

use super::planted::Bug;
use super::runners::{Contact, Runner, Runners};
use super::volumes::{self, Storage};
use crate::machine::{at, pod, running, settings, vm};

#[derive(Clone, PartialEq)]
pub(crate) struct Version {
    pub(crate) vm: VirtualMachine,
    pub(crate) moves: BTreeMap<String, VirtualMachineMigration>,
    pub(crate) pods: Vec<PodView>,
    pub(crate) claims: Vec<ClaimView>,
    /// The VM is no more.
    pub(crate) gone: bool,
}

pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) history: Vec<Version>,
    pub(crate) runners: Runners,
    /// Target pods, with their migration.
    pub(super) targets: BTreeMap<String, String>,
    pub(super) names: u32,
    pub(super) unknown: Vec<String>,
    /// Memory that target pods were made for, GiB.
    pub(super) made: BTreeMap<String, u32>,
    /// The VM's node takes no pods.
    pub(crate) cordoned: bool,
    /// Others that would go if a migration gave its place away.
    pub(crate) held_up: usize,
    /// What is on the volumes.
    pub(super) storage: Storage,
    /// What the controller's shell does wrong.
    pub(super) bug: Option<Bug>,
    refused: Vec<String>,
    recovered: Option<Timestamp>,
}

fn deleted() -> Option<Time> {
    Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH))
}

impl World {
    /// A VM that runs, and nothing else.
    pub(crate) fn new() -> Self {
        let mut vm = volumes::with_disk(vm());
        vm.status.get_or_insert_default().phase = Some(Phase::Running);
        vm.status.get_or_insert_default().pod_name = "db-first".into();
        let mut pods = vec![running(pod(&vm, "db-first"))];
        pods[0].node = "n-db-first".into();
        let runners = [("db-first".to_owned(), Runner::booted(1))].into();
        Self {
            now: 1000,
            history: vec![Version {
                vm,
                moves: BTreeMap::new(),
                pods,
                claims: vec![volumes::first()],
                gone: false,
            }],
            storage: Storage::new("db-first"),
            bug: None,
            runners,
            targets: BTreeMap::new(),
            made: BTreeMap::new(),
            cordoned: false,
            names: 0,
            unknown: Vec::new(),
            held_up: 0,
            refused: Vec::new(),
            recovered: None,
        }
    }

    pub(crate) fn newest(&self) -> &Version {
        self.history.last().unwrap()
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Version)) {
        let mut next = self.newest().clone();
        change(&mut next);
        let last = self.newest().clone();
        if next != last {
            let number = Some(self.history.len().to_string());
            if next.vm != last.vm {
                next.vm.metadata.resource_version.clone_from(&number);
            }
            for (name, migration) in next.moves.iter_mut() {
                if last.moves.get(name) != Some(migration) {
                    migration.metadata.resource_version.clone_from(&number);
                }
            }
            self.history.push(next);
        }
        self.check();
    }

    /// Safety, after every event.
    pub(crate) fn check(&self) {
        let guests: Vec<&String> =
            self.runners.iter().filter(|(_, run)| run.guest).map(|(name, _)| name).collect();
        assert!(guests.len() <= 1, "S3: guests run in {guests:?}");
        let version = self.newest();
        let status = version.vm.status.clone().unwrap_or_default();
        for (name, migration) in version.moves.iter().filter(|(_, migration)| is_over(migration)) {
            let locked = status
                .migration
                .as_ref()
                .is_some_and(|lock| Some(&lock.uid) == migration.metadata.uid.as_ref());
            assert!(!locked || version.gone, "S8: {name} has ended and holds the VM");
            let target = migration.status.as_ref().map(|now| now.target_pod_name.clone()).unwrap_or_default();
            let left = version.pods.iter().any(|pod| pod.name == target && pod.deleting.is_none());
            let failed = migration.status.as_ref().unwrap().phase == Some(MigrationPhase::Failed);
            assert!(
                !failed || !left || target == status.pod_name,
                "S8: {name} has failed and its target {target} lives"
            );
        }
        let moving = matches!(status.phase, Some(Phase::PreMigrating | Phase::Migrating));
        assert!(!moving || status.migration.is_some(), "S8: {:?} without a migration", status.phase);
    }

    pub(crate) fn delete(&mut self) {
        self.change(|next| next.vm.metadata.deletion_timestamp = deleted());
    }

    pub(crate) fn create(&mut self, name: &str) {
        if self.newest().moves.contains_key(name) {
            return;
        }
        self.names += 1;
        let uid = format!("uid-{name}-{}", self.names);
        let incremental = self.names.is_multiple_of(2);
        self.change(|next| {
            let mut made = VirtualMachineMigration::new(name, VirtualMachineMigrationSpec::new("db"));
            made.metadata.namespace = Some("ns".into());
            made.metadata.uid = Some(uid);
            made.metadata.generation = Some(1);
            // Existing manifests have either value, which makes no difference.
            made.spec.incremental = incremental;
            next.moves.insert(name.into(), made);
        });
    }

    /// One that the webhook makes for an eviction.
    pub(crate) fn evict(&mut self, name: &str) {
        self.create(name);
        let label = (label::CREATED_BY_EVICTION.to_owned(), "true".to_owned());
        self.with_move(name, |migration| {
            migration.metadata.labels.get_or_insert_default().extend([label]);
        });
    }

    pub(crate) fn with_move(&mut self, name: &str, change: impl FnOnce(&mut VirtualMachineMigration)) {
        self.change(|next| {
            if let Some(found) = next.moves.get_mut(name) {
                change(found);
            }
        });
    }

    pub(crate) fn delete_move(&mut self, name: &str, by_force: bool) {
        self.with_move(name, |migration| {
            migration.metadata.deletion_timestamp = deleted();
            if by_force {
                migration.metadata.finalizers = None;
            }
        });
        self.collect();
    }

    pub(super) fn collect(&mut self) {
        self.change(|next| {
            next.moves.retain(|_, migration| {
                migration.metadata.deletion_timestamp.is_none()
                    || migration.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
            });
        });
    }

    pub(super) fn observe(&mut self, version: &Version, name: &str) -> (Option<PodView>, RunnerView) {
        let pod = version.pods.iter().find(|pod| pod.name == name).cloned();
        let view = self.runners.get_mut(name).map_or(RunnerView::Unknown, Runner::view);
        (pod, view)
    }

    pub(super) fn suffix(&mut self) -> String {
        self.names += 1;
        format!("{:05}", self.names)
    }

    /// The controller works with news so many versions old, and dies after so many writes or orders.
    pub(crate) fn work(&mut self, age: usize, mut writes: usize) {
        let mut view = self.history[self.history.len().saturating_sub(1 + age)].clone();
        for _ in 0..4 {
            let before = self.history.len();
            if !view.gone && !self.work_on_vm(&mut view, &mut writes) {
                return;
            }
            let names: Vec<String> = view.moves.keys().cloned().collect();
            for name in names {
                if !self.work_on_move(&name, &mut view, &mut writes) {
                    return;
                }
            }
            if self.history.len() == before {
                return;
            }
        }
    }

    fn work_on_vm(&mut self, view: &mut Version, writes: &mut usize) -> bool {
        let mut fresh = false;
        let mut done: Vec<Action> = Vec::new();
        for _ in 0..12 {
            if view.gone {
                return true;
            }
            let observed = self.observe_vm(view, fresh);
            let outcome = step(at(self.now), &view.vm, &observed, &settings());
            if outcome.actions == [Action::Refresh] {
                assert!(!fresh, "asks for what it has");
                if self.bug != Some(Bug::StaleListIsFresh) {
                    *view = self.newest().clone();
                }
                fresh = true;
                continue;
            }
            let mut changed = false;
            if outcome.status != view.vm.status.clone().unwrap_or_default() {
                if *writes == 0 {
                    return false;
                }
                if self.newest().vm != view.vm || self.newest().gone {
                    (*view, fresh) = (self.newest().clone(), true);
                    continue;
                }
                *writes -= 1;
                self.write_status(&outcome.status);
                view.vm = self.newest().vm.clone();
                changed = true;
            }
            for action in outcome.actions.iter() {
                if done.contains(action) {
                    continue;
                }
                if *writes == 0 {
                    return false;
                }
                *writes -= 1;
                self.act(action);
                done.push(action.clone());
                changed = true;
            }
            if !changed {
                return true;
            }
            view.pods.clone_from(&self.newest().pods);
        }
        panic!("the VM does not converge: {done:?}");
    }

    fn write_status(&mut self, status: &VirtualMachineStatus) {
        let mut status = status.clone();
        match self.bug {
            Some(Bug::ContentNotWritten) => {
                status.migration.iter_mut().for_each(|lock| lock.content = None);
            }
            Some(Bug::ClaimNotSwitched) => {
                let before = self.newest().vm.status.clone().unwrap_or_default();
                if before.migration.is_some() && status.migration.is_none() {
                    status.volumes = before.volumes;
                }
            }
            _ => {}
        }
        self.change(|next| next.vm.status = Some(status));
    }

    fn observe_vm(&mut self, view: &Version, fresh: bool) -> Observed {
        let own = owned_pod(&view.vm).unwrap_or_default().to_owned();
        let lock = view.vm.status.as_ref().and_then(|status| status.migration.clone());
        let (pod, runner) = self.observe(view, &own);
        let moving = lock.as_ref().map(|lock| {
            let (target, target_runner) = self.observe(view, &lock.target_pod_name);
            let found = view.moves.get(&lock.name);
            let found = found.filter(|found| found.metadata.uid.as_ref() == Some(&lock.uid));
            Moving {
                mover: found.map(migration::mover),
                target,
                target_runner,
                recovered: self.recovered,
                refused: self.refused.contains(&lock.target_pod_name),
            }
        });
        let orphan = |pod: &&PodView| {
            pod.name != own && lock.as_ref().is_none_or(|lock| lock.target_pod_name != pod.name)
        };
        Observed {
            fresh,
            pod,
            runner,
            orphans: view.pods.iter().filter(orphan).cloned().collect(),
            moving: moving.unwrap_or_default(),
            claims: view.claims.clone(),
            suffix: self.suffix(),
            ..Observed::default()
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::RemoveFinalizer => {
                assert!(!self.newest().pods.iter().any(PodView::is_live), "a pod outlives its VM");
                self.collect_claims();
                self.check_heir();
                self.change(|next| next.gone = true);
            }
            Action::CreatePod { .. } | Action::OwnPod { .. } if self.newest().gone => {}
            Action::CreatePod { name } => {
                let made = pod(&self.newest().vm, name);
                self.mount(name, None);
                self.change(|next| next.pods.push(made));
            }
            Action::DeleteClaim { name, partial } => {
                self.delete_claim(name, *partial && self.bug != Some(Bug::CopyDeletedUnchecked));
            }
            Action::MarkCopy { .. } if self.bug == Some(Bug::MarkLost) => {}
            Action::MarkCopy { name, mark } => {
                self.with_claim(name, |claim| claim.copy = Some(mark.clone()));
            }
            Action::ReplaceClaim { name, by } => {
                self.with_claim(name, |claim| claim.replaced_by.clone_from(by));
            }
            Action::DeletePod { name, uid: Some(uid) } => self.delete_pod(name, uid),
            Action::OwnPod { name, uid, migration } => {
                let controller = self.newest().vm.metadata.uid.clone().unwrap();
                self.change(|next| {
                    for pod in next.pods.iter_mut().filter(|pod| pod.name == *name && pod.uid == *uid) {
                        pod.controller.clone_from(&controller);
                        pod.migrations = migration.iter().map(|migration| migration.uid.clone()).collect();
                    }
                });
            }
            Action::CancelMove(call) => {
                let pod = owned_pod(&self.newest().vm).unwrap_or_default().to_owned();
                self.cancel(&pod, &call.id);
            }
            Action::RecoverMove(_) => {
                self.recovered = Some(at(self.now));
                let pod = owned_pod(&self.newest().vm).unwrap_or_default().to_owned();
                if let Some(run) =
                    self.runners.get_mut(&pod).filter(|run| run.state() == Some(S::PostCopyPaused))
                {
                    run.set(S::PostCopy);
                }
            }
            Action::ResizePod { name, uid, size } => self.change(|next| {
                for pod in next.pods.iter_mut().filter(|pod| pod.name == *name && pod.uid == *uid) {
                    (pod.size, pod.applied, pod.current) = (Some(*size), Some(*size), true);
                }
            }),
            Action::SetSize(size) => {
                let pod = owned_pod(&self.newest().vm).unwrap_or_default().to_owned();
                if let Some(run) = self.runners.get_mut(&pod).filter(|run| run.alive && !run.is_leaving()) {
                    run.gib = u32::try_from(size.memory.get() >> 30).unwrap();
                }
            }
            Action::Settle { pod, verdict } => {
                assert!(verdict.keep);
                let name = pod.trim_start_matches("uid-").to_owned();
                self.settle(&name);
            }
            _ => {}
        }
        self.check();
    }

    pub(super) fn delete_pod(&mut self, name: &str, uid: &str) {
        let grace = at(self.now + 5);
        self.change(|next| {
            next.pods.retain(|pod| !(pod.name == name && pod.uid == uid && pod.ended.is_some()));
            for pod in next.pods.iter_mut().filter(|pod| pod.name == name && pod.uid == uid) {
                pod.deleting = pod.deleting.or(Some(grace));
            }
        });
    }

    /// As the runner does it.
    fn settle(&mut self, name: &str) {
        let Some(run) = self.runners.get_mut(name).filter(|run| run.alive) else { return };
        match run.state() {
            Some(S::Arrived) if run.post_copy => self.refused.push(name.to_owned()),
            Some(S::Arrived) => {
                run.set(S::Completed);
                run.guest = true;
            }
            Some(S::HandingOver) => {
                run.set(S::Failed);
                run.guest = true;
            }
            _ => {}
        }
    }

    pub(super) fn cancel(&mut self, name: &str, id: &str) {
        let Some(run) = self.runners.get_mut(name).filter(|run| run.alive && run.contact == Contact::Well)
        else {
            return;
        };
        match run
            .migration
            .as_ref()
            .filter(|migration| migration.id == id && migration.role == MigrationRole::Source)
        {
            None => self.unknown.push(id.to_owned()),
            Some(migration) if migration.state.has_left() || migration.state.is_over() => {}
            Some(_) => {
                run.set(S::Cancelled);
                run.guest = true;
                let target = run.partner.clone();
                self.target_fails(&target);
            }
        }
    }

    fn target_fails(&mut self, name: &str) {
        if let Some(run) = self.runners.get_mut(name).filter(|run| run.alive && !run.guest) {
            run.set(S::Failed);
            self.end_pod(name, ExitReason::MigrationFailed);
        }
    }

    pub(crate) fn end_pod(&mut self, name: &str, reason: ExitReason) {
        let exit = Exit::new(reason, "it ended");
        if let Some(run) = self.runners.get_mut(name).filter(|run| run.alive) {
            run.die(exit.clone());
        }
        self.change(|next| {
            for pod in next.pods.iter_mut().filter(|pod| pod.name == name && pod.ended.is_none()) {
                (pod.running, pod.ended) = (false, Some(exit.clone()));
            }
        });
    }

    /// Force: the node took the processes with it.
    pub(crate) fn vanish(&mut self, name: &str) {
        if let Some(run) = self.runners.get_mut(name) {
            run.die(Exit::new(ExitReason::RunnerKilled, "gone"));
            run.exit = None;
        }
        self.change(|next| next.pods.retain(|pod| pod.name != name));
    }

    /// Pods that are deleted end.
    pub(crate) fn go(&mut self) {
        let going: Vec<String> = self
            .newest()
            .pods
            .iter()
            .filter(|pod| pod.deleting.is_some())
            .map(|pod| pod.name.clone())
            .collect();
        for name in going {
            self.vanish(&name);
        }
        self.collect_claims();
    }

    /// The scheduler has no node for those that have none.
    pub(crate) fn no_room(&mut self) {
        self.change(|next| {
            for pod in next.pods.iter_mut().filter(|pod| pod.node.is_empty()) {
                "Unschedulable: no node has room".clone_into(&mut pod.waiting);
            }
        });
    }

    /// A pod that was made gets a node and starts.
    pub(crate) fn boot(&mut self) {
        let waiting = self.newest().pods.iter().find(|pod| {
            let runs = self.runners.get(&pod.name).is_some_and(|run| run.alive);
            !pod.running && pod.ended.is_none() && pod.deleting.is_none() && !runs
        });
        let Some(name) = waiting.map(|pod| pod.name.clone()) else { return };
        let run = match self.targets.get(&name) {
            Some(id) => {
                let source = owned_pod(&self.newest().vm).unwrap_or_default();
                Runner::receiver(id, source, self.made[&name])
            }
            None => {
                self.check_rows(&name);
                Runner::booted(self.newest().vm.spec.guest.memory_slots.r#use.into())
            }
        };
        self.runners.insert(name.clone(), run);
        self.change(|next| {
            for pod in next.pods.iter_mut().filter(|pod| pod.name == name) {
                *pod = running(pod.clone());
                pod.node = format!("n-{name}");
            }
        });
    }
}
