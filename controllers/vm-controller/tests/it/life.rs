//! Create, restart, end, delete.

use std::net::SocketAddr;

use kube::api::DeleteParams;
use neonvm_api::names::ssh_secret_name;
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::port::Reserved;
use neonvm_test_cluster::eventually;
use neonvm_types::runner_protocol::{Exit, ExitReason, ProcessExit};
use serde_json::json;

use crate::cluster::{Cluster, condition, phase_of};

/// default-values: floats are taken, the scaling mode is filled in.
#[tokio::test(flavor = "multi_thread")]
async fn default_values_are_filled_in() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let vm = cluster.until("db", "adopted", |vm| vm.spec.cpu_scaling_mode.is_some()).await;
    let vm_json = serde_json::to_value(&vm).unwrap();
    assert_eq!(vm_json["spec"]["cpuScalingMode"], "SysfsScaling");
    assert_eq!(vm_json["spec"]["guest"]["cpus"]["use"], "250m");
    assert_eq!(vm.metadata.finalizers.unwrap(), ["vm.neon.tech/finalizer"]);
}

/// runner-pod: labels, owner, annotations; a deleted pod is replaced and counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_has_one_pod_and_gets_another_when_it_is_deleted() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let vm = cluster.until_settled("db").await;
    let status = serde_json::to_value(vm.status.as_ref().unwrap()).unwrap();
    assert_eq!(
        (&status["cpus"], &status["memorySize"], &status["restartCount"]),
        (&json!("250m"), &json!("1Gi"), &json!(0))
    );
    assert_eq!(
        (&status["sshSecretName"], &status["machine"]["accelerator"]),
        (&json!(ssh_secret_name("db", vm.metadata.uid.as_deref().unwrap())), &json!("tcg"))
    );
    assert_eq!(status["observedGeneration"], json!(vm.metadata.generation.unwrap()));
    let pods = cluster.pods_of("db").await;
    assert_eq!(pods.len(), 1);
    let pod = serde_json::to_value(&pods[0]).unwrap();
    assert_eq!(pod["metadata"]["name"], status["podName"]);
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], "NeonVM");
    assert_eq!(pod["metadata"]["annotations"]["vm.neon.tech/usage"], r#"{"cpu":"250m","memory":"1Gi"}"#);
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"], &owner["blockOwnerDeletion"]),
        (&json!("VirtualMachine"), &json!(true), &json!(true))
    );

    let old = vm.status.unwrap().pod_name;
    cluster.pods().delete(&old, &DeleteParams::default()).await.unwrap();
    let vm = cluster
        .until("db", "restarted", |vm| {
            let status = vm.status.as_ref().unwrap();
            status.restart_count == 1
                && phase_of(vm) == Some(Phase::Running)
                && condition(vm, "Scaled").0 == "True"
        })
        .await;
    let status = vm.status.as_ref().unwrap();
    assert_ne!(status.pod_name, old);
    assert_eq!(status.last_exit.as_ref().unwrap().reason, "Stopped");
    assert_eq!(condition(&vm, "Available").0, "True");
    assert_eq!(cluster.pods_of("db").await.len(), 1);
    assert_eq!(cluster.node.most("db"), 1);
    cluster.server.until_quiet().await;
    let reasons =
        ["Created", "Started", "Ready", "AcceleratorFallback", "RootSizeIgnored", "Restarted", "Succeeded"];
    cluster.server.until_events("db", &reasons).await;
    assert_eq!(
        cluster.secrets().get_opt(&old).await.unwrap().map(|_| ()),
        None,
        "the old runner's secret is gone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_policies_and_reasons() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    let workload = |code| Exit {
        workload: Some(ProcessExit { code: Some(code), ..ProcessExit::default() }),
        ..Exit::new(ExitReason::WorkloadEnded, "ended")
    };
    let panic = Exit { console: vec!["Kernel panic".into()], ..Exit::new(ExitReason::GuestPanic, "panic") };
    let cases = [
        ("a", "Always", workload(0), None),
        ("b", "OnFailure", workload(0), Some(Phase::Succeeded)),
        ("c", "OnFailure", workload(3), None),
        ("d", "Never", panic.clone(), Some(Phase::Failed)),
        ("e", "OnFailure", panic, None),
        ("f", "OnFailure", Exit::new(ExitReason::Rebooted, ""), None),
        ("g", "Never", Exit::new(ExitReason::PoweredOff, ""), Some(Phase::Succeeded)),
    ];
    for (name, policy, _, _) in &cases {
        cluster.create(name, json!({"restartPolicy": policy, "enableSSH": false})).await;
    }
    for (name, policy, exit, end) in cases {
        let pod = cluster.until_settled(name).await.status.unwrap().pod_name;
        cluster.node.end(&pod, exit.clone()).await;
        let what = format!("{policy} {:?}", exit.reason);
        let vm = match end {
            None => {
                cluster
                    .until(name, &what, |vm| {
                        vm.status.as_ref().unwrap().restart_count == 1 && phase_of(vm) == Some(Phase::Running)
                    })
                    .await
            }
            Some(phase) => {
                let vm = cluster.until_phase(name, phase).await;
                assert_eq!(vm.status.as_ref().unwrap().restart_count, 0, "{what}");
                vm
            }
        };
        let last = vm.status.unwrap().last_exit.unwrap();
        assert_eq!((last.reason.as_str(), last.pod_name), (exit.reason.as_str(), pod), "{what}");
        assert_eq!(last.exit_code, exit.workload.and_then(|workload| workload.code));
        assert_eq!(last.console, exit.console);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_is_a_failure_and_crashes_pause() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    config.settings.restart_pause = 3600;
    let _controller = cluster.controller_with(config);
    cluster.create("db", json!({})).await;
    let pod = cluster.until_settled("db").await.status.unwrap().pod_name;
    cluster.node.kill(&pod).await;
    let vm = cluster
        .until("db", "restarted", |vm| {
            phase_of(vm) == Some(Phase::Running) && vm.status.as_ref().unwrap().restart_count == 1
        })
        .await;
    let last = vm.status.as_ref().unwrap().last_exit.clone().unwrap();
    assert_eq!(last.reason, "RunnerKilled");
    // The second crash in a row waits, and the condition has the end of the wait.
    let pod = vm.status.unwrap().pod_name;
    cluster.node.kill(&pod).await;
    let vm = cluster
        .until("db", "pausing", |vm| condition(vm, "Available").2.starts_with("starts again at"))
        .await;
    assert_eq!(phase_of(&vm), Some(Phase::Pending));
    let (status, reason, message) = condition(&vm, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "RunnerKilled"));
    assert!(message.contains("2 ends in a row"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_accelerator_failures_end_it_until_the_spec_changes() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config.clone();
    config.settings.restart_pause = 0;
    config.settings.restart_pause_max = 0;
    let _controller = cluster.controller_with(config);
    cluster.create("db", json!({})).await;
    for turn in 0..3 {
        let vm = cluster
            .until("db", "running", |vm| {
                phase_of(vm) == Some(Phase::Running) && vm.status.as_ref().unwrap().restart_count == turn
            })
            .await;
        cluster
            .node
            .end(&vm.status.unwrap().pod_name, Exit::new(ExitReason::AcceleratorFailure, "KVM broke"))
            .await;
    }
    let vm = cluster
        .until("db", "given up", |vm| condition(vm, "Degraded").2.contains("until the spec changes"))
        .await;
    assert_eq!(phase_of(&vm), Some(Phase::Failed));
    cluster.server.until_quiet().await;
    let now = cluster.vms().get("db").await.unwrap().metadata.resource_version;
    assert_eq!(now, vm.metadata.resource_version, "it is left alone");
    cluster.patch("db", json!({"spec": {"guest": {"cpus": {"use": 1}}}})).await;
    cluster.until_settled("db").await;
}

/// Deletion ends whatever is missing, and the pod gets its grace.
#[tokio::test(flavor = "multi_thread")]
async fn deletion_ends_with_any_partner_missing() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller();
    for missing in 0..8_u32 {
        let name = format!("vm-{missing}");
        cluster.create(&name, json!({})).await;
    }
    let mut pods = Vec::new();
    for missing in 0..8_u32 {
        let status = cluster.until_settled(&format!("vm-{missing}")).await.status.unwrap();
        pods.push((status.pod_name, status.ssh_secret_name));
    }
    drop(controller);
    for (missing, (pod, keys)) in pods.iter().enumerate() {
        let name = format!("vm-{missing}");
        if missing & 1 != 0 {
            let how = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            cluster.pods().delete(pod, &how).await.unwrap();
        }
        if missing & 2 != 0 {
            cluster.secrets().delete(pod, &DeleteParams::default()).await.ok();
        }
        if missing & 4 != 0 {
            cluster.secrets().delete(keys, &DeleteParams::default()).await.unwrap();
        }
        cluster.vms().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    let _controller = cluster.controller();
    eventually("nothing of all VMs", async || {
        let vms = cluster.vms().list(&Default::default()).await.unwrap().items.len();
        let pods = cluster.pods().list(&Default::default()).await.unwrap().items.len();
        let secrets = cluster.secrets().list(&Default::default()).await.unwrap().items.len();
        match (vms, pods, secrets) {
            (0, 0, 0) => Ok(()),
            _ => Err(format!("{vms} VMs, {pods} pods, {secrets} secrets are left")),
        }
    })
    .await;
    cluster.server.until_quiet().await;
    cluster.server.until_events("vm-0", &["Deleted"]).await;
}

/// vm-ssh: type, immutability, owner; the same over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn ssh_keys_are_made_once() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    cluster.create("db", json!({})).await;
    let vm = cluster.until_settled("db").await;
    let name = vm.status.as_ref().unwrap().ssh_secret_name.clone();
    let secret = cluster.secrets().get(&name).await.unwrap();
    assert_eq!((secret.type_.as_deref(), secret.immutable), (Some("kubernetes.io/ssh-auth"), Some(true)));
    assert_eq!(secret.metadata.owner_references.as_ref().unwrap()[0].uid, vm.metadata.uid.unwrap());
    let data = secret.data.as_ref().unwrap();
    assert!(data["ssh-publickey"].0.starts_with(b"ssh-ed25519 "));
    assert!(data["ssh-privatekey"].0.starts_with(b"-----BEGIN OPENSSH PRIVATE KEY-----"));
    cluster.pods().delete(&vm.status.unwrap().pod_name, &DeleteParams::default()).await.unwrap();
    cluster
        .until("db", "restarted", |vm| {
            vm.status.as_ref().unwrap().restart_count == 1 && phase_of(vm) == Some(Phase::Running)
        })
        .await;
    assert_eq!(cluster.secrets().get(&name).await.unwrap().data, secret.data);
}

