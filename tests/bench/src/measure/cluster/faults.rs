//! Services that are restarted one after the other, and a node that dies.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use serde_json::json;

use super::agents::{PERIOD, Totals};
use super::kubelets::node_name;
use super::services::Kind;
use super::view::{Seen, disturbed};
use super::{Cluster, NAME, until};
use crate::report::Row;

/// The label that a changed VM gets, and its pod after it.
const LABEL: &str = "bench/round";
/// A VM of the fleet that is changed.
const CHANGED: &str = "vm-0";
const LOOK: Duration = Duration::from_millis(5);

/// Restarts a service; the rows of that.
pub(super) async fn restart(cluster: &mut Cluster, kind: Kind) -> anyhow::Result<Vec<Row>> {
    let before = cluster.view.vms();
    cluster.agents.account.take();
    let begun = Instant::now();
    let ended = cluster.services.end(kind).await?;
    let down = Instant::now();
    cluster.services.start(kind).await?;
    let again = match kind {
        Kind::ApiServer => {
            let ready = begun.elapsed();
            let followed = follows(cluster, kind.name(), begun).await?;
            format!("/readyz after {:.2} s; a changed VM's pod after {:.2} s", ready.as_secs_f64(), followed)
        }
        Kind::Controller => {
            let followed = follows(cluster, kind.name(), begun).await?;
            let all = cluster.running();
            until("all runners are connected again", || cluster.runners.streams() >= all).await?;
            let connected = begun.elapsed().as_secs_f64();
            format!("a changed VM's pod after {followed:.2} s; all runners connected after {connected:.2} s")
        }
        Kind::Scheduler => {
            until("the scheduler permits", || cluster.agents.permitted_since(down).0 > 0).await?;
            format!("first permit after {:.2} s", begun.elapsed().as_secs_f64())
        }
    };
    let works = begun.elapsed().as_secs_f64();
    until("every VM has a permit again", || {
        let (permitted, all) = cluster.agents.permitted_since(down);
        permitted >= all
    })
    .await?;
    let permitted = begun.elapsed().as_secs_f64();
    let requests = cluster.agents.account.take();
    let name = kind.name();
    let note = format!(
        "SIGTERM to its end {:.2} s; {again}; every VM permitted after {permitted:.1} s, of which {} s are the agents' pause; {}",
        ended.as_secs_f64(),
        PERIOD.as_secs(),
        requests.failures()
    );
    Ok(vec![
        Row::at_most(NAME, &format!("{name} restarted → it works again"), works, "s", 10.0).note(note),
        harm(&format!("{name} restarted: VMs that restarted or lost a permit"), cluster, &before, &requests),
    ])
}

fn harm(what: &str, cluster: &Cluster, before: &HashMap<String, Seen>, requests: &Totals) -> Row {
    let restarted = disturbed(before, &cluster.view.vms());
    let note = format!("{restarted} restarted, {} permitted less than before", requests.lost);
    Row::at_most(NAME, what, (restarted + requests.lost) as f64, "", 0.0).note(note)
}

/// Changes a label of a VM, and waits until its pod has it: the controller works. Seconds since `begun`.
async fn follows(cluster: &Cluster, round: &str, begun: Instant) -> anyhow::Result<f64> {
    // Its connections are new, whatever has been restarted.
    let client = cluster.services.client().await?;
    let vms: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod = cluster.view.vm(CHANGED).context("there is no VM to change")?.pod;
    let change = Patch::Merge(json!({"metadata": {"labels": {LABEL: round}}}));
    vms.patch(CHANGED, &PatchParams::default(), &change).await?;
    while begun.elapsed() < super::PATIENCE {
        let labels = pods.get(&pod).await?.metadata.labels.unwrap_or_default();
        if labels.get(LABEL).is_some_and(|value| value == round) {
            return Ok(begun.elapsed().as_secs_f64());
        }
        tokio::time::sleep(LOOK).await;
    }
    anyhow::bail!("the controller does not change a pod")
}

/// A node dies with its VMs: all of them run on other nodes again.
pub(super) async fn node(cluster: &mut Cluster) -> anyhow::Result<Vec<Row>> {
    let node = node_name(cluster.nodes / 2);
    let before = cluster.view.vms();
    let pods = cluster.kubelets.on(&node);
    ensure!(!pods.is_empty(), "the node {node} has no VMs");
    let here: HashSet<&String> =
        before.iter().filter(|(_, vm)| vm.node == node).map(|(name, _)| name).collect();
    let (victims, others): (Vec<_>, Vec<_>) = before.iter().partition(|(name, _)| here.contains(name));
    cluster.agents.account.take();
    let addresses: Vec<_> = pods.iter().map(|(_, address)| *address).collect();
    cluster.runners.kill(&addresses).await?;
    let begun = Instant::now();
    cluster.kubelets.lose(&node).await?;
    let deleted = begun.elapsed().as_secs_f64();
    let elsewhere = |name: &str, pod: &str| {
        cluster
            .view
            .vm(name)
            .is_some_and(|vm| vm.since.is_some() && vm.pod != pod && !vm.node.is_empty() && vm.node != node)
    };
    until("the VMs of the node run elsewhere", || victims.iter().all(|(name, vm)| elsewhere(name, &vm.pod)))
        .await?;
    let running = begun.elapsed().as_secs_f64();
    until("they have permits", || cluster.agents.without_permit() == 0).await?;
    let permitted = begun.elapsed().as_secs_f64();
    let nodes: HashSet<String> =
        victims.iter().filter_map(|(name, _)| cluster.view.vm(name)).map(|vm| vm.node).collect();
    let others = others.into_iter().map(|(name, vm)| (name.clone(), vm.clone())).collect();
    let requests = cluster.agents.account.take();
    let note = format!(
        "on {} nodes, pods deleted within {deleted:.2} s, permitted after {permitted:.2} s. Before that Kubernetes waits 40 to 50 s \
         for a heartbeat and then for the toleration: 30 s for VMs, 300 s by default",
        nodes.len()
    );
    Ok(vec![
        Row::at_most(
            NAME,
            &format!("a node with {} VMs is deleted → all Running elsewhere", victims.len()),
            running,
            "s",
            5.0,
        )
        .note(note),
        harm("the same: other VMs that restarted or lost a permit", cluster, &others, &requests),
    ])
}
