//! Actions of the core, carried out.

mod certificate;
mod claim;
mod pod;
mod secret;

pub(crate) use pod::unmade;
pub(crate) use secret::{AUTHORITIES, CONFIG_LABEL, NOT_AFTER, NOT_BEFORE, identity_data};

pub(crate) use certificate::{TLS_LABEL, secret_view};

use kube::api::Patch;
use kube::{Api, Error};
use neonvm_api::VirtualMachine;
use neonvm_api::names::FINALIZER;
use neonvm_api::names::annotation::{AT_NEXT_START, COPY_OF, REPLACED_BY};
use neonvm_core_vm_lifecycle::claims::copy;
use neonvm_core_vm_lifecycle::{
    Action, DiskRequested, Failure, FailureReason, LimitsRequested, SizeUnanswered, owned_pod,
};
use neonvm_types::runner_protocol::{DiskRequest, LimitsByDisk, SizeRequest};
use serde_json::{Value, json};

use crate::cache::Key;
use crate::clock::now;
use crate::reconciler::Reconciler;
use crate::request::{is_missing, patching};

/// Why an action was not done.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Another writer was faster, or the cache is outdated.
    Conflict,
    /// To be reported in the status.
    Failure(Failure),
}

impl Failed {
    pub(crate) fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self::Failure(Failure { reason, message: message.into() })
    }

    /// An answer of the server. Its text is stable for the same cause.
    pub(crate) fn api(reason: FailureReason, what: &str, error: &Error) -> Self {
        match error {
            Error::Api(status) if status.code == 409 => Self::Conflict,
            Error::Api(status) => Self::new(reason, format!("{what}: {}", status.message)),
            _ => Self::new(reason, format!("{what}: the API server cannot be reached")),
        }
    }
}

impl Reconciler {
    /// Does one action. `Refresh` is the worker's own.
    pub(crate) async fn act(&self, key: &Key, vm: &VirtualMachine, action: &Action) -> Result<(), Failed> {
        match action {
            Action::Refresh => Ok(()),
            Action::Adopt { cpu_scaling_mode } => {
                let mut finalizers = vm.metadata.finalizers.clone().unwrap_or_default();
                if !finalizers.iter().any(|name| name == FINALIZER) {
                    finalizers.push(FINALIZER.to_owned());
                }
                let mut change = json!({"metadata": {"finalizers": finalizers}});
                if let (Some(mode), Some(change)) = (cpu_scaling_mode, change.as_object_mut()) {
                    change.insert("spec".to_owned(), json!({"cpuScalingMode": mode}));
                }
                self.change_vm(key, vm, change).await
            }
            Action::Amend { spec } => {
                let change = json!({"metadata": {"annotations": {AT_NEXT_START: null}}, "spec": spec});
                self.change_vm(key, vm, change).await
            }
            Action::RemoveFinalizer => {
                let all = vm.metadata.finalizers.iter().flatten();
                let rest: Vec<&String> = all.filter(|name| *name != FINALIZER).collect();
                self.change_vm(key, vm, json!({"metadata": {"finalizers": rest}})).await
            }
            Action::CreateClaim { template } => self.create_claim(key, vm, template).await,
            Action::DeleteClaim { name, partial } => self.delete_claim(key, vm, name, *partial).await,
            Action::MarkCopy { name, mark } => {
                self.annotate_claim(key, name, (COPY_OF, &copy::text(mark))).await
            }
            Action::ReplaceClaim { name, by } => self.annotate_claim(key, name, (REPLACED_BY, by)).await,
            Action::CreatePod { name } => self.create_pod(key, vm, name).await,
            Action::DeletePod { name, uid } => self.delete_pod(key, Some(vm), name, uid.as_deref()).await,
            Action::SyncPod { name, change } => self.sync_pod(key, name, change).await,
            Action::ResizePod { name, uid, size } => self.resize_pod(key, (name, uid), size).await,
            Action::OwnPod { name, uid, migration } => {
                self.own_pod(key, vm, (name, uid), migration.as_ref()).await
            }
            Action::CancelMove(call) => self.cancel_move(key, pod_of(vm), call).await,
            Action::RecoverMove(call) => self.recover_move(key, pod_of(vm), call).await,
            Action::Settle { pod, verdict } => self.settle(key, pod, verdict).await,
            Action::SetSize(size) => self.set_size(key, pod_of(vm), *size).await,
            Action::GrowDisk(request) => {
                self.grow_disk(key, pod_of(vm), request).await;
                Ok(())
            }
            Action::LimitDisks(limits) => {
                self.limit_disks(key, pod_of(vm), limits).await;
                Ok(())
            }
            Action::SetPaused(paused) => {
                let asked = self.state.links.set_paused(key, pod_of(vm), *paused).await;
                asked.map_err(|message| Failed::new(FailureReason::PauseFailed, message))
            }
            Action::SetSuspended(request) => {
                let asked = self.state.links.set_suspended(key, pod_of(vm), request).await;
                asked.map_err(|message| Failed::new(FailureReason::SuspendFailed, message))
            }
            Action::TakeAddress { wanted } => {
                let taken = self.addresses.acquire(&key.to_string(), *wanted).await;
                taken.map_err(|message| Failed::new(FailureReason::AddressFailed, message))
            }
            Action::ReleaseAddress => {
                let given = self.addresses.release(&key.to_string()).await;
                given.map_err(|message| Failed::new(FailureReason::AddressFailed, message))
            }
            Action::Tls(action) => self.certificate(key, vm, action).await,
        }
    }

