//! Sizes: requested from the runner, shown when observed.

use neonvm_api::virtual_machine::Phase;
use neonvm_test_cluster::eventually;
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;

use crate::cluster::{Cluster, condition, phase_of};
use crate::runner::Temper;

#[tokio::test(flavor = "multi_thread")]
async fn sizes_go_up_and_down_with_pod_annotations_and_revisions() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    for (milli, slots, text) in [(2000_u32, 4_u16, "2"), (500, 2, "500m"), (250, 1, "250m")] {
        let revision = json!({"revision": {"value": slots, "flags": 1}, "updatedAt": "2024-07-01T11:00:00Z"});
        let change = json!({"spec": {"targetRevision": revision,
            "guest": {"cpus": {"use": MilliCpu::new(milli)}, "memorySlots": {"use": slots}}}});
        cluster.patch("db", change).await;
        let vm = cluster
            .until("db", "scaled", |vm| {
                let status = vm.status.as_ref().unwrap();
                status.cpus == Some(MilliCpu::new(milli))
                    && status.memory_size == Some(Bytes::gib(u32::from(slots)).to_quantity())
                    && status.current_revision.is_some_and(|now| now.revision.value == i64::from(slots))
                    && condition(vm, "Scaled").0 == "True"
            })
            .await;
        assert_eq!(phase_of(&vm), Some(Phase::Running));
        assert_eq!(vm.status.as_ref().unwrap().observed_generation, vm.metadata.generation);
        let machine = cluster.node.machine(&pod).0.borrow().clone();
        assert_eq!(
            (machine.cpu.asked, machine.memory.asked),
            (MilliCpu::new(milli), Bytes::gib(u32::from(slots)))
        );
        let usage = format!(r#"{{"cpu":"{text}","memory":"{slots}Gi"}}"#);
        eventually(&format!("{usage} at the pod"), async || {
            let annotations = cluster.pods().get(&pod).await.unwrap().metadata.annotations.unwrap();
            (annotations["vm.neon.tech/usage"] == usage).then_some(())
        })
        .await;
    }
    cluster.server.until_events("db", &["ScaledUp", "ScaledDown"]).await;
}

/// The pod requests what the VM has and what it takes beside it; a node without room denies, with its words, until it has room.
#[tokio::test(flavor = "multi_thread")]
async fn the_pod_has_the_size_of_its_vm_or_the_node_denies_it() {
    use neonvm_core_vm_lifecycle::pod::{PodSize, size};
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let vm = cluster.until_settled("db").await;
    let name = vm.status.as_ref().unwrap().pod_name.clone();
    let guest = |milli, gib| SizeRequest { cpu: MilliCpu::new(milli), memory: Bytes::gib(gib) };
    let of = |guest| size(&vm, guest, false, &neonvm_core_vm_lifecycle::Settings::default());
    let shown = async |wanted: PodSize| {
        eventually(&format!("{wanted:?} at the pod"), async || {
            let pod = cluster.pods().get(&name).await.unwrap();
            let written =
                PodSize::from_resources(pod.spec.unwrap().containers[0].resources.as_ref().unwrap());
            (written == Some(wanted)).then_some(())
        })
        .await;
    };
    shown(of(guest(250, 1))).await;
    *cluster.node.full.lock().unwrap() = Some("Node didn't have enough resource: memory".into());
    let change = json!({"spec": {"guest": {"cpus": {"use": 1}, "memorySlots": {"use": 4}}}});
    cluster.patch("db", change).await;
    let denied = cluster.until("db", "denied", |vm| condition(vm, "Scaled").1 == "ResizeDeferred").await;
    let text = condition(&denied, "Scaled").2;
    assert!(text.contains("denied by node n1: Node didn't have enough resource: memory"), "{text}");
    assert_eq!(denied.status.as_ref().unwrap().memory_size, Some(Bytes::gib(1).to_quantity()));
    assert_eq!(cluster.node.machine(&name).0.borrow().memory.asked, Bytes::gib(1));
    cluster.server.until_events("db", &["ScaleDenied"]).await;
    cluster.server.until_quiet().await;
    // The VM gives in, and grows when there is room.
    cluster
        .patch("db", json!({"spec": {"guest": {"cpus": {"use": "250m"}, "memorySlots": {"use": 1}}}}))
        .await;
    cluster.until_settled("db").await;
    shown(of(guest(250, 1))).await;
    *cluster.node.full.lock().unwrap() = None;
    cluster.patch("db", json!({"spec": {"guest": {"memorySlots": {"use": 2}}}})).await;
    cluster.until_settled("db").await;
    shown(of(guest(250, 2))).await;
}

