//! Actions of a migration's step, carried out; and those of a VM's step that are about its migration.

use http::Method;
use kube::api::Patch;
use neonvm_api::names::{FINALIZER, VM_API_VERSION};
use neonvm_api::runner_pod::Receive;
use neonvm_api::virtual_machine::ActiveMigration;
use neonvm_api::{VirtualMachine, VirtualMachineMigration, merge_patch};
use neonvm_core_migration::phases::{MigrationAction, plan_target};
use neonvm_core_vm_lifecycle::FailureReason::{ActionFailed, MigrationFailed, NoSuitableHost, PodFailed};
use neonvm_core_vm_lifecycle::{claims, pod};
use neonvm_types::runner_protocol::{
    MIGRATION_CANCEL_PATH, MIGRATION_PATH, MIGRATION_RECOVER_PATH, MIGRATION_SETTLE_PATH, MigrationCall,
    MigrationVerdict,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::act::{Failed, unmade};
use crate::cache::{Key, key_of};
use crate::clock::now;
use crate::link::Refusal;
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, is_missing, patching, posting, within};
use crate::webhook::elsewhere;

fn bytes(body: &impl Serialize) -> Result<Vec<u8>, Failed> {
    serde_json::to_vec(body).map_err(|error| Failed::new(MigrationFailed, error.to_string()))
}

fn refused(what: &str, refusal: &Refusal) -> Failed {
    let status = refusal.status.map(|status| format!(" ({})", status.as_u16())).unwrap_or_default();
    Failed::new(MigrationFailed, format!("{what}{status}: {}", refusal.message))
}

impl Reconciler {
    /// Does one action. `Refresh` is the worker's own.
    pub(super) async fn act_on_migration(
        &self,
        key: &Key,
        migration: &VirtualMachineMigration,
        action: &MigrationAction,
    ) -> Result<(), Failed> {
        let vm = self.state.cache.vm(key);
        let vm = || vm.as_deref().ok_or(Failed::Conflict);
        match action {
            MigrationAction::Refresh => Ok(()),
            MigrationAction::Adopt => {
                let owner =
                    pod::owner(vm()?).map_err(|error| Failed::new(ActionFailed, error.to_string()))?;
                let mut finalizers = migration.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(FINALIZER.to_owned());
                let mut owners = migration.metadata.owner_references.clone().unwrap_or_default();
                if !owners.iter().any(|known| known.uid == owner.uid || known.controller == Some(true)) {
                    owners.push(owner);
                }
                let change = json!({"finalizers": finalizers, "ownerReferences": owners});
                self.change_migration(migration, change).await
            }
            MigrationAction::RemoveFinalizer => {
                let all = migration.metadata.finalizers.iter().flatten();
                let rest: Vec<&String> = all.filter(|name| *name != FINALIZER).collect();
                self.change_migration(migration, json!({"finalizers": rest})).await
            }
            MigrationAction::Lock(status) => {
                let vm = vm()?;
                let json = |status| serde_json::to_value(status).unwrap_or_default();
                let before = vm.status.clone().unwrap_or_default();
                match merge_patch::difference(&json(&before), &json(status)) {
                    Some(change) => self.write_status(key, vm, change).await,
                    None => Ok(()),
                }
            }
            MigrationAction::CreateTarget { name, receive } => {
                self.create_target(key, vm()?, migration, name, receive).await
            }
            MigrationAction::DeletePod { name, uid } => {
                self.delete_pod(key, vm().ok(), name, uid.as_deref()).await
            }
            MigrationAction::Start(request) => {
                let body = bytes(request)?;
                let status = migration.status.as_ref();
                let source = status.map(|now| now.source_pod_name.clone()).unwrap_or_default();
                let answer = self
                    .state
                    .links
                    .ask(key, |to| to.name == source, (Method::PUT, MIGRATION_PATH), body)
                    .await;
                answer.map_err(|refusal| refused("the source runner did not begin", &refusal))
            }
            MigrationAction::Cancel(call) => {
                let status = migration.status.as_ref();
                let source = status.map(|now| now.source_pod_name.clone()).unwrap_or_default();
                self.cancel_move(key, &source, call).await
            }
        }
    }

