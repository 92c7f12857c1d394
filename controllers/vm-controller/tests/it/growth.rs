//! A growth that the node of a VM denies leads to a migration, where the VM may be migrated and another node has room.

use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch};
use neonvm_core_vm_lifecycle::pod::PodSize;
use neonvm_test_cluster::eventually;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;

use crate::cluster::{Cluster, condition};

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_growth_leads_to_one_migration_to_a_node_with_room() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    (config.settings.growth.deferred_after, config.settings.growth.look_pause) = (1, 1);
    let _controller = cluster.controller_with(config);
    for name in ["n1", "n2"] {
        cluster.add_node(name, name == "n2").await;
    }
    cluster.create("db", json!({})).await;
    let home = cluster.until_settled("db").await.status.unwrap().pod_name;
    *cluster.node.full.lock().unwrap() = Some("Node didn't have enough resource: memory".into());
    let grows = json!({"spec": {"guest": {"cpus": {"use": 1}, "memorySlots": {"use": 4}}}});
    cluster.patch("db", grows).await;
    cluster.until("db", "denied", |vm| condition(vm, "Scaled").1 == "ResizeDeferred").await;
    cluster.server.until_quiet().await;
    let migrations = async || cluster.moves().list(&ListParams::default()).await.unwrap().items;
    assert!(migrations().await.is_empty(), "it may not be migrated");

    // It may; the only other node is closed.
    let movable = json!({"metadata": {"labels": {"autoscaling.neon.tech/auto-migration-enabled": "true"}}});
    cluster.patch("db", movable).await;
    cluster.server.until_events("db", &["GrowthNowhere"]).await;
    assert!(migrations().await.is_empty(), "no other node takes it");

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    let open = Patch::Merge(json!({"spec": {"unschedulable": false}}));
    nodes.patch("n2", &Default::default(), &open).await.unwrap();
    let name = format!("grow-{home}-1");
    let made = eventually("the migration", async || cluster.moves().get(&name).await).await;
    assert_eq!(made.labels()["vm.neon.tech/created-by-denied-growth"], "true");
    let (source, target) = cluster.until_started(&name).await;
    assert_eq!(source, home);
    let pod = cluster.pods().get(&target).await.unwrap();
    let size = PodSize::from_resources(pod.spec.unwrap().containers[0].resources.as_ref().unwrap()).unwrap();
    assert!(size.requests.cpu > MilliCpu::new(1000) && size.requests.memory > Bytes::gib(4), "{size:?}");
    cluster.carry(&source, &target).await;
    cluster.until_over(&name).await;
    let vm = cluster.until_settled("db").await.status.unwrap();
    assert_eq!((vm.node.as_str(), vm.cpus), ("n2", Some(MilliCpu::new(1000))));
    assert_eq!(vm.memory_size, Some(Bytes::gib(4).to_quantity()));
    cluster.server.until_events("db", &["GrowthMigrated"]).await;
    cluster.server.until_quiet().await;
    assert_eq!(migrations().await.len(), 1, "one move for one growth");
}

/// The device plugin of a node is away while its DaemonSet is rolled: nothing is migrated, and the growth goes on afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_growth_that_devices_delay_leads_to_no_migration() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    (config.settings.growth.deferred_after, config.settings.growth.look_pause) = (1, 1);
    config.settings.devices_pause = 1;
    let _controller = cluster.controller_with(config);
    for name in ["n1", "n2"] {
        cluster.add_node(name, false).await;
    }
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    let movable = json!({"metadata": {"labels": {"autoscaling.neon.tech/auto-migration-enabled": "true"}}});
    cluster.patch("db", movable).await;
    let away = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices neonvm/kvm, which is \
                unexpected";
    *cluster.node.full.lock().unwrap() = Some(away.into());
    let grows = json!({"spec": {"guest": {"cpus": {"use": 1}, "memorySlots": {"use": 4}}}});
    cluster.patch("db", grows).await;
    let denied = |vm: &_| condition(vm, "Scaled").1 == "DevicesUnavailable";
    let vm = cluster.until("db", "denied", denied).await;
    let (since, pod) = (vm.metadata.resource_version, vm.status.unwrap().pod_name);
    let generation = async || cluster.pods().get(&pod).await.unwrap().metadata.generation.unwrap();
    let first = generation().await;
    eventually("the request is repeated", async || (generation().await >= first + 4).then_some(())).await;
    let vm = cluster.until("db", "denied", denied).await;
    assert_eq!(vm.metadata.resource_version, since, "that changes nothing of the status");
    *cluster.node.full.lock().unwrap() = None;
    let vm = cluster.until_settled("db").await.status.unwrap();
    assert_eq!((vm.node.as_str(), vm.cpus), ("n1", Some(MilliCpu::new(1000))));
    assert!(cluster.moves().list(&ListParams::default()).await.unwrap().items.is_empty());
}
