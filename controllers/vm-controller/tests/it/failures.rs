//! Controllers that die, servers that misbehave, nodes that are cut off.

use neonvm_test_support::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;

use kube::api::DeleteParams;
use neonvm_api::VirtualMachine;
use neonvm_api::names::ssh_secret_name;
use neonvm_api::virtual_machine::Phase;
use neonvm_test_cluster::refusing;
use neonvm_types::runner_protocol::{Exit, ExitReason};
use neonvm_vm_controller::run_with;
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::{Cluster, condition, phase_of};

/// A small generator, so that a failing run can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Killed anywhere, with answers lost, conflicts and lists of yesterday: one pod, never two runners.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_anywhere_leaves_one_instance() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    (config.settings.restart_pause, config.settings.restart_pause_max) = (0, 0);
    let mut dice = Dice(7);
    for round in 0..6 {
        let name = format!("vm-{round}");
        cluster.create(&name, json!({})).await;
        for turn in 0..8 {
            let controller = cluster.controller_with(config.clone());
            match dice.roll(4) {
                0 => cluster.server.fault("lose-response", 1).await,
                1 => {
                    cluster.server.fault("status", [409, 429, 500][turn % 3]).await;
                    cluster.server.fault("fail", 1 + dice.roll(3)).await;
                }
                2 => cluster.server.fault("duplicate-watch", 2).await,
                _ => {}
            }
            sleep(Duration::from_millis(dice.roll(60))).await;
            drop(controller);
            for switch in ["lose-response", "fail", "duplicate-watch"] {
                cluster.server.fault(switch, 0).await;
            }
            // Sometimes the VM ends between two observations.
            let status = cluster.vms().get(&name).await.ok().and_then(|vm| vm.status);
            if let Some(pod) = status.filter(|_| dice.roll(3) == 0).map(|status| status.pod_name)
                && cluster
                    .pods()
                    .get(&pod)
                    .await
                    .is_ok_and(|pod| pod.status.is_some_and(|s| s.phase.as_deref() == Some("Running")))
            {
                cluster.node.end(&pod, Exit::new(ExitReason::GuestPanic, "panic")).await;
            }
        }
        let controller = cluster.controller_with(config.clone());
        let vm = cluster.until_settled(&name).await;
        let pod = cluster.only_pod(&name).await;
        assert_eq!(pod.metadata.name, Some(vm.status.unwrap().pod_name));
        assert_eq!(cluster.node.most(&name), 1);
        drop(controller);
    }
    for round in 0..6 {
        cluster.vms().delete(&format!("vm-{round}"), &DeleteParams::default()).await.unwrap();
    }
    // Longer and longer: what lives too short on a slow computer does nothing.
    let mut life = 20;
    eventually("the end of all VMs", async || {
        let controller = cluster.controller_with(config.clone());
        sleep(Duration::from_millis(life + dice.roll(80))).await;
        life += 10;
        drop(controller);
        cluster.vms().list(&Default::default()).await.unwrap().items.is_empty()
    })
    .await;
    let no_pods = async || cluster.pods().list(&Default::default()).await.unwrap().items.is_empty();
    eventually("the end of all pods", no_pods).await;
}