const LOOKED: &str = "reconcile_duration_seconds_count{outcome=\"success\"} ";

#[tokio::test(flavor = "multi_thread")]
async fn idle_machines_cause_no_writes_and_a_restart_neither() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller();
    for number in 0..10 {
        cluster.create(&format!("vm-{number}"), json!({})).await;
    }
    for number in 0..10 {
        cluster.until_settled(&format!("vm-{number}")).await;
    }
    // What the first has begun to write may still be written.
    cluster.server.until_quiet().await;
    drop(controller);
    let before = cluster.server.until_quiet().await;
    let metrics = Reserved::loopback().unwrap();
    let mut config = cluster.config.clone();
    config.metrics = Some(metrics.address());
    let _controller = cluster.controller_with(config);
    eventually("the other has looked at all of them", async || {
        let (_, text) = ask(metrics.address(), "/metrics").await?;
        let looked = text.lines().find_map(|line| line.strip_prefix(LOOKED))?;
        let knows = text.contains("neonvm_vm_controller_vms{phase=\"Running\"} 10\n");
        (knows && looked.parse::<u32>().unwrap() >= 10).then_some(())
    })
    .await;
    assert_eq!(cluster.server.until_quiet().await, before);
}

/// Status and body of the response to `GET`; `None` while the port is closed.
pub(crate) async fn ask(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let request = http::Request::get(path).header("host", "h").body(body).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    Some((status, String::from_utf8(body.to_vec()).unwrap()))
}

