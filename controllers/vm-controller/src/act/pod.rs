//! The runner pod: made, labelled, deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_core_lifecycle::FailureReason::PodFailed;
use neonvm_core_lifecycle::pod::{self, Metadata};
use serde_json::json;

use super::secret::posting;
use super::{Failed, is_conflict, is_missing, patching, within};
use crate::cache::{Key, owner};
use crate::context::{Context, now};

impl Context {
    pub(super) async fn create_pod(&self, key: &Key, vm: &VirtualMachine, name: &str) -> Result<(), Failed> {
        let plan = pod::plan(vm, name, &self.settings(&key.namespace));
        let plan = plan.map_err(|error| Failed::new(PodFailed, error.to_string()))?;
        if vm.spec.enable_ssh {
            self.ensure_ssh(key, vm).await?;
        }
        self.write_config(key, vm, name, None).await?;
        let api = self.pods(&key.namespace);
        let made = match self.write(api.create(&posting(), &plan)).await {
            Ok(made) => made,
            Err(error) if is_conflict(&error) => {
                let read = within(api.get(name)).await;
                let read = read.map_err(|error| Failed::api(PodFailed, "the pod cannot be read", &error))?;
                if owner(&read.metadata).is_none_or(|(_, uid)| Some(uid) != vm.metadata.uid) {
                    let message = format!("pod {name} exists and is not this machine's");
                    return Err(Failed::new(PodFailed, message));
                }
                read
            }
            Err(error) => return Err(Failed::api(PodFailed, "the pod cannot be made", &error)),
        };
        self.cache.put_pod(&made);
        if vm.status.as_ref().is_none_or(|status| status.restart_count == 0) {
            let since = vm.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
            let took = u64::try_from(now().unix().saturating_sub(since)).unwrap_or(0);
            self.metrics.creation_to_runner.observe(std::time::Duration::from_secs(took));
        }
        Ok(())
    }

    pub(crate) async fn delete_pod(&self, key: &Key, name: &str, uid: Option<&str>) -> Result<(), Failed> {
        if let Some(uid) = uid {
            let api = self.pods(&key.namespace);
            let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
            let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            match self.write(api.delete(name, &how)).await {
                Ok(answer) => {
                    let grace = |pod: &Pod| pod.metadata.deletion_grace_period_seconds != Some(0);
                    let going = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && grace(pod);
                    match answer.left().filter(going) {
                        Some(pod) => drop(self.cache.put_pod(&pod)),
                        None => self.cache.drop_pod(key, name, Some(uid)),
                    }
                }
                // Gone, or another pod of the same name: this one is no more.
                Err(error) if is_missing(&error) || is_conflict(&error) => {
                    self.cache.drop_pod(key, name, Some(uid));
                }
                Err(error) => return Err(Failed::api(PodFailed, "the pod cannot be deleted", &error)),
            }
        }
        let secrets = self.secrets(&key.namespace);
        match self.write(secrets.delete(name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(Failed::api(PodFailed, "the runner's secret cannot be deleted", &error)),
        }
    }

    pub(super) async fn sync_pod(&self, key: &Key, name: &str, change: &Metadata) -> Result<(), Failed> {
        let change = json!({"metadata": {"labels": change.labels, "annotations": change.annotations}});
        let api = self.pods(&key.namespace);
        match self.write(api.patch(name, &patching(), &Patch::Merge(&change))).await {
            Ok(pod) => {
                self.cache.put_pod(&pod);
                Ok(())
            }
            Err(error) if is_missing(&error) => {
                self.cache.drop_pod(key, name, None);
                Ok(())
            }
            Err(error) => Err(Failed::api(PodFailed, "the pod's labels cannot be written", &error)),
        }
    }
}
