//! What the controller decided is carried out: at the API server at once, at runners by calls.

use std::rc::Rc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::names::{FINALIZER, VM_API_VERSION, annotation};
use neonvm_api::pod_annotation::Usage;
use neonvm_api::runner_pod::Receive;
use neonvm_core_migration::phases::{MigrationAction, plan_target};
use neonvm_core_scheduling::permits::MigrationRole;
use neonvm_core_vm_lifecycle::FailureReason::{ActionFailed, MigrationFailed, PodFailed};
use neonvm_core_vm_lifecycle::pod::PodSize;
use neonvm_core_vm_lifecycle::{Action, PodView, SizeUnanswered, owned_pod};
use neonvm_types::runner_protocol::MigrationCall;
use neonvm_types::{Bytes, MilliCpu, NamespacedName, Resources};

use super::World;
use super::calls::{Answer, Call};
use super::machine::Failed;
use super::objects::{Care, Kind, view_of, write_metadata};
use crate::Bug;
use crate::world::model::{Id, Phase};

impl World {
    pub(super) fn act_on_machine(&mut self, id: Id, care: &mut Care, action: &Action) -> Result<(), Failed> {
        self.spend()?;
        match action {
            Action::CreatePod { name } => self.create_pod(id, care, name),
            Action::DeletePod { name, uid } => self.delete_pod(id, care, name, uid.as_deref()),
            Action::SyncPod { name, change } => {
                self.change_pod(id, care, name, |view| write_metadata(view, change));
                Ok(())
            }
            Action::OwnPod { name, uid, migration } => {
                let controller = care.now.vm.metadata.uid.clone().unwrap_or_default();
                self.change_pod(id, care, name, |view| {
                    if view.uid == *uid {
                        view.controller = controller;
                        view.migrations = migration.iter().map(|one| one.uid.clone()).collect();
                    }
                });
                Ok(())
            }
            Action::CancelMove(call) => {
                let pod = owned_pod(&care.seen.vm).unwrap_or_default().to_owned();
                self.cancel_move(id, care, &pod, call)
            }
            Action::RecoverMove(call) => {
                care.key_states.recovered = super::objects::stamp(self.now);
                let pod = owned_pod(&care.seen.vm).unwrap_or_default().to_owned();
                let answer = self.ask(id, care, &pod, Call::Recover(call.id.clone()));
                answered(answer, "the source runner does not go on")
            }
            Action::Settle { pod, verdict } => {
                let name = care.seen.pods.values().find(|view| view.uid == *pod);
                let name = name.map(|view| view.name.clone()).unwrap_or_default();
                let answer = self.ask(id, care, &name, Call::Settle(verdict.clone()));
                if answer == Answer::Conflict {
                    care.key_states.refused = care.pod_named(&name);
                }
                answered(answer, "the runner does not take the VM")
            }
            Action::SetSize(size) => {
                let pod = owned_pod(&care.seen.vm).unwrap_or_default().to_owned();
                let call = Call::Size(Resources::new(size.cpu, size.memory));
                let answer = self.ask(id, care, &pod, call);
                if let Some(now) = super::objects::stamp(self.now).filter(|_| answer != Answer::Ok) {
                    let before = care.key_states.unanswered.take();
                    care.key_states.unanswered = Some(SizeUnanswered::next(before, &pod, *size, now));
                }
                answered(answer, "the runner refused the size")
            }
            Action::RemoveFinalizer => self.remove_machine(id, care),
            Action::TakeAddress { .. } => Err(Self::not_done(ActionFailed, "there is no address")),
            Action::Refresh
            | Action::Adopt { .. }
            | Action::Amend { .. }
            | Action::ReleaseAddress
            // No VM of the simulator is paused.
            | Action::GrowDisk(_)
            | Action::LimitDisks(_)
            | Action::SetPaused(_) | Action::SetSuspended(_)
            // None has a claim.
            | Action::CreateClaim { .. }
            | Action::DeleteClaim { .. }
            | Action::MarkCopy { .. }
            | Action::ReplaceClaim { .. }
            | Action::Tls(_) => Ok(()),
            Action::ResizePod { name, uid, size } => {
                self.resize_pod(id, care, (name, uid), *size);
                Ok(())
            }
        }
    }

