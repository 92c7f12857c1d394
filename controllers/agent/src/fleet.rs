//! The VMs of this node: each that is to be scaled has a task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use neonvm_api::VirtualMachine;
use neonvm_api::names::{TRUE, label};
use neonvm_api::virtual_machine::Phase;
use neonvm_types::NamespacedName;
use neonvm_types::agent_inspect::VmInspect;

use crate::shared::Shared;
use crate::vm::{self, Handle};

/// All VMs whose status names this node.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    node: String,
    members: Mutex<BTreeMap<NamespacedName, Member>>,
}

struct Member {
    vm: VirtualMachine,
    /// There while the VM is to be scaled; the pod it runs in.
    scaled: Option<(String, Arc<Handle>)>,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("node", &self.node).finish_non_exhaustive()
    }
}

fn key(vm: &VirtualMachine) -> NamespacedName {
    let meta = &vm.metadata;
    NamespacedName::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The pod of a VM that is to be scaled by the agent of this node. Upstream drops a VM while it moves; then nobody scales it.
fn to_scale<'a>(vm: &'a VirtualMachine, node: &str, scheduler: &str) -> Option<&'a str> {
    let status = vm.status.as_ref()?;
    let enabled = vm.metadata.labels.as_ref()?.get(label::SCALING_ENABLED).is_some_and(|value| value == TRUE);
    let alive = matches!(status.phase, Some(Phase::Running | Phase::Scaling | Phase::PreMigrating));
    let here = status.node == node && !status.pod_ip.is_empty() && !status.pod_name.is_empty();
    let ours = vm.spec.scheduler_name.is_empty() || vm.spec.scheduler_name == scheduler;
    let leaving = vm.metadata.deletion_timestamp.is_some();
    (enabled && alive && here && ours && !leaving).then_some(status.pod_name.as_str())
}

impl Fleet {
    pub(crate) fn new(shared: Arc<Shared>, node: String) -> Self {
        Self { shared, node, members: Mutex::default() }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the VMs of this node; never returns. Only they are sent by the server, where it can select them.
    pub(crate) async fn watch(&self) {
        let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(self.shared.client.clone());
        let own = watcher::Config::default().fields(&format!("status.node={}", self.node));
        let mut events = watcher(api.clone(), own).default_backoff().boxed();
        let mut listed = Vec::new();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => listed.clear(),
                Ok(Some(watcher::Event::InitApply(vm))) => {
                    if let Some(key) = self.take(vm).await {
                        listed.push(key);
                    }
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    self.members().retain(|key, _| listed.contains(key));
                    listed = Vec::new();
                }
                Ok(Some(watcher::Event::Apply(vm))) => drop(self.take(vm).await),
                Ok(Some(watcher::Event::Delete(vm))) => {
                    let meta = match &vm.0 {
                        Ok(vm) => &vm.metadata,
                        Err(invalid) => &invalid.metadata,
                    };
                    let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
                    let key = NamespacedName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
                    self.members().remove(&key);
                }
                Ok(None) => return,
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 400 => {
                    tracing::warn!(%status, "VMs cannot be selected by node here: all are watched; update the definition of VirtualMachine");
                    events = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
                }
                Err(error) => tracing::warn!(%error, "VMs cannot be watched"),
            }
        }
    }

    /// Takes an object in. One that cannot be read leaves what is known as it is.
    async fn take(&self, vm: DeserializeGuard<VirtualMachine>) -> Option<NamespacedName> {
        let vm = match vm.0 {
            Ok(vm) => vm,
            Err(invalid) => {
                let (namespace, name) = (invalid.metadata.namespace, invalid.metadata.name);
                tracing::error!(?namespace, ?name, error = %invalid.error, "a VM cannot be read; it is left alone");
                return Some(NamespacedName::new(namespace?, name?));
            }
        };
        let key = key(&vm);
        if vm.status.as_ref().is_none_or(|status| status.node != self.node) {
            self.members().remove(&key);
            return None;
        }
        let told = self.put(&key, &vm);
        if let Some(handle) = told {
            handle.object(vm).await;
        }
        Some(key)
    }

    /// Keeps an object; the task to tell of it, if there was one before.
    fn put(&self, key: &NamespacedName, vm: &VirtualMachine) -> Option<Arc<Handle>> {
        let endpoint = vm.metadata.labels.as_ref().and_then(|all| all.get(label::ENDPOINT_ID));
        self.shared.scaling_events.endpoint(key, endpoint.map(String::as_str));
        let pod = to_scale(vm, &self.node, &self.shared.config.scheduler.scheduler_name).map(str::to_owned);
        let mut members = self.members();
        let before = members.remove(key).and_then(|member| member.scaled);
        let same = before.filter(|(old, _)| pod.as_ref() == Some(old));
        let told = same.as_ref().map(|(_, handle)| Arc::clone(handle));
        let scaled = match (same, pod) {
            (Some(same), _) => Some(same),
            (None, None) => None,
            (None, Some(pod)) => vm::start(Arc::clone(&self.shared), vm).map(|handle| {
                tracing::info!(vm = %key, pod, "is scaled from now on");
                self.shared.metrics.count("autoscaling_agent_runner_starts", &[]);
                (pod, Arc::new(handle))
            }),
        };
        members.insert(key.clone(), Member { vm: vm.clone(), scaled });
        told
    }

    /// All objects.
    pub(crate) fn objects(&self) -> Vec<VirtualMachine> {
        self.members().values().map(|member| member.vm.clone()).collect()
    }

    /// What all VMs that are scaled look like, or the one of this name.
    pub(crate) async fn views(&self, only: Option<&NamespacedName>) -> Vec<VmInspect> {
        let handles: Vec<Arc<Handle>> = self
            .members()
            .iter()
            .filter(|(key, _)| only.is_none_or(|only| only == *key))
            .filter_map(|(_, member)| member.scaled.as_ref().map(|(_, handle)| Arc::clone(handle)))
            .collect();
        let mut views = Vec::with_capacity(handles.len());
        for handle in handles {
            views.extend(handle.view().await);
        }
        views
    }

    /// Ends all tasks.
    pub(crate) fn clear(&self) {
        self.members().clear();
    }
}