/// W-33: a guest that keeps its memory is reported with the size it has; nothing goes round and round.
#[tokio::test(flavor = "multi_thread")]
async fn w33_memory_that_is_not_released_is_reported() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({"guest": {"memorySlots": {"use": 4}}})).await;
    cluster.until_settled("db").await;
    cluster.node.temper.send_replace(Temper { keeps: Some(Bytes::gib(3)), refuses: false });
    cluster.patch("db", json!({"spec": {"guest": {"memorySlots": {"use": 1}}}})).await;
    let vm = cluster.until("db", "limited", |vm| condition(vm, "Scaled").1 == "MemoryNotReleased").await;
    assert_eq!(phase_of(&vm), Some(Phase::Running));
    assert!(
        condition(&vm, "Scaled").2.contains("reached 250m CPU and 3Gi"),
        "{:?}",
        condition(&vm, "Scaled")
    );
    assert_eq!(vm.status.as_ref().unwrap().memory_size, Some(Bytes::gib(3).to_quantity()));
    cluster.server.until_events("db", &["ScaleLimited"]).await;
    cluster.server.until_quiet().await;
    let count =
        cluster.server.event_reasons("db").await.iter().filter(|reason| *reason == "ScaleLimited").count();
    assert_eq!(count, 1);
    cluster.patch("db", json!({"spec": {"guest": {"memorySlots": {"use": 3}}}})).await;
    let vm = cluster.until_settled("db").await;
    assert_eq!(condition(&vm, "Degraded").0, "False");
}

/// W-04: what fails is written down, and cleared by success.
#[tokio::test(flavor = "multi_thread")]
async fn w04_a_refused_size_is_in_the_status_until_it_is_taken() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    cluster.node.temper.send_replace(Temper { keeps: None, refuses: true });
    cluster.patch("db", json!({"spec": {"guest": {"cpus": {"use": 1}}}})).await;
    let vm = cluster.until("db", "refused", |vm| condition(vm, "Degraded").1 == "ScaleFailed").await;
    assert!(condition(&vm, "Degraded").2.contains("above the maximum"));
    assert_eq!(
        vm.status.as_ref().unwrap().cpus,
        Some(MilliCpu::new(250)),
        "only observation moves the status"
    );
    cluster.node.temper.send_replace(Temper::default());
    let vm = cluster.until("db", "taken", |vm| condition(vm, "Degraded").0 == "False").await;
    assert_eq!(vm.status.unwrap().cpus, Some(MilliCpu::new(1000)));
}

/// W-13: labels of others stay, ours follow the VM.
#[tokio::test(flavor = "multi_thread")]
async fn w13_foreign_labels_of_the_pod_stay() {
    use kube::api::{Patch, PatchParams};
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    let foreign = json!({"metadata": {"labels": {"foreign": "1"}}});
    let other = PatchParams { field_manager: Some("other".into()), ..PatchParams::default() };
    cluster.pods().patch(&pod, &other, &Patch::Merge(&foreign)).await.unwrap();
    for (labels, a, b) in
        [(json!({"a": "1", "b": "1"}), Some("1"), Some("1")), (json!({"a": null, "b": "2"}), None, Some("2"))]
    {
        cluster.patch("db", json!({"metadata": {"labels": labels}})).await;
        eventually(&format!("labels {labels}"), async || {
            let shown = cluster.pods().get(&pod).await.unwrap().metadata.labels.unwrap();
            let label = |key: &str| shown.get(key).map(String::as_str);
            assert_eq!(label("foreign"), Some("1"));
            ((label("a"), label("b")) == (a, b)).then_some(())
        })
        .await;
    }
}
