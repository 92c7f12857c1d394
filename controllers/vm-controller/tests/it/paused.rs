//! Pausing: requested from the runner, shown when reported; what a paused VM is refused.

use kube::ResourceExt as _;
use neonvm_api::virtual_machine::{Phase, PowerState};
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;

use crate::cluster::{Cluster, condition, phase_of};
use crate::runner::Temper;

impl Cluster {
    async fn until_paused(&self, paused: bool) -> neonvm_api::VirtualMachine {
        self.until("db", "paused or resumed", |vm| {
            let shown = vm.status.as_ref().unwrap().power_state == Some(PowerState::Paused);
            shown == paused && (condition(vm, "Paused").0 == "True") == paused
        })
        .await
    }
}

/// The state is desired: it survives the controller, and holds for the pod that comes next.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_paused_and_resumed_by_its_spec() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.patch("db", json!({"spec": {"powerState": "Paused"}})).await;
    let vm = cluster.until_paused(true).await;
    assert_eq!((phase_of(&vm), condition(&vm, "Available").1.as_str()), (Some(Phase::Running), "Paused"));
    assert!(cluster.node.machine(&pod).0.borrow().pause.applied);
    // A controller that ends may not have written the event yet.
    cluster.server.until_events("db", &["Paused"]).await;
    drop(controller);
    cluster.patch("db", json!({"spec": {"guest": {"cpus": {"use": 1}, "memorySlots": {"use": 2}}}})).await;
    let _controller = cluster.controller();
    let vm = cluster.until("db", "a size that waits", |vm| condition(vm, "Scaled").1 == "Paused").await;
    assert_eq!(vm.status.as_ref().unwrap().cpus, Some(MilliCpu::new(250)));
    assert_eq!(cluster.node.machine(&pod).0.borrow().memory.asked, Bytes::gib(1));
    cluster.patch("db", json!({"spec": {"powerState": "Running"}})).await;
    let vm = cluster.until_settled("db").await;
    let status = vm.status.as_ref().unwrap();
    assert_eq!((status.cpus, status.power_state), (Some(MilliCpu::new(1000)), None));
    assert_eq!((status.pod_name.as_str(), status.restart_count), (pod.as_str(), 0), "nothing was restarted");
    assert_eq!(condition(&vm, "Paused").0, "");
    cluster.server.until_events("db", &["Paused", "Resumed", "ScaledUp"]).await;
    cluster.server.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_of_a_paused_vm_is_refused_with_the_remedy() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.patch("db", json!({"spec": {"powerState": "Paused"}})).await;
    cluster.until_paused(true).await;
    cluster.begin("m", "db", json!({})).await;
    let status = cluster.until_over("m").await.status.unwrap();
    let wanted = ("Refused", "the VM is paused; resume it first: neonctl vm resume db");
    assert_eq!((status.reason.as_str(), status.message.as_str()), wanted);
    assert_eq!(cluster.until_paused(true).await.status.unwrap().pod_name, pod);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_cannot_pause_is_reported() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.node.temper.send_modify(|temper| *temper = Temper { refuses: true, ..Temper::default() });
    cluster.patch("db", json!({"spec": {"powerState": "Paused"}})).await;
    let vm = cluster.until("db", "a reason", |vm| condition(vm, "Degraded").1 == "PauseFailed").await;
    let text = condition(&vm, "Degraded").2;
    assert!(text.contains("of a version that cannot pause a VM"), "{text}");
    assert_eq!((condition(&vm, "Paused").0.as_str(), vm.name_any().as_str()), ("False", "db"));
    cluster.node.temper.send_modify(|temper| *temper = Temper::default());
    cluster.until_paused(true).await;
    cluster.until("db", "healthy", |vm| condition(vm, "Degraded").0 == "False").await;
}