/// W-28: health and metrics under the names that dashboards use; a controller that leads counts VMs by phase.
#[tokio::test(flavor = "multi_thread")]
async fn w28_metrics_and_health_are_served() {
    let cluster = Cluster::start().await;
    let metrics = Reserved::loopback().unwrap();
    let mut config = cluster.config.clone();
    config.metrics = Some(metrics.address());
    let _controller = cluster.controller_with(config);
    cluster.create("db", json!({})).await;
    cluster.until_settled("db").await;
    let get = async |path: &str| ask(metrics.address(), path).await.unwrap();
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/nothing", 404)] {
        assert_eq!(get(path).await.0, status, "{path}");
    }
    let parts = [
        "neonvm_vm_controller_vms{phase=\"Running\"} 1",
        "vm_creation_to_vm_running_duration_seconds_count 1",
        "vm_runner_creation_to_vm_running_duration_seconds_count 1",
        "vm_creation_to_runner_creation_duration_seconds_count 1",
        "reconcile_failing_objects{controller=\"virtualmachine\",outcome=\"failure\",actively_retried=\"true\"} 0",
    ];
    // What is written is counted when the answer has come.
    eventually("all of it is counted", async || {
        let text = get("/metrics").await.1;
        parts.iter().all(|part| text.contains(part)).then_some(())
    })
    .await;
}
