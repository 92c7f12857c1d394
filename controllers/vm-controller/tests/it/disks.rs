//! A claim that is expanded: requested from the runner, shown when reported, with one event.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::Bytes;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};
use crate::runner::Temper;

fn spec() -> Value {
    json!({"disks": [{"name": "data", "mountPath": "/data"}], "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]})
}

/// Whether the status shows that the guest has a disk of this size.
fn has(vm: &VirtualMachine, size: &str) -> bool {
    let volume = vm.status.as_ref().and_then(|status| status.volumes.first());
    volume.and_then(|volume| volume.size).is_some_and(|now| now.to_string() == size)
}

impl Cluster {
    /// As the driver of the volume writes it.
    async fn expand(&self, claim: &str, size: &str) {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "default");
        let change = json!({"status": {"phase": "Bound", "capacity": {"storage": size}}});
        claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_grows_with_its_claim_while_the_vm_runs() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", spec()).await;
    let before = cluster.until_settled("db").await.status.unwrap();
    cluster.until("db", "the size of its disk", |vm| has(vm, "1Gi")).await;
    cluster.expand("data-db", "2Gi").await;
    let vm = cluster.until("db", "a larger disk", |vm| has(vm, "2Gi")).await;
    let status = vm.status.unwrap();
    assert_eq!((status.pod_name.as_str(), status.restart_count), (before.pod_name.as_str(), 0));
    assert_eq!(cluster.node.machine(&before.pod_name).0.borrow().disks["data"], Bytes::gib(2));
    cluster.server.until_events("db", &["DiskGrown"]).await;
    cluster.server.until_quiet().await;
    cluster.server.nothing_forbidden().await;
}

/// Limits of the spec are there from the start, and change with it.
#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_disk_follow_the_spec() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    let limited = |iops: u32| json!({"diskLimits": [{"disk": "rootdisk", "iops": iops}]});
    cluster.create("db", limited(100)).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    let has = |vm: &VirtualMachine, iops: Option<u32>| {
        let limits = vm.status.iter().flat_map(|status| &status.disk_limits);
        limits.map(|limit| limit.iops).collect::<Vec<_>>() == iops.map(Some).into_iter().collect::<Vec<_>>()
    };
    cluster.until("db", "its limits", |vm| has(vm, Some(100))).await;
    let patch = async |spec: Value| {
        let change = Patch::Merge(json!({"spec": spec}));
        cluster.vms().patch("db", &PatchParams::default(), &change).await.unwrap();
    };
    patch(limited(200)).await;
    cluster.until("db", "other limits", |vm| has(vm, Some(200))).await;
    cluster.node.machine(&pod).change(|status| {
        status.disk_limits.values_mut().for_each(|disk| disk.iops_bind = true);
    });
    cluster.server.until_events("db", &["DiskLimited"]).await;
    patch(json!({"diskLimits": null})).await;
    let vm = cluster.until("db", "no limits", |vm| has(vm, None)).await;
    assert_eq!(vm.status.unwrap().pod_name, pod, "nothing was restarted");
    cluster.server.until_quiet().await;
    cluster.server.nothing_forbidden().await;
}

/// A refusal, as during a migration, is no failure of the VM, and is not repeated in a loop.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_is_made_again_later() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", spec()).await;
    cluster.until_settled("db").await;
    cluster.until("db", "the size of its disk", |vm| has(vm, "1Gi")).await;
    cluster.node.temper.send_modify(|temper| *temper = Temper { refuses: true, ..Temper::default() });
    cluster.expand("data-db", "2Gi").await;
    cluster.server.until_quiet().await;
    let vm = cluster.vms().get("db").await.unwrap();
    assert!(has(&vm, "1Gi") && condition(&vm, "Degraded").0 == "False", "{:?}", vm.status);
    // Another size is another request.
    cluster.node.temper.send_modify(|temper| *temper = Temper::default());
    cluster.expand("data-db", "3Gi").await;
    cluster.until("db", "a larger disk", |vm| has(vm, "3Gi")).await;
}