    pub(super) fn act_on_move(
        &mut self,
        id: Id,
        care: &mut Care,
        name: &str,
        action: &MigrationAction,
    ) -> Result<(), Failed> {
        if !matches!(action, MigrationAction::Lock(_)) {
            self.spend()?;
        }
        match action {
            MigrationAction::Refresh => Ok(()),
            MigrationAction::Adopt => {
                let owner = OwnerReference {
                    api_version: VM_API_VERSION.to_owned(),
                    kind: "VirtualMachine".to_owned(),
                    name: self.vm_name(id),
                    uid: super::objects::uid_of(id),
                    controller: Some(true),
                    block_owner_deletion: Some(true),
                };
                self.change_move(id, care, name, |object| {
                    object.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
                    object.metadata.owner_references = Some(vec![owner]);
                })
            }
            MigrationAction::RemoveFinalizer => {
                self.change_move(id, care, name, |object| object.metadata.finalizers = None)
            }
            MigrationAction::Lock(status) => self.write_machine(id, care, (**status).clone()),
            MigrationAction::CreateTarget { name: target, receive } => {
                self.create_target(id, care, name, (target, receive))
            }
            MigrationAction::DeletePod { name, uid } => self.delete_pod(id, care, name, uid.as_deref()),
            MigrationAction::Start(request) => {
                let status = care.seen.moves.get(name).and_then(|object| object.status.as_ref());
                let (source, target) = status
                    .map(|now| (now.source_pod_name.clone(), now.target_pod_name.clone()))
                    .unwrap_or_default();
                let Some(target) = care.pod_named(&target) else {
                    return Err(Self::not_done(MigrationFailed, "there is no target"));
                };
                let call = Call::Start(Box::new(request.clone()), target);
                let answer = self.ask(id, care, &source, call);
                answered(answer, "the source runner did not begin")
            }
            MigrationAction::Cancel(call) => {
                let status = care.seen.moves.get(name).and_then(|object| object.status.as_ref());
                let source = status.map(|now| now.source_pod_name.clone()).unwrap_or_default();
                self.cancel_move(id, care, &source, call)
            }
        }
    }

    /// A change of metadata, if the version of the object is still the one that was read.
    fn change_move(
        &mut self,
        id: Id,
        care: &mut Care,
        name: &str,
        change: impl FnOnce(&mut VirtualMachineMigration),
    ) -> Result<(), Failed> {
        let (Some(now), Some(seen)) = (care.now.moves.get(name), care.seen.moves.get(name)) else {
            care.seen.moves.remove(name);
            return Ok(());
        };
        if !Rc::ptr_eq(now, seen) {
            return Err(Failed::Conflict);
        }
        let mut object = (**now).clone();
        change(&mut object);
        care.now.moves.insert(name.to_owned(), Rc::new(object));
        self.collect(id, care, name);
        match care.now.moves.get(name) {
            Some(object) => drop(care.seen.moves.insert(name.to_owned(), Rc::clone(object))),
            None => drop(care.seen.moves.remove(name)),
        }
        Ok(())
    }

    fn cancel_move(
        &mut self,
        id: Id,
        care: &mut Care,
        pod: &str,
        call: &MigrationCall,
    ) -> Result<(), Failed> {
        let answer = self.ask(id, care, pod, Call::Cancel(call.id.clone(), call.reason.clone()));
        match answer {
            Answer::Unknown => {
                care.key_states.of.entry(call.id.clone()).or_default().unknown_at_source = true;
                Ok(())
            }
            Answer::Conflict => Ok(()),
            answer => answered(answer, "the source runner did not cancel it"),
        }
    }

    /// The object of a pod changes.
    pub(super) fn change_pod(
        &mut self,
        id: Id,
        care: &mut Care,
        name: &str,
        change: impl FnOnce(&mut PodView),
    ) {
        let Some(pod) = care.pod_named(name) else {
            care.seen.pods.retain(|_, view| view.name != name);
            return;
        };
        if let Some(view) = care.now.pods.get_mut(&pod) {
            change(Rc::make_mut(view));
            care.seen.pods.insert(pod, Rc::clone(view));
        }
        self.touch(id, care, Kind::Pods);
        self.follow_owners(care, pod);
    }

    fn add_pod(&mut self, id: Id, care: &mut Care, name: &str, usage: Resources) -> Option<Id> {
        let key = NamespacedName::new("default", name);
        if self.keys.contains_key(&key) {
            return None;
        }
        let pod = self.make_pod_named(Some(id), usage, key);
        let view = view_of(pod, self.pods.get(pod)?, &care.now.vm, &self.controller.settings);
        let view = Rc::new(view);
        care.now.pods.insert(pod, Rc::clone(&view));
        care.seen.pods.insert(pod, view);
        self.waiting.insert(pod);
        self.touch(id, care, Kind::Pods);
        Some(pod)
    }

    fn create_pod(&mut self, id: Id, care: &mut Care, name: &str) -> Result<(), Failed> {
        if care.now.gone || care.pod_named(name).is_some() {
            return Ok(());
        }
        let usage = self.vms.get(id).map_or_else(Resources::default, |vm| vm.asked);
        let pod = self.add_pod(id, care, name, usage);
        let Some(pod) = pod else { return Err(Self::not_done(PodFailed, "such a pod exists")) };
        if let Some(vm) = self.vms.get_mut(id).filter(|vm| vm.phase == Phase::Pending) {
            vm.pod = Some(pod);
        }
        self.touch_pod(pod);
        Ok(())
    }