/// W-32: a pod that cannot be ended is reported, not doubled.
#[tokio::test(flavor = "multi_thread")]
async fn w32_a_pod_on_a_node_that_is_cut_off_is_not_replaced() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    config.settings.stuck_after = 0;
    let _controller = cluster.controller_with(config);
    cluster.create("db", json!({"terminationGracePeriodSeconds": 1})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.node.cut_off.store(true, Ordering::Relaxed);
    cluster.pods().delete(&pod, &DeleteParams::default()).await.unwrap();
    let vm = cluster.until("db", "reported", |vm| condition(vm, "Degraded").1 == "PodStuckTerminating").await;
    assert_eq!((phase_of(&vm), vm.status.unwrap().restart_count), (Some(Phase::Running), 0));
    // A change of the VM causes another reconcile; it has ended when the generation is reported.
    cluster.patch("db", json!({"spec": {"terminationGracePeriodSeconds": 2}})).await;
    let generation = cluster.vms().get("db").await.unwrap().metadata.generation;
    let is_seen = |vm: &VirtualMachine| {
        vm.status.as_ref().is_some_and(|status| status.observed_generation == generation)
    };
    cluster.until("db", "the change is observed", is_seen).await;
    cluster.server.until_quiet().await;
    assert_eq!(cluster.pods_of("db").await.len(), 1);
    // The administrator confirms that the node is off.
    let how = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    cluster.node.cut_off.store(false, Ordering::Relaxed);
    cluster.pods().delete(&pod, &how).await.ok();
    cluster
        .until("db", "restarted", |vm| {
            vm.status.as_ref().unwrap().restart_count == 1 && phase_of(vm) == Some(Phase::Running)
        })
        .await;
}

/// A pod of another VM of the same name or an object in the way is reported; the VM continues when it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn obstacles_are_reported_and_waited_for() {
    let cluster = Cluster::start().await;
    let vm = cluster.create("db", json!({})).await;
    let keys = ssh_secret_name("db", vm.metadata.uid.as_deref().unwrap());
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": keys,
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": true}]}});
    // Owned by something that does not exist it would be collected; so the owner is made.
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::default_namespaced(cluster.client.clone());
    let owner = maps.create(&Default::default(), &serde_json::from_value(owner).unwrap()).await.unwrap();
    let mut foreign = foreign;
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!(owner.metadata.uid);
    cluster.secrets().create(&Default::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let _controller = cluster.controller();
    let vm = cluster.until("db", "degraded", |vm| condition(vm, "Degraded").1 == "SecretFailed").await;
    assert_eq!(phase_of(&vm), Some(Phase::Pending));
    assert!(
        condition(&vm, "Degraded").2.contains("belongs to ConfigMap x"),
        "{:?}",
        condition(&vm, "Degraded")
    );
    cluster.secrets().delete(&keys, &DeleteParams::default()).await.unwrap();
    let vm = cluster.until_settled("db").await;
    assert_eq!(condition(&vm, "Degraded").0, "False");
    cluster.server.until_events("db", &["SecretFailed"]).await;
}

/// A VM with a pod beyond a quota has a condition with the numbers, and starts when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_beyond_a_quota_starts_when_there_is_room() {
    const WHY: &str = "exceeded quota: vms, requested: requests.memory=4Gi, used: requests.memory=2Gi, limited: requests.memory=4Gi";
    let cluster = Cluster::start().await;
    let full = Arc::new(AtomicBool::new(true));
    let is_full = Arc::clone(&full);
    let client = neonvm_kit::client::connect(Some(&cluster.account)).await.unwrap();
    let client = refusing(client, move |method, uri| {
        let makes_pod = *method == Method::POST && uri.path() == "/api/v1/namespaces/default/pods";
        (makes_pod && is_full.load(Ordering::Relaxed)).then(|| {
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
                "message": format!("pods \"db\" is forbidden: {WHY}"), "code": 403})
        })
    });
    let controller = tokio::spawn(run_with(client, cluster.config.clone(), std::future::pending()));
    cluster.create("db", json!({})).await;
    let vm = cluster.until("db", "refused", |vm| condition(vm, "Degraded").1 == "QuotaExceeded").await;
    let (status, _, message) = condition(&vm, "Degraded");
    assert!(status == "True" && message.ends_with(WHY), "{message}");
    assert_eq!((phase_of(&vm), cluster.pods_of("db").await.len()), (Some(Phase::Pending), 0));
    full.store(false, Ordering::Relaxed);
    let vm = cluster.until_settled("db").await;
    assert_eq!(condition(&vm, "Degraded").0, "False");
    controller.abort();
}
