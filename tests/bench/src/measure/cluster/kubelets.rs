//! Simulated kubelets of all nodes: a pod that is bound runs a moment later, at an address of its own; one that is deleted ends.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::Semaphore;

use super::agents::Agents;
use crate::fleet::{mark_running, pod_address};
use crate::measure::objects;

/// Requests to the API server at the same time.
const AT_ONCE: usize = 64;
/// Pause after a request that failed, as while the API server is started again.
const RETRY: Duration = Duration::from_millis(200);

/// Name of the node with this number.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// Creates the nodes: 64 CPUs and 256 GiB each.
pub(super) async fn create(client: &Client, nodes: usize) -> anyhow::Result<()> {
    objects::create::<Node>(client, false, nodes, |number| {
        let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti",
            "neonvm/kvm": "1000", "neonvm/vhost-net": "1000"});
        let name = node_name(number);
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts, "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}]}})
    })
    .await?;
    // A new node has the taint of one that is not ready, until its kubelet reports.
    let api: Api<Node> = Api::all(client.clone());
    let ready = Patch::Merge(json!({"spec": {"taints": null}}));
    for number in 0..nodes {
        api.patch(&node_name(number), &PatchParams::default(), &ready).await?;
    }
    Ok(())
}

/// A pod that runs.
#[derive(Clone, Debug)]
struct Placed {
    node: String,
    address: Ipv4Addr,
}

/// All kubelets.
pub(super) struct Kubelets {
    client: Client,
    agents: Arc<Agents>,
    pods: Mutex<HashMap<String, Placed>>,
    started: AtomicU32,
    changes: AtomicU64,
    places: Arc<Semaphore>,
}

impl Kubelets {
    pub(super) fn new(client: Client, agents: Arc<Agents>) -> Arc<Self> {
        Arc::new(Self {
            client,
            agents,
            pods: Mutex::default(),
            started: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<String, Placed>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes of pods so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn api(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Follows the pods; never returns.
    pub(super) async fn serve(self: Arc<Self>) {
        let mut events = watcher(self.api(), watcher::Config::default()).default_backoff().boxed();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Apply(pod))) => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                    self.take(&pod);
                }
                Ok(Some(watcher::Event::InitApply(pod))) => self.take(&pod),
                Ok(Some(watcher::Event::Delete(pod))) => self.forget(&pod.name_any()),
                _ => {}
            }
        }
    }

    fn take(self: &Arc<Self>, pod: &Pod) {
        let (name, kubelets) = (pod.name_any(), Arc::clone(self));
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        if pod.metadata.deletion_timestamp.is_some() {
            self.forget(&name);
            tokio::spawn(async move {
                kubelets.api().delete(&name, &DeleteParams::default().grace_period(0)).await.ok();
            });
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, None | Some("Pending")) || self.pods().contains_key(&name) {
            return;
        }
        let address = pod_address(self.started.fetch_add(1, Ordering::Relaxed) + 1);
        self.pods().insert(name.clone(), Placed { node: node.clone(), address });
        tokio::spawn(async move { kubelets.start(name, node, address).await });
    }

    async fn start(&self, name: String, node: String, address: Ipv4Addr) {
        let api = self.api();
        while self.pods().contains_key(&name) {
            let Ok(_place) = self.places.acquire().await else { return };
            match mark_running(&api, &name, address).await {
                Ok(()) => return self.agents.start(&node, &name),
                // It is gone.
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    fn forget(&self, name: &str) {
        self.pods().remove(name);
        self.agents.stop(name);
    }

    /// Pods of a node and their addresses.
    pub(super) fn on(&self, node: &str) -> Vec<(String, Ipv4Addr)> {
        let pods = self.pods();
        let here = pods.iter().filter(|(_, placed)| placed.node == node);
        here.map(|(name, placed)| (name.clone(), placed.address)).collect()
    }

    /// A node that is gone for good, as the cluster's own controllers show it: the node is deleted, then its pods, without grace.
    pub(super) async fn lose(&self, node: &str) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete(node, &DeleteParams::default()).await.context("the node cannot be deleted")?;
        let (api, now) = (self.api(), DeleteParams::default().grace_period(0));
        for (name, _) in self.on(node) {
            api.delete(&name, &now).await.with_context(|| format!("pod {name} cannot be deleted"))?;
        }
        Ok(())
    }
}