    fn create_target(
        &mut self,
        id: Id,
        care: &mut Care,
        migration: &str,
        (name, receive): (&str, &Receive),
    ) -> Result<(), Failed> {
        if care.now.gone {
            return Ok(());
        }
        let Some(object) = care.seen.moves.get(migration) else { return Ok(()) };
        let uid = receive.migration.as_str();
        let planned = self.target_room(id, care, object, (name, receive));
        let (room, size) = planned.ok_or_else(|| Self::not_done(PodFailed, "no pod can be planned"))?;
        if let Some(pod) = care.pod_named(name) {
            if self.pods.get(pod).is_some_and(|pod| pod.usage == room) {
                return Ok(());
            }
            // A pod with another configuration makes room for one that is made for the size of now.
            self.end_pod(id, care, pod);
            return Err(Failed::Conflict);
        }
        let Some(pod) = self.add_pod(id, care, name, room) else {
            return Err(Self::not_done(PodFailed, "such a pod exists"));
        };
        self.change_pod(id, care, name, |view| {
            uid.clone_into(&mut view.controller);
            view.migrations = [uid.to_owned()].into();
            view.size = size;
        });
        let locked = care.now.vm.status.as_ref().and_then(|status| status.migration.as_ref());
        if locked.is_some_and(|lock| lock.uid == uid)
            && let Some(vm) = self.vms.get_mut(id)
        {
            vm.target = Some(pod);
        }
        self.touch_pod(pod);
        Ok(())
    }

    /// What the target takes by its plan: on the node by the scheduler's count, and as the size of its container.
    fn target_room(
        &self,
        id: Id,
        care: &Care,
        object: &VirtualMachineMigration,
        (name, receive): (&str, &Receive),
    ) -> Option<(Resources, Option<PodSize>)> {
        let observed = self.vms.get(id)?.observed;
        let mut vm = (*care.now.vm).clone();
        let status = vm.status.as_mut()?;
        status.cpus = observed.map(|has| has.vcpus);
        status.memory_size = observed.map(|has| has.mem.to_quantity());
        let node = status.node.clone();
        let plan = plan_target(&vm, object, name, &node, receive.size, &self.controller.settings).ok()?;
        let size = PodView::from_pod(&plan, "").size;
        let usage = plan.metadata.annotations?.remove(annotation::USAGE)?;
        let usage: Usage = serde_json::from_str(&usage).ok()?;
        let cpu = MilliCpu::try_from(usage.cpu).ok()?;
        Some((Resources::new(cpu, Bytes::try_from(usage.memory).ok()?), size))
    }

    fn delete_pod(&mut self, id: Id, care: &mut Care, name: &str, uid: Option<&str>) -> Result<(), Failed> {
        let Some(uid) = uid else { return Ok(()) };
        let target = |pod: Option<&super::super::model::Pod>| {
            pod.is_some_and(|pod| matches!(pod.role, Some((MigrationRole::Target, _))))
        };
        let pod = care.pod_named(name);
        if self.bug(Bug::TargetLeftBehind) && target(pod.and_then(|pod| self.pods.get(pod))) {
            care.seen.pods.retain(|_, view| view.name != name);
            return Ok(());
        }
        let Some(pod) = pod.filter(|pod| care.now.pods.get(pod).is_some_and(|view| view.uid == uid)) else {
            care.seen.pods.retain(|_, view| view.uid != uid);
            return Ok(());
        };
        self.end_pod(id, care, pod);
        match care.now.pods.get(&pod) {
            Some(view) => drop(care.seen.pods.insert(pod, Rc::clone(view))),
            None => drop(care.seen.pods.remove(&pod)),
        }
        Ok(())
    }

    /// Nothing of the VM runs, and it has no finalizers: removes it and its dependents.
    fn remove_machine(&mut self, id: Id, care: &mut Care) -> Result<(), Failed> {
        if !Rc::ptr_eq(&care.now.vm, &care.seen.vm) {
            return Err(Failed::Conflict);
        }
        self.check_removed(id, care);
        (care.now.gone, care.seen.gone) = (true, true);
        self.locked.remove(&id);
        self.touch(id, care, Kind::Vm);
        let names: Vec<String> = care.now.moves.keys().cloned().collect();
        for name in names {
            self.delete_move(id, care, &name, false);
        }
        Ok(())
    }
}

fn answered(answer: Answer, what: &str) -> Result<(), Failed> {
    match answer {
        Answer::Ok => Ok(()),
        Answer::Conflict | Answer::Unknown | Answer::None => Err(World::not_done(MigrationFailed, what)),
    }
}