    /// Cancels a migration. A runner that has none, or has handed the VM over already, is no failure.
    pub(crate) async fn cancel_move(&self, key: &Key, pod: &str, call: &MigrationCall) -> Result<(), Failed> {
        let body = bytes(call)?;
        let answer =
            self.state.links.ask(key, |to| to.name == pod, (Method::POST, MIGRATION_CANCEL_PATH), body).await;
        match answer {
            Ok(()) => Ok(()),
            Err(Refusal { status: Some(http::StatusCode::NOT_FOUND), .. }) => {
                self.state.migrating.key_state(&call.id, |state| state.unknown_at_source = true);
                Ok(())
            }
            Err(Refusal { status: Some(http::StatusCode::CONFLICT), .. }) => Ok(()),
            Err(refusal) => Err(refused("the source runner did not cancel it", &refusal)),
        }
    }

    /// Orders the runner in the VM's pod to continue a paused post-copy.
    pub(crate) async fn recover_move(
        &self,
        key: &Key,
        pod: &str,
        call: &MigrationCall,
    ) -> Result<(), Failed> {
        self.key_states.with(key, |state| state.recovered = Some(now()));
        let what = (Method::POST, MIGRATION_RECOVER_PATH);
        let answer = self.state.links.ask(key, |to| to.name == pod, what, bytes(call)?).await;
        answer.map_err(|refusal| refused("the source runner does not go on", &refusal))
    }

    /// Sends a runner, after its peer is gone, the verdict that it owns the guest.
    pub(crate) async fn settle(
        &self,
        key: &Key,
        pod: &str,
        verdict: &MigrationVerdict,
    ) -> Result<(), Failed> {
        let what = (Method::POST, MIGRATION_SETTLE_PATH);
        let answer = self.state.links.ask(key, |to| to.pod == pod, what, bytes(verdict)?).await;
        if let Err(Refusal { status: Some(http::StatusCode::CONFLICT), .. }) = &answer {
            self.key_states.with(key, |state| state.refused = Some(pod.to_owned()));
        }
        answer.map_err(|refusal| refused("the runner does not take the VM", &refusal))
    }

    async fn create_target(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        migration: &VirtualMachineMigration,
        name: &str,
        receive: &Receive,
    ) -> Result<(), Failed> {
        let node = vm.status.as_ref().map(|status| status.node.as_str()).unwrap_or_default();
        let plan = plan_target(vm, migration, name, node, receive.size, &self.state.settings(&key.namespace));
        let mut plan = plan.map_err(|error| Failed::new(PodFailed, error.to_string()))?;
        let claims = claims::copy::for_target(vm, &self.state.claims.of(vm), name);
        claims::fit(&mut plan, &claims);
        // Without a list nothing is known: the target's runner refuses what cannot be.
        let nodes = crate::cluster::nodes(&self.requests.client).await.unwrap_or_default();
        if let Some(why) = elsewhere::unsuitable(&plan, &nodes) {
            return Err(Failed::new(NoSuitableHost, why));
        }
        let source = vm.status.as_ref().map(|status| status.pod_name.as_str()).unwrap_or_default();
        let disk_queues = self.disk_queues(key, source).await?;
        let receive = Receive { disk_queues, ..receive.clone() };
        self.create_copies(key, vm, name).await?;
        let seal = self.write_config(key, vm, name, (Some(&receive), claims)).await?;
        pod::seal(&mut plan, &seal);
        let api = self.requests.pods(&key.namespace);
        let made = match self.requests.write(api.create(&posting(), &plan)).await {
            Ok(made) => made,
            Err(error) if is_conflict(&error) => {
                let read = within(api.get(name)).await;
                let read =
                    read.map_err(|error| Failed::api(PodFailed, "the target pod cannot be read", &error))?;
                let owners = read.metadata.owner_references.iter().flatten();
                let mut uids = owners.map(|owner| Some(&owner.uid));
                if !uids.any(|uid| uid == migration.metadata.uid.as_ref()) {
                    let message = format!("pod {name} exists and is not this migration's");
                    return Err(Failed::new(PodFailed, message));
                }
                self.check_seal(key, &read, &seal).await?;
                read
            }
            Err(error) => return Err(Failed::api(unmade(&error), "the target pod cannot be made", &error)),
        };
        self.state.cache.put_pod(&made);
        Ok(())
    }

