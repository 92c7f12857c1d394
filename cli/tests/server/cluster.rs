//! `test cluster`, `status`, `doctor`, `vm pause` and `vm resume` against a real API server. It has no kubelet and no controllers: the test simulates what the
//! vm-controller writes.

use std::process::Stdio;

use kube::Client;
use neonvm_test_cluster::{ApiServer, NAMESPACE, Simulated, apply, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{command, ended, get, patch, run};

async fn items(client: &Client, path: &str) -> Vec<Value> {
    get(client, path).await.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
}

/// VMs of a controller that starts and resizes them at once.
async fn settle_all(client: Client) {
    for vm in items(&client, "/apis/vm.neon.tech/v1/virtualmachines").await {
        settle(&client, &vm).await;
    }
}

/// The VM runs, with the size of its spec.
async fn settle(client: &Client, vm: &Value) {
    let (namespace, name) =
        (vm["metadata"]["namespace"].as_str().unwrap(), vm["metadata"]["name"].as_str().unwrap());
    let guest = &vm["spec"]["guest"];
    let memory = format!("{}Gi", guest["memorySlots"]["use"]);
    let status = json!({"phase": "Running", "node": "n1", "podName": "p", "cpus": guest["cpus"]["use"], "memorySize": memory,
        "observedGeneration": vm["metadata"]["generation"],
        "powerState": if vm["spec"]["powerState"] == "Paused" { json!("Paused") } else { Value::Null }, "conditions": [{"type": "Available", "status": "True",
        "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let path = format!("/apis/vm.neon.tech/v1/namespaces/{namespace}/virtualmachines/{name}/status");
    // It may have been deleted meanwhile.
    patch(client, &path, &json!({ "status": status })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_are_paused_and_resumed_by_name() {
    let server = ApiServer::with_our_kinds().await;
    let _simulated = Simulated::start(&server.client, settle_all);
    let config = server.kubeconfig();
    let good = async |arguments: &[&str]| {
        let (code, out, error) = run(&config, arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    };
    for name in ["a", "b"] {
        good(&["vm", "create", name, "--image", "i:1", "--cu", "1", "--wait"]).await;
    }
    let out = good(&["vm", "pause", "a", "b"]).await;
    assert!(out.contains("virtualmachine/a paused (") && out.contains("virtualmachine/b paused ("), "{out}");
    assert_eq!(good(&["vm", "list"]).await.matches("Paused").count(), 2);
    let (code, _, error) = run(&config, &["vm", "migrate", "a"]).await;
    assert!(code == 5 && error.contains("neonctl vm resume a"), "{error}");
    let out = good(&["vm", "resume", "a", "b"]).await;
    assert!(out.contains("virtualmachine/b resumed ("), "{out}");
    assert_eq!(good(&["vm", "list"]).await.matches("Running").count(), 2);
    assert!(good(&["vm", "pause", "a", "--no-wait"]).await.contains("virtualmachine/a pause requested"));
    let object: Value = serde_json::from_str(&good(&["vm", "get", "a", "-o", "json"]).await).unwrap();
    assert_eq!(object["spec"]["powerState"], "Paused");
    let (code, _, error) = run(&config, &["vm", "pause", "a", "nosuch"]).await;
    assert!(code == 3 && error.contains("nosuch"), "{error}");
    // What the API refuses, whatever the client.
    let path = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/a";
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let body = json!({"spec": {"powerState": "Frozen"}}).to_string().into_bytes();
    let refused = server.client.request::<Value>(request.body(body).unwrap()).await.unwrap_err().to_string();
    assert!(refused.contains("must be one of Running, Stopped, Paused"), "{refused}");
}

/// Namespaces of tests.
async fn spaces(server: &ApiServer) -> Vec<String> {
    let all = items(&server.client, "/api/v1/namespaces").await;
    let names = all.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("neonvm-test-")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_has_its_result_and_nothing_is_left() {
    let server = ApiServer::with_our_kinds().await;
    let _simulated = Simulated::start(&server.client, settle_all);
    let (code, out, error) =
        run(&server.kubeconfig(), &["test", "cluster", "--image", "i:1", "-o", "json"]).await;
    assert_eq!(code, 0, "{out}{error}");
    let value: Value = serde_json::from_str(&out).unwrap();
    let steps: Vec<(&str, &str, &str)> = value["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (
                step["step"].as_str().unwrap(),
                step["result"].as_str().unwrap(),
                step["detail"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!((steps[0].0, steps[0].1), ("checks", "not run"));
    assert_eq!(steps[1], ("create", "passed", "runs on n1"));
    assert_eq!((steps[2].0, steps[2].1), ("scale", "passed"));
    let no_ssh = "ssh is not installed here: apt-get install openssh-client";
    assert_eq!(steps[3], ("load", "not run", no_ssh));
    assert_eq!(steps[4], ("migrate", "not run", "no other node runs VMs"));
    assert_eq!(steps[5], ("drain", "not run", "no other node runs VMs"));
    assert_eq!(steps[6], ("database", "not run", no_ssh));
    assert_eq!((steps[7].0, steps[7].1), ("delete", "passed"));
    assert_eq!((steps[8].0, steps[8].1), ("clean-up", "passed"));
    assert_eq!(value["counts"], json!({"passed": 4, "failed": 0, "notRun": 5}));
    assert_eq!(spaces(&server).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_is_the_verdict_and_leaves_nothing_either() {
    let server = ApiServer::with_our_kinds().await;
    let arguments = ["test", "cluster", "--image", "i:1", "--timeout", "300ms"];
    let (code, out, error) = run(&server.kubeconfig(), &arguments).await;
    assert_eq!(code, 7, "{out}{error}");
    assert!(out.contains("the VM runs: not within 300ms: not reconciled yet"), "{out}");
    assert!(out.contains("scale     not run") && out.contains("there is no running VM"), "{out}");
    assert!(out.trim_end().lines().last().unwrap().starts_with("the cluster failed: "), "{out}");
    assert_eq!(spaces(&server).await, Vec::<String>::new());

    // A namespace that exists stays, with what is not ours.
    apply(&server.client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}))
        .await;
    let (code, out, _) =
        run(&server.kubeconfig(), &[&arguments[..], &["--namespace", "mine", "--keep"]].concat()).await;
    assert_eq!(code, 7, "{out}");
    let vm = "/apis/vm.neon.tech/v1/namespaces/mine/virtualmachines/trial";
    assert!(get(&server.client, vm).await.is_some(), "--keep");
    let (code, out, _) =
        run(&server.kubeconfig(), &[&arguments[..], &["--namespace", "mine"]].concat()).await;
    assert_eq!(code, 7, "{out}");
    assert!(out.contains("neonctl vm delete trial -n mine"), "{out}");
    assert!(get(&server.client, "/api/v1/namespaces/mine").await.is_some());
}

/// Kubelets find no image for VMs, a while after these were made.
async fn no_image(client: Client) {
    for vm in items(&client, "/apis/vm.neon.tech/v1/virtualmachines").await {
        let name = vm["metadata"]["name"].as_str().unwrap();
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let made: jiff::Timestamp = vm["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
        let is_late = jiff::Timestamp::now().duration_since(made).as_secs() >= 4;
        let pull = "container guest-disk: ErrImagePull: r.example/neonvm-test: not found";
        let status = json!({"phase": "Pending", "conditions": [
            condition("Available", "False", "PodStarting", "its pod is starting"),
            condition("Degraded", if is_late { "True" } else { "False" }, "PodNotStarting", pull)]});
        let namespace = vm["metadata"]["namespace"].as_str().unwrap();
        let path = format!("/apis/vm.neon.tech/v1/namespaces/{namespace}/virtualmachines/{name}/status");
        patch(&client, &path, &json!({ "status": status })).await;
    }
}

/// What the VM waits for is shown, and an image that was never pushed ends the test, with the command that pushes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_nodes_cannot_pull_ends_the_test_before_its_time() {
    let server = ApiServer::with_our_kinds().await;
    let _simulated = Simulated::start(&server.client, no_image);
    let begun = std::time::Instant::now();
    let arguments = ["test", "cluster", "--registry", "r.example"];
    let (code, out, error) = run(&server.kubeconfig(), &arguments).await;
    assert!(begun.elapsed().as_secs() < 60, "{out}{error}");
    assert_eq!(code, 7, "{out}{error}");
    assert!(error.contains("           it is Pending: its pod is starting\n"), "{error}");
    assert!(out.contains("trial does not start: ") && out.contains("cannot be pulled: container"), "{out}");
    assert!(
        out.contains("hint: build and push it: neonctl test cluster --registry r.example --push-image"),
        "{out}"
    );
    assert_eq!(spaces(&server).await, Vec::<String>::new());
}

/// The password of a registry reaches the namespace that is made, and goes with it; what cannot be used is named.
#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_registry_is_copied_for_the_test() {
    let server = ApiServer::with_our_kinds().await;
    let _simulated = Simulated::start(&server.client, settle_all);
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}})
    };
    apply(&server.client, &secret("login")).await;
    let tested = async |more: &[&str]| {
        run(
            &server.kubeconfig(),
            &[&["test", "cluster", "--image", "i:1", "--only", "create", "--pull-secret"], more].concat(),
        )
        .await
    };
    for (named, reason) in [
        ("login", "the namespace of the test is new: use NAMESPACE/login"),
        ("default/other", "there is no secret other in namespace default"),
        ("default/", "is not valid: use NAME or NAMESPACE/NAME"),
    ] {
        let (code, out, error) = tested(&[named]).await;
        assert!(code == 7 && out.contains("--pull-secret: ") && out.contains(reason), "{out}{error}");
    }
    assert_eq!(spaces(&server).await, Vec::<String>::new());
    let (code, out, error) = tested(&["default/login", "--keep"]).await;
    assert_eq!(code, 0, "{out}{error}");
    let made = spaces(&server).await;
    let copy = get(&server.client, &format!("/api/v1/namespaces/{}/secrets/login", made[0])).await.unwrap();
    assert_eq!(copy["data"], secret("login")["data"]);
    let vm = format!("/apis/vm.neon.tech/v1/namespaces/{}/virtualmachines/trial", made[0]);
    assert_eq!(
        get(&server.client, &vm).await.unwrap()["spec"]["imagePullSecrets"],
        json!([{"name": "login"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interruption_removes_what_was_made() {
    let server = ApiServer::with_our_kinds().await;
    let home = tempfile::tempdir().unwrap();
    let mut command = command(&server.kubeconfig(), home.path(), &["test", "cluster", "--image", "i:1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let vms = "/apis/vm.neon.tech/v1/virtualmachines";
    eventually("a VM is made", async || (!items(&server.client, vms).await.is_empty()).then_some(())).await;
    kill_process(pid, Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let (code, out, error) = ended(&output);
    assert_eq!(code, 130, "{out}{error}");
    assert!(error.contains("interrupted, all created objects were removed"), "{error}");
    assert_eq!(spaces(&server).await, Vec::<String>::new());
    assert!(items(&server.client, vms).await.is_empty());
}

fn lease(holder: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "neonvm-scheduler", "namespace": "vms"}, "spec": {"holderIdentity": holder,
        "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}})
}

fn scheduler() -> Value {
    let labels = json!({"app.kubernetes.io/name": "neonvm-scheduler", "app.kubernetes.io/part-of": "neonvm"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "neonvm-scheduler", "namespace": "vms", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "scheduler", "image": "registry.example/neond:0.0.9"}]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn status_finds_the_installation_and_gives_reasons() {
    let server = ApiServer::with_our_kinds().await;
    apply(&server.client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vms"}}))
        .await;
    for object in [scheduler(), lease("old-0")] {
        apply(&server.client, &object).await;
    }
    let component = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["namespace"], "vms");
        value["components"].as_array().unwrap().iter().find(|one| one["name"] == "scheduler").unwrap().clone()
    };
    let (code, out, error) = run(&server.kubeconfig(), &["status", "-o", "json"]).await;
    assert_eq!(code, 7, "{out}{error}");
    let found = component(&out);
    assert_eq!(
        (&found["ready"], &found["desired"], &found["version"]),
        (&json!(0), &json!(1), &json!("0.0.9"))
    );
    assert_eq!((&found["leader"], &found["working"]), (&json!("old-0"), &json!(false)));
    let note = found["note"].as_str().unwrap();
    assert!(
        note.contains("no controller has processed it yet") && note.contains("has not renewed its lease"),
        "{note}"
    );
    let (code, out, _) = run(&server.kubeconfig(), &["doctor"]).await;
    assert_eq!(code, 7, "{out}");
    assert!(out.contains("services   scheduler") && out.contains("0/1 ready: no controller"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_viewer_may_not_read_is_named() {
    let server = ApiServer::with_our_kinds().await;
    apply(&server.client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": NAMESPACE}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "viewer"},
        "rules": [{"apiGroups": ["", "apps", "discovery.k8s.io", "vm.neon.tech"],
            "resources": ["pods", "deployments", "daemonsets", "endpointslices", "virtualmachines"],
            "verbs": ["get", "list", "watch"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": NAMESPACE}]});
    for object in [account, role, binding] {
        apply(&server.client, &object).await;
    }
    let kubeconfig = server.kubeconfig_of("viewer").await;
    let (code, out, error) = run(&kubeconfig, &["status"]).await;
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains(&format!("you lack permission to list leases in namespace {NAMESPACE}")), "{out}");
    assert!(out.contains("you lack permission to get mutatingwebhookconfigurations"), "{out}");
    // To look on is no fault of the cluster.
    let (code, out, error) = run(&kubeconfig, &["doctor"]).await;
    assert_eq!(code, 0, "{out}{error}");
    assert!(
        out.contains("you lack permission to create") && out.contains("you lack permission to list leases"),
        "{out}"
    );
}
