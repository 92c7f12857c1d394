//! What a kube-controller-manager does about nodes, which a local cluster does not have: nodes that the cluster no longer has are
//! removed, a node whose kubelet sends no heartbeat is not ready, and pods of nodes that do not exist are removed, so that their owners
//! start them elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::node_object::{LEASES, is_ready};
use crate::pod::state_file;
use crate::stop::{self, RunningPod};
use crate::storage;

/// How long this waits before it acts.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two looks.
    pub look: Duration,
    /// After the last heartbeat of a node, and after the start.
    pub silent: Duration,
    /// Before the pods of a node that does not exist are removed: its kubelet may register it again.
    pub missing: Duration,
}

impl Default for Patience {
    /// As a kube-controller-manager has them.
    fn default() -> Self {
        let long = Duration::from_secs(40);
        Self { look: Duration::from_secs(10), silent: long, missing: long }
    }
}

/// Whether a cluster of so many nodes does not have one of this name. Nodes of other names are of other programs.
fn is_surplus(name: &str, count: u8) -> bool {
    let number = name.strip_prefix('n').and_then(|digits| digits.parse::<u8>().ok());
    number.is_some_and(|number| number > count && name == format!("n{number}"))
}

/// Ends what runs on nodes that a cluster of `count` nodes does not have, and removes their directories; `data` is the directory of the
/// cluster, which is not running. Runners are requested to stop, and killed after `longest`. Blocks.
///
/// # Errors
/// If a directory cannot be removed.
pub fn discard_surplus(data: &Path, count: u8, longest: Duration) -> std::io::Result<()> {
    let entries = std::fs::read_dir(data.join("nodes")).into_iter().flatten().flatten();
    for node in entries.filter(|node| node.file_name().to_str().is_some_and(|name| is_surplus(name, count))) {
        let pods: Vec<RunningPod> = stop::running_on(&node.path());
        for pod in stop::stop(pods, longest) {
            tracing::warn!(pod = pod.name, "a runner of a node that is no longer there is killed");
        }
        state_file::pods_of(&node.path()).for_each(|pod| state_file::kill_pod(pod.path()));
        remove_but_volumes(&node.path())?;
    }
    Ok(())
}

/// Removes the directory of a node. Its persistent volumes stay: they are there again when the cluster has the node again.
fn remove_but_volumes(node: &Path) -> std::io::Result<()> {
    if storage::is_empty(node) {
        return std::fs::remove_dir_all(node);
    }
    tracing::warn!(node = %node.display(), "the persistent volumes of a node that is no longer there stay");
    for entry in std::fs::read_dir(node)?.flatten().filter(|entry| entry.file_name() != storage::DIRECTORY) {
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Looks after the nodes of a cluster that has `n1` to `nCOUNT`; never returns.
pub async fn keep(client: Client, count: u8, patience: Patience) {
    let mut lifecycle =
        Lifecycle { client, count, patience, started: Instant::now(), missing: BTreeMap::new() };
    loop {
        match tokio::time::timeout(patience.silent, lifecycle.look()).await {
            Ok(Ok(())) => tokio::time::sleep(patience.look).await,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the nodes cannot be looked after");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(_) => tracing::warn!("the nodes cannot be looked after: the API server does not answer"),
        }
    }
}

struct Lifecycle {
    client: Client,
    count: u8,
    patience: Patience,
    started: Instant,
    /// Nodes that pods name and that do not exist, and since when.
    missing: BTreeMap<String, Instant>,
}

impl Lifecycle {
    async fn look(&mut self) -> Result<(), kube::Error> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let (surplus, own): (Vec<Node>, Vec<Node>) =
            nodes.into_iter().partition(|node| is_surplus(&name(node), self.count));
        for node in &surplus {
            self.remove(&name(node)).await?;
        }
        if self.started.elapsed() >= self.patience.silent {
            for node in own.iter().filter(|node| is_ready(node)) {
                self.mark_silent(node, &name(node)).await?;
            }
        }
        self.collect(&own.iter().map(name).collect()).await
    }

    /// The node goes first: no pod is bound to it again.
    async fn remove(&self, name: &str) -> Result<(), kube::Error> {
        tracing::info!(node = name, nodes = self.count, "removing a node that the cluster no longer has");
        let how = DeleteParams::default();
        unless_gone(Api::<Node>::all(self.client.clone()).delete(name, &how).await.map(drop))?;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        unless_gone(leases.delete(name, &how).await.map(drop))?;
        let on_it = ListParams::default().fields(&format!("spec.nodeName={name}"));
        for pod in Api::<Pod>::all(self.client.clone()).list(&on_it).await? {
            self.lose(&pod, name).await?;
        }
        Ok(())
    }

    /// A node without heartbeats is not ready; its kubelet reports itself again.
    async fn mark_silent(&self, node: &Node, name: &str) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let Some(lease) = leases.get_opt(name).await? else { return Ok(()) };
        let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
        let silent = SignedDuration::try_from(self.patience.silent).unwrap_or(SignedDuration::MAX);
        let now = Timestamp::now();
        if renewed.is_none_or(|at| now.duration_since(at) < silent) {
            return Ok(());
        }
        tracing::warn!(node = name, "the node sends no heartbeat");
        let now = now.round(jiff::Unit::Second).unwrap_or_default().to_string();
        let condition = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "the kubelet of the node sends no heartbeat", "lastTransitionTime": now });
        // Only what was looked at: a kubelet that has just reported itself is right.
        let patch = json!({ "metadata": { "resourceVersion": node.metadata.resource_version },
            "status": { "conditions": [condition] } });
        let api: Api<Node> = Api::all(self.client.clone());
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        unless_gone(patched.map(drop))
    }

    /// Removes pods of nodes that have not existed for a while.
    async fn collect(&mut self, nodes: &BTreeSet<String>) -> Result<(), kube::Error> {
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let lost: BTreeMap<String, Vec<&Pod>> = pods.iter().fold(BTreeMap::new(), |mut lost, pod| {
            if let Some(name) = node(pod).filter(|name| !nodes.contains(name)) {
                lost.entry(name).or_insert_with(Vec::new).push(pod);
            }
            lost
        });
        self.missing.retain(|name, _| lost.contains_key(name));
        for (name, pods) in lost {
            let since = *self.missing.entry(name.clone()).or_insert_with(Instant::now);
            let api: Api<Node> = Api::all(self.client.clone());
            if since.elapsed() < self.patience.missing || api.get_opt(&name).await?.is_some() {
                continue;
            }
            for pod in pods {
                self.lose(pod, &name).await?;
            }
        }
        Ok(())
    }

    /// Records that a pod is lost with its node, and removes it.
    async fn lose(&self, pod: &Pod, node: &str) -> Result<(), kube::Error> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        tracing::warn!(namespace, name, node, "removing a pod: its node does not exist");
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let message = format!("node {node} no longer exists");
        let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": message });
        let status = json!({ "phase": "Failed", "message": message, "conditions": [condition] });
        let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
        unless_gone(
            api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop),
        )?;
        let only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let how = DeleteParams::default().grace_period(0).preconditions(only);
        unless_gone(api.delete(name, &how).await.map(drop))
    }
}

/// What is gone, or was changed meanwhile, is looked at again.
fn unless_gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_beyond_the_count_are_surplus() {
        for name in ["n3", "n253"] {
            assert!(is_surplus(name, 2), "{name}");
        }
        for name in ["n1", "n2", "n03", "n", "node3", "n3a", "n999", "N3", "3", "n+3"] {
            assert!(!is_surplus(name, 2), "{name}");
        }
    }
}
