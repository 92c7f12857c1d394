//! `neonctl vm create --wait` against a real API server; the test simulates the controller.

use std::process::Stdio;
use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_test_cluster::ApiServer;
use serde_json::{Value, json};

use super::command;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Standard output and standard error of a command that makes `name` and waits until it runs.
async fn created(server: &ApiServer, name: &str, more: &[&str]) -> (String, String) {
    let (code, out, error) = ended(server, name, more, &json!({"phase": "Running"})).await;
    assert_eq!(code, 0, "{out}{error}");
    (out, error)
}

/// How a command that makes `name` and waits ends when the VM has this status.
async fn ended(server: &ApiServer, name: &str, more: &[&str], status: &Value) -> (i32, String, String) {
    let home = tempfile::tempdir().unwrap();
    let line = ["vm", "create", name, "--image", "example.com/image:1", "--wait"];
    let mut command = command(&server.kubeconfig(), home.path(), &[&line[..], more].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let machines: Api<VirtualMachine> = Api::namespaced(server.client.clone(), "default");
    let running = Patch::Merge(json!({ "status": status }));
    let deadline = Instant::now() + PATIENCE;
    while machines.patch_status(name, &PatchParams::default(), &running).await.is_err()
        && !ended.is_finished()
    {
        assert!(Instant::now() < deadline, "{name} was not made");
        tokio::task::yield_now().await;
    }
    super::ended(&ended.await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_unless_it_is_to_be_quiet() {
    let server = ApiServer::with_our_kinds().await;
    let (out, error) = created(&server, "loud", &["--no-headers"]).await;
    assert!(out.contains("Running after"), "{out}");
    assert!(error.contains("virtualmachine/loud created, waiting until it runs"), "{error}");
    let (out, error) = created(&server, "silent", &["--quiet"]).await;
    assert!(out.contains("Running after"), "{out}");
    assert_eq!(error, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_ends_the_wait() {
    let server = ApiServer::with_our_kinds().await;
    let why = "the pod cannot be made: pods \"big\" is forbidden: exceeded quota: vms";
    let status = json!({"phase": "Pending", "conditions": [{"type": "Degraded", "status": "True", "reason": "QuotaExceeded",
        "message": why, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let (code, _, error) = ended(&server, "big", &["--timeout", "10m"], &status).await;
    assert_eq!(code, 5, "{error}");
    for part in [
        "big does not start: a quota of its namespace is exhausted",
        why,
        "kubectl describe resourcequota -n default",
        "neonctl vm delete big",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_has_ended_is_not_called_running() {
    let server = ApiServer::with_our_kinds().await;
    let ended_well = json!({"phase": "Succeeded"});
    for (policy, status, part) in [
        ("Never", &ended_well, "created, ended well after"),
        ("OnFailure", &ended_well, "created, ended well after"),
        ("Never", &json!({"phase": "Running"}), "created, Running after"),
    ] {
        let name = format!("a-{}", part.len() + policy.len());
        let (code, out, error) = ended(&server, &name, &["--restart", policy], status).await;
        assert_eq!(code, 0, "{error}");
        assert!(out.contains(part), "{policy}: {out}");
    }
    // It is started again: there is more to wait for.
    let (code, _, error) = ended(&server, "always", &["--timeout", "1s"], &ended_well).await;
    assert_eq!(code, 6, "{error}");
}

/// What people have in a file: other kinds, comments, documents without content, fields of older versions.
#[tokio::test(flavor = "multi_thread")]
async fn every_vm_of_a_file_is_created() {
    let server = ApiServer::with_our_kinds().await;
    let home = tempfile::tempdir().unwrap();
    let vm = |name: &str| {
        format!(
            "---\n# {name}\napiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: {{name: {name}}}\nspec:\n  guest:\n    \
             cpus: {{min: 0.25, use: 0.25, max: 1}}\n    memorySlots: {{min: 1, use: 1, max: 4}}\n    memoryProvider: DIMMSlots\n    \
             rootDisk: {{image: vm-postgres:15-bullseye}}\n    settings: {{swap: {{size: 1Gi}}}}\n"
        )
    };
    let text = format!(
        "apiVersion: kuttl.dev/v1beta1\nkind: TestStep\n{}{}---\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n",
        vm("one"),
        vm("two")
    );
    let file = home.path().join("vms.yaml");
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let line = ["vm", "create", "-f", &file];
    let (code, out, error) = super::run(&server.kubeconfig(), &line).await;
    assert_eq!(
        (code, out.as_str()),
        (0, "virtualmachine/one created (Pending)\nvirtualmachine/two created (Pending)\n")
    );
    for part in [
        "not created, because only VMs are: TestStep, Service/web",
        "warning: spec.guest.memoryProvider",
        "swapInfo",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let machines: Api<VirtualMachine> = Api::namespaced(server.client.clone(), "default");
    let two = machines.get("two").await.unwrap();
    assert!(two.spec.guest.settings.unwrap().swap_info.is_some());
    let (code, _, error) = super::run(&server.kubeconfig(), &line).await;
    assert_eq!(code, 5, "{error}");
}
