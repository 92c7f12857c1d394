//! Nodes that are gone, silent, or on another network than before.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use neonvm_kubelet::Network;
use neonvm_kubelet::lifecycle::{Patience, keep};
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::support::{Cluster, eventually};

const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// Nothing of a test waits for as long as a user would.
const PATIENCE: Patience = Patience {
    look: Duration::from_millis(50),
    silent: Duration::from_secs(1),
    missing: Duration::from_millis(300),
};

fn nodes(cluster: &Cluster) -> Api<Node> {
    Api::all(cluster.client.clone())
}

/// A node as its kubelet left it.
async fn put_node(cluster: &Cluster, name: &str, spec: &Value) {
    let node = json!({ "metadata": { "name": name, "labels": { "disk": "fast" } }, "spec": spec });
    nodes(cluster).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let ready = json!({ "type": "Ready", "status": "True" });
    let patch = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
    nodes(cluster).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    let lease = json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name,
        "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z" } });
    leases(cluster).create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.client.clone(), "kube-node-lease")
}

async fn node(cluster: &Cluster, name: &str) -> Value {
    serde_json::to_value(nodes(cluster).get_opt(name).await.unwrap()).unwrap()
}

fn ready(node: &Value) -> &Value {
    let all = node["status"]["conditions"].as_array().unwrap();
    &all.iter().find(|condition| condition["type"] == "Ready").unwrap()["status"]
}

async fn gone(cluster: &Cluster, name: &str) {
    let pods = cluster.pods();
    eventually(&format!("the end of {name}"), || async {
        pods.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_a_cluster_no_longer_has_go_with_their_pods() {
    let cluster = Cluster::start().await;
    for name in ["n1", "n2", "of-others"] {
        put_node(&cluster, name, &json!({})).await;
    }
    for (node, name) in [("n1", "stays"), ("n2", "lost"), ("of-others", "other"), ("never", "orphan")] {
        cluster.create(node, name, IDLE, &json!({})).await;
    }
    let keeper = tokio::spawn(keep(cluster.client.clone(), 1, PATIENCE));
    gone(&cluster, "lost").await;
    gone(&cluster, "orphan").await;
    assert_eq!(node(&cluster, "n2").await, Value::Null);
    assert!(leases(&cluster).get_opt("n2").await.unwrap().is_none());
    // A node whose kubelet is silent is not ready, and keeps its pods.
    eventually("the silent node", || async {
        (ready(&node(&cluster, "n1").await) == "Unknown").then_some(())
    })
    .await;
    for name in ["stays", "other"] {
        let pod: Option<Pod> = cluster.pods().get_opt(name).await.unwrap();
        assert!(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()), "{name}");
    }
    keeper.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_taken_for_lost_or_removed_registers_itself_again() {
    let cluster = Cluster::with_node().await;
    assert_eq!(ready(&node(&cluster, "n1").await), "True");
    let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    nodes(&cluster).patch_status("n1", &PatchParams::default(), &Patch::Strategic(lost)).await.unwrap();
    eventually("the node", || async { (ready(&node(&cluster, "n1").await) == "True").then_some(()) }).await;
    nodes(&cluster).delete("n1", &kube::api::DeleteParams::default()).await.unwrap();
    eventually("the node", || async {
        let node = node(&cluster, "n1").await;
        (!node.is_null() && node["status"]["conditions"].is_array() && ready(&node) == "True").then_some(())
    })
    .await;
}

/// As after a restore, and when another cluster has taken the number of this one's network.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_another_network_gets_its_range_and_keeps_what_people_wrote() {
    need!(needs::network_namespaces());
    let mut cluster = Cluster::start().await;
    let taint = json!({ "key": "mine", "effect": "PreferNoSchedule" });
    put_node(&cluster, "n1", &json!({ "podCIDR": "10.1.1.0/24", "unschedulable": true, "taints": [taint] }))
        .await;
    // Without a range: as a restore leaves it.
    put_node(&cluster, "n2", &json!({})).await;
    for index in 1..=2_u8 {
        let network = cluster.addresses(index);
        let pods = network.pods.to_string();
        let name = format!("n{index}");
        cluster.start_node(cluster.config(&name, Network::Namespaces(network)));
        let look = || async {
            let node = node(&cluster, &name).await;
            (node["spec"]["podCIDR"] == json!(pods) && node["status"]["addresses"].is_array()).then_some(node)
        };
        let node = eventually("the range", look).await;
        assert_eq!(node["metadata"]["labels"]["disk"], "fast");
        assert_eq!(node["spec"]["podCIDRs"], json!([pods]));
        if index == 1 {
            assert_eq!(node["spec"]["unschedulable"], true);
            let taints = node["spec"]["taints"].as_array().unwrap();
            assert!(taints.iter().any(|taint| taint["key"] == "mine"), "{taints:?}");
        }
    }
}
