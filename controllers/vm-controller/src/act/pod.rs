//! The runner pod: made, labelled, deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::Error;
use kube::api::{DeleteParams, Patch, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_api::names::RUNNER_CONTAINER;
use neonvm_api::runner_pod::Seal;
use neonvm_core_vm_lifecycle::FailureReason::{self, PodFailed, QuotaExceeded};
use neonvm_core_vm_lifecycle::ResizeRefused;
use neonvm_core_vm_lifecycle::claims;
use neonvm_core_vm_lifecycle::pod::{self, Metadata, PodSize};
use serde_json::json;

use super::Failed;
use crate::cache::{Key, owner};
use crate::clock::now;
use crate::reconciler::Reconciler;
use crate::request::posting;
use crate::request::{is_conflict, is_missing, patching, within};

/// Why a pod is not made. Kubernetes refuses what is beyond a quota by its words alone.
pub(crate) fn unmade(error: &Error) -> FailureReason {
    match error {
        Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota") => {
            QuotaExceeded
        }
        _ => PodFailed,
    }
}

impl Reconciler {
    pub(super) async fn create_pod(&self, key: &Key, vm: &VirtualMachine, name: &str) -> Result<(), Failed> {
        let plan = pod::plan(vm, name, &self.state.settings(&key.namespace));
        let mut plan = plan.map_err(|error| Failed::new(PodFailed, error.to_string()))?;
        if vm.spec.enable_ssh {
            self.ensure_ssh(key, vm).await?;
        }
        let claims = claims::for_runner(vm, &self.state.claims.of(vm));
        claims::fit(&mut plan, &claims);
        let seal = self.write_config(key, vm, name, (None, claims)).await?;
        pod::seal(&mut plan, &seal);
        let api = self.requests.pods(&key.namespace);
        let made = match self.requests.write(api.create(&posting(), &plan)).await {
            Ok(made) => made,
            Err(error) if is_conflict(&error) => {
                let read = within(api.get(name)).await;
                let read = read.map_err(|error| Failed::api(PodFailed, "the pod cannot be read", &error))?;
                if owner(&read.metadata).is_none_or(|(_, uid)| Some(uid) != vm.metadata.uid) {
                    let message = format!("pod {name} exists and is not this machine's");
                    return Err(Failed::new(PodFailed, message));
                }
                self.check_seal(key, &read, &seal).await?;
                read
            }
            Err(error) => return Err(Failed::api(unmade(&error), "the pod cannot be made", &error)),
        };
        self.state.cache.put_pod(&made);
        if vm.status.as_ref().is_none_or(|status| status.restart_count == 0) {
            let since = vm.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
            let took = u64::try_from(now().unix().saturating_sub(since)).unwrap_or(0);
            self.metrics.creation_to_runner.observe(std::time::Duration::from_secs(took));
        }
        Ok(())
    }

    /// A pod that is there already was made with the same configuration, or makes room for one that is: its runner would refuse the
    /// configuration.
    pub(crate) async fn check_seal(&self, key: &Key, found: &Pod, seal: &Seal) -> Result<(), Failed> {
        if pod::sealed(found) == Some(&seal.config) {
            return Ok(());
        }
        let name = found.metadata.name.as_deref().unwrap_or_default();
        let only = Preconditions { uid: found.metadata.uid.clone(), resource_version: None };
        let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match self.requests.write(self.requests.pods(&key.namespace).delete(name, &how)).await {
            Err(error) if !is_missing(&error) && !is_conflict(&error) => {
                Err(Failed::api(PodFailed, "the pod with another configuration cannot be deleted", &error))
            }
            _ => Err(Failed::Conflict),
        }
    }

    pub(crate) async fn delete_pod(
        &self,
        key: &Key,
        vm: Option<&VirtualMachine>,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), Failed> {
        if let Some(uid) = uid {
            let api = self.requests.pods(&key.namespace);
            let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
            let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match self.requests.write(api.delete(name, &how)).await {
                Ok(answer) => {
                    let grace = |pod: &Pod| pod.metadata.deletion_grace_period_seconds != Some(0);
                    let going = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && grace(pod);
                    match answer.left().filter(going) {
                        Some(pod) => drop(self.state.cache.put_pod(&pod)),
                        None => self.state.cache.drop_pod(key, name, Some(uid)),
                    }
                }
                // Gone, or another pod of the same name: this one is no more.
                Err(error) if is_missing(&error) || is_conflict(&error) => {
                    self.state.cache.drop_pod(key, name, Some(uid));
                }
                Err(error) => return Err(Failed::api(PodFailed, "the pod cannot be deleted", &error)),
            }
        }
        match vm {
            Some(vm) => self.remove_config(key, vm, name).await,
            // They go with their owner.
            None => Ok(()),
        }
    }

    /// Writes the size of the pod. A refusal of the API server is recorded, so that the core decides when to repeat the
    /// request.
    pub(super) async fn resize_pod(
        &self,
        key: &Key,
        (name, uid): (&str, &str),
        size: &PodSize,
    ) -> Result<(), Failed> {
        let pods = self.state.cache.pods(key);
        let known = pods.iter().find(|pod| pod.view.name == name);
        let shrinks = known.and_then(|pod| pod.view.size).is_some_and(|now| now.max(*size) != *size);
        // A pod must not become smaller by a request that arrives late, after another controller has let its VM grow.
        let only = known.filter(|_| shrinks).map(|pod| json!({"resourceVersion": pod.version.to_string()}));
        let container = json!({"name": RUNNER_CONTAINER, "resources": size.resources()});
        let change =
            json!({"metadata": only.unwrap_or_else(|| json!({})), "spec": {"containers": [container]}});
        let api = self.requests.pods(&key.namespace);
        let error = match self
            .requests
            .write(api.patch_subresource("resize", name, &patching(), &Patch::Strategic(&change)))
            .await
        {
            Ok(pod) => {
                self.key_states.with(key, |state| state.resize_refused = None);
                self.state.cache.put_pod(&pod);
                return Ok(());
            }
            Err(error) => error,
        };
        match &error {
            Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 409 | 429) => {
                let gone = status.code == 404
                    && status.details.as_ref().is_some_and(|of| of.name == name && of.kind == "pods");
                if gone {
                    self.state.cache.drop_pod(key, name, Some(uid));
                    return Ok(());
                }
                let (pod, message) = (uid.to_owned(), status.message.clone());
                let refused = ResizeRefused { pod, size: *size, message, at: now() };
                tracing::info!(vm = %key, pod = name, error = %refused.message, "the pod's resize is refused");
                self.key_states.with(key, |state| state.resize_refused = Some(refused));
                Ok(())
            }
            _ => Err(Failed::api(PodFailed, "the pod cannot be resized", &error)),
        }
    }

    pub(super) async fn sync_pod(&self, key: &Key, name: &str, change: &Metadata) -> Result<(), Failed> {
        let change = json!({"metadata": {"labels": change.labels, "annotations": change.annotations}});
        let api = self.requests.pods(&key.namespace);
        match self.requests.write(api.patch(name, &patching(), &Patch::Merge(&change))).await {
            Ok(pod) => {
                self.state.cache.put_pod(&pod);
                Ok(())
            }
            Err(error) if is_missing(&error) => {
                self.state.cache.drop_pod(key, name, None);
                Ok(())
            }
            Err(error) => Err(Failed::api(PodFailed, "the pod's labels cannot be written", &error)),
        }
    }
}