    /// Makes the VM the controller of its pod, with its migration as the only other owner.
    pub(crate) async fn own_pod(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        (name, uid): (&str, &str),
        migration: Option<&ActiveMigration>,
    ) -> Result<(), Failed> {
        let owner = pod::owner(vm).map_err(|error| Failed::new(PodFailed, error.to_string()))?;
        let mut owners = vec![json!(owner)];
        owners.extend(migration.map(|migration| {
            json!({"apiVersion": VM_API_VERSION, "kind": "VirtualMachineMigration",
                "name": migration.name, "uid": migration.uid})
        }));
        let change = json!({"metadata": {"uid": uid, "ownerReferences": owners}});
        match self
            .requests
            .write(self.requests.pods(&key.namespace).patch(name, &patching(), &Patch::Merge(&change)))
            .await
        {
            Ok(pod) => {
                self.state.cache.put_pod(&pod);
                Ok(())
            }
            Err(error) if is_missing(&error) || is_conflict(&error) => {
                self.state.cache.drop_pod(key, name, Some(uid));
                Ok(())
            }
            Err(error) => Err(Failed::api(PodFailed, "the pod's owners cannot be written", &error)),
        }
    }

    /// Changes the object's metadata, if its version is still the one that was read.
    async fn change_migration(&self, migration: &VirtualMachineMigration, meta: Value) -> Result<(), Failed> {
        let mut change = json!({"metadata": meta});
        guard(&mut change, migration);
        let key = key_of(&migration.metadata);
        let api = self.requests.migrations(&key.namespace);
        match self.requests.write(api.patch(&key.name, &patching(), &Patch::Merge(&change))).await {
            Ok(new) => {
                let over = new.metadata.deletion_timestamp.is_some()
                    && new.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
                if over {
                    self.state.migrating.remove(&key, new.metadata.uid.as_deref());
                } else {
                    self.state.migrating.put(new);
                }
                Ok(())
            }
            Err(error) if is_missing(&error) => {
                self.state.migrating.remove(&key, migration.metadata.uid.as_deref());
                Ok(())
            }
            Err(error) => Err(Failed::api(ActionFailed, "the migration cannot be changed", &error)),
        }
    }

    /// Writes the status, if the version of the object is still the one that was read.
    pub(super) async fn write_migration_status(
        &self,
        migration: &VirtualMachineMigration,
        change: Value,
    ) -> Result<(), Failed> {
        let mut change = json!({"status": change});
        guard(&mut change, migration);
        let key = key_of(&migration.metadata);
        let api = self.requests.migrations(&key.namespace);
        match self.requests.write(api.patch_status(&key.name, &patching(), &Patch::Merge(&change))).await {
            Ok(new) => {
                self.state.migrating.put(new);
                Ok(())
            }
            Err(error) if is_missing(&error) => Err(Failed::Conflict),
            Err(error) => Err(Failed::api(ActionFailed, "the migration's status cannot be written", &error)),
        }
    }
}

/// Only this version of this very object.
fn guard(change: &mut Value, migration: &VirtualMachineMigration) {
    let Some(change) = change.as_object_mut() else { return };
    let meta = change.entry("metadata").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert("resourceVersion".to_owned(), json!(migration.metadata.resource_version));
        meta.insert("uid".to_owned(), json!(migration.metadata.uid));
    }
}
