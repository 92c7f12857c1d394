//! What authors may request.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::Power;
use serde_json::json;

use crate::cluster::{Cluster, condition};

async fn label(cluster: &Cluster, power: Power, value: &str) {
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let change = json!({"metadata": {"labels": {power.label(): value}}});
    api.patch("default", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

/// C1: a VM of an author that may not run commands on the node gets no pod, and one with the right label does.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_vm_has_no_pod_until_its_namespace_allows_it() {
    let cluster = Cluster::start().await;
    label(&cluster, Power::InitScript, "true").await;
    cluster.create("db", json!({"initScript": "id"})).await;
    // Admission cannot see what comes after it: the controller looks again.
    label(&cluster, Power::InitScript, "false").await;
    let _controller = cluster.controller();
    let vm =
        cluster.until("db", "refused", |vm| condition(vm, "Available").2.contains("spec.initScript")).await;
    let message = condition(&vm, "Available").2;
    assert!(message.contains("allow.vm.neon.tech/init-script=true"), "{message}");
    assert_eq!(cluster.pods_of("db").await.len(), 0);
    label(&cluster, Power::InitScript, "true").await;
    cluster.until_settled("db").await;
    assert_eq!(cluster.pods_of("db").await.len(), 1);
}
