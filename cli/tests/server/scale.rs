//! `neonctl vm scale --wait` against a real API server; the test simulates the controller.

use std::process::Stdio;
use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_test_cluster::{ApiServer, apply};
use serde_json::{Value, json};

use super::{command, vm};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn status(generation: i64, memory: &str, (scaled, reason, message): (&str, &str, &str)) -> Value {
    json!({"phase": "Running", "podName": "p", "node": "n1", "cpus": 1, "memorySize": memory,
        "observedGeneration": generation, "conditions": [{"type": "Scaled", "status": scaled, "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

async fn write(machines: &Api<VirtualMachine>, status: &Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    machines.patch_status("pg", &PatchParams::default(), &patch).await.unwrap();
}

/// How `vm scale pg --memory 256Mi --wait` ends when the controller writes these statuses one after the other.
async fn scaled(server: &ApiServer, timeout: &str, statuses: &[(&str, (&str, &str, &str))]) -> (i32, String) {
    let guest = json!({"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlotSize": "256Mi",
        "memorySlots": {"min": 1, "max": 32, "use": 32}, "rootDisk": {"image": "pg:1"}});
    apply(&server.client, &vm("pg", &guest)).await;
    let machines: Api<VirtualMachine> = Api::namespaced(server.client.clone(), "default");
    let before = machines.get("pg").await.unwrap().metadata.generation.unwrap();
    write(&machines, &status(before, "8Gi", ("True", "Reached", ""))).await;
    let home = tempfile::tempdir().unwrap();
    let line = ["vm", "scale", "pg", "--memory", "256Mi", "--wait", "--timeout", timeout];
    let mut command = command(&server.kubeconfig(), home.path(), &line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let deadline = Instant::now() + PATIENCE;
    let requested = loop {
        assert!(Instant::now() < deadline, "nothing was requested");
        match machines.get("pg").await.unwrap().metadata.generation {
            Some(generation) if generation > before => break generation,
            _ => tokio::task::yield_now().await,
        }
    };
    for (memory, scaled) in statuses {
        write(&machines, &status(requested, memory, *scaled)).await;
    }
    let (code, out, error) = super::ended(&ended.await.unwrap());
    machines.delete("pg", &kube::api::DeleteParams::default()).await.unwrap();
    (code, out + &error)
}

const KEEPS: (&str, &str, &str) =
    ("False", "MemoryNotReleased", "the guest has given memory back down to 568Mi");

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_slow_is_waited_for() {
    let server = ApiServer::with_our_kinds().await;
    let reached = ("True", "Reached", "");
    let statuses = [("568Mi", KEEPS), ("424Mi", ("False", "InProgress", "")), ("268Mi", reached)];
    let (code, text) = scaled(&server, "60s", &statuses).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("applied in") && text.contains("the guest keeps 12Mi more"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_that_was_reached_is_reported_when_the_time_is_up() {
    let server = ApiServer::with_our_kinds().await;
    let (code, text) = scaled(&server, "3s", &[("568Mi", KEEPS)]).await;
    assert_eq!(code, 6, "{text}");
    assert!(
        text.contains("waiting for pg to be at 1.00 CPU, 256Mi: it has 1.00 CPU, 568Mi: the guest"),
        "{text}"
    );
    assert!(text.contains("the operation continues"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waiting_cannot_change_ends_it() {
    let server = ApiServer::with_our_kinds().await;
    let paused = ("False", "Paused", "256Mi of memory comes when the VM is resumed");
    let (code, text) = scaled(&server, "60s", &[("8Gi", paused)]).await;
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("did not reach") && text.contains("neonctl vm resume pg"), "{text}");
}