    /// Requests a size from a runner, and takes note of a request that was not answered.
    async fn set_size(&self, key: &Key, pod: &str, size: SizeRequest) -> Result<(), Failed> {
        let asked = self.state.links.set_size(key, pod, size).await;
        if asked.is_err() {
            self.key_states.with(key, |state| {
                let before = state.size_unanswered.take();
                state.size_unanswered = Some(SizeUnanswered::next(before, pod, size, now()));
            });
        }
        asked.map_err(|message| Failed::new(FailureReason::ScaleFailed, message))
    }

    /// Requests from a runner that a disk grows. A refusal is no failure of the VM: the request is repeated later, and what goes wrong at
    /// the runner is in its reports.
    async fn grow_disk(&self, key: &Key, pod: &str, request: &DiskRequest) {
        self.key_states.with(key, |state| {
            state.disks_requested.retain(|asked| asked.request.disk != request.disk);
            state.disks_requested.push(DiskRequested {
                pod: pod.to_owned(),
                request: request.clone(),
                at: now(),
            });
        });
        match self.state.links.grow_disk(key, pod, request).await {
            Ok(()) => {
                tracing::info!(vm = %key, disk = request.disk, size = %request.size, "the disk is to grow");
            }
            Err(error) => {
                tracing::warn!(vm = %key, disk = request.disk, %error, "the disk does not grow yet");
            }
        }
    }

    /// Requests from a runner that disks have these limits; as [`Self::grow_disk`], a refusal is no failure of the VM.
    async fn limit_disks(&self, key: &Key, pod: &str, limits: &LimitsByDisk) {
        self.key_states.with(key, |state| {
            let (pod, limits) = (pod.to_owned(), limits.clone());
            state.limits_requested = Some(LimitsRequested { pod, limits, at: now() });
        });
        match self.state.links.limit_disks(key, pod, limits).await {
            Ok(()) => tracing::info!(vm = %key, disks = limits.len(), "disks are to have other limits"),
            Err(error) => tracing::warn!(vm = %key, %error, "disks do not have their limits yet"),
        }
    }

    /// Changes the object, if its version is still the one that was read.
    async fn change_vm(&self, key: &Key, vm: &VirtualMachine, mut change: Value) -> Result<(), Failed> {
        guard(&mut change, vm);
        let name = &key.name;
        let (api, patch) = (self.requests.vms(&key.namespace), Patch::Merge(&change));
        match self.requests.write(api.patch(name, &patching(), &patch)).await {
            Ok(vm) => {
                let over = vm.metadata.deletion_timestamp.is_some()
                    && vm.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
                if over {
                    self.state.cache.vm_deleted(key, vm.metadata.uid.as_deref());
                } else {
                    self.state.cache.put_vm(vm);
                }
                Ok(())
            }
            Err(error) if is_missing(&error) => {
                self.state.cache.drop_vm(key, vm.metadata.uid.as_deref());
                Ok(())
            }
            Err(error) => Err(Failed::api(FailureReason::ActionFailed, "the VM cannot be changed", &error)),
        }
    }

    /// Writes the status, if the version of the object is still the one that was read.
    pub(crate) async fn write_status(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        change: Value,
    ) -> Result<(), Failed> {
        let mut change = json!({"status": change});
        guard(&mut change, vm);
        let api: Api<VirtualMachine> = self.requests.vms(&key.namespace);
        match self.requests.write(api.patch_status(&key.name, &patching(), &Patch::Merge(&change))).await {
            Ok(vm) => {
                self.state.cache.put_vm(vm);
                Ok(())
            }
            Err(error) if is_missing(&error) => Err(Failed::Conflict),
            Err(error) => {
                Err(Failed::api(FailureReason::ActionFailed, "the status cannot be written", &error))
            }
        }
    }
}

fn pod_of(vm: &VirtualMachine) -> &str {
    owned_pod(vm).unwrap_or_default()
}

/// Only this version of this very object.
fn guard(change: &mut Value, vm: &VirtualMachine) {
    let Some(change) = change.as_object_mut() else { return };
    let meta = change.entry("metadata").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert("resourceVersion".to_owned(), json!(vm.metadata.resource_version));
        meta.insert("uid".to_owned(), json!(vm.metadata.uid));
    }
}
