//! `install`, `upgrade` and `uninstall` against a real API server with strict validation. It has no kubelet and no controllers of
//! Kubernetes: the test simulates those, and the webhooks of the vm-controller.

use kube::Client;
use neonvm_kit::authority;
use neonvm_test_cluster::{ApiServer, NAMESPACE, Simulated, apply, eventually};
use serde_json::{Value, json};

use super::{delete, get, patch};

/// The output of a command and its exit code.
struct Run {
    code: i32,
    out: String,
    error: String,
}

async fn neonctl(server: &ApiServer, arguments: &[&str]) -> Run {
    let (code, out, error) = super::run(&server.kubeconfig(), arguments).await;
    Run { code, out, error }
}

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CONTROLLER: &str = "/apis/apps/v1/namespaces/neonvm-system/deployments/neonvm-vm-controller";

/// Every workload is rolled out, and its service holds its lease.
async fn round(client: Client) {
    let client = &client;
    for plural in ["deployments", "daemonsets"] {
        let place = format!("/apis/apps/v1/namespaces/{NAMESPACE}/{plural}");
        let list = get(client, &place).await.unwrap_or_default();
        for object in list["items"].as_array().into_iter().flatten() {
            let (name, generation) =
                (object["metadata"]["name"].as_str().unwrap(), &object["metadata"]["generation"]);
            let count = &object["spec"]["replicas"];
            let status = if plural == "daemonsets" {
                json!({"observedGeneration": generation, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
                    "updatedNumberScheduled": 1, "numberAvailable": 1, "numberReady": 1, "numberMisscheduled": 0})
            } else {
                json!({"observedGeneration": generation, "replicas": count, "updatedReplicas": count,
                    "availableReplicas": count, "readyReplicas": count})
            };
            if object["status"]["observedGeneration"] != *generation {
                patch(client, &format!("{place}/{name}/status"), &json!({"status": status})).await;
            }
            if name == "neonvm-vm-controller" {
                register(client).await;
            }
        }
        for (service, lease) in [
            ("neonvm-vm-controller", "a3b22509.neon.tech"),
            ("neonvm-scheduler", "neonvm-scheduler"),
            ("neonvm-pod-autoscaler", "neonvm-pod-autoscaler"),
        ] {
            let mut all = list["items"].as_array().into_iter().flatten();
            if all.any(|object| object["metadata"]["name"] == service) {
                hold(client, lease).await;
            }
        }
    }
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let _ = client.request::<Value>(request.body(object.to_string().into_bytes()).unwrap()).await;
}

async fn hold(client: &Client, name: &str) {
    let place = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    if get(client, &format!("{place}/{name}")).await.is_none() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "simulated", "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"}});
        create(client, &place, &lease).await;
    }
}

/// As the vm-controller does it, as long as it has the right to.
async fn register(client: &Client) {
    let bound = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/neonvm-vm-controller";
    if get(client, bound).await.is_none() {
        return;
    }
    for side in ["Mutating", "Validating"] {
        let (kind, name) = (
            format!("{side}WebhookConfiguration"),
            format!("neonvm-{}-webhook-configuration", side.to_lowercase()),
        );
        let place = format!("{HOOKS}/{}s", kind.to_lowercase());
        if get(client, &format!("{place}/{name}")).await.is_none() {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": name}, "webhooks": []});
            create(client, &place, &object).await;
        }
    }
}

fn vm(name: &str) -> Value {
    let one = json!({"min": 1, "max": 1, "use": 1});
    super::vm(name, &json!({"cpus": one, "memorySlots": one, "rootDisk": {"image": "i:1"}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerun_finds_nothing_to_do_and_changes_what_is_chosen() {
    let server = ApiServer::start().await;
    let _simulated = Simulated::start(&server.client, round);
    let run = neonctl(&server, &["install", "--registry", "registry.example/vm"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(
        run.out.contains("is installed by") && run.out.contains("next: neonctl vm create"),
        "{}",
        run.out
    );
    assert!(
        run.error.contains("vm-controller 3/3") && run.error.contains("webhooks respond"),
        "{}",
        run.error
    );
    let container = "/spec/template/spec/containers/0";
    let deployed = get(&server.client, CONTROLLER).await.unwrap();
    assert_eq!(
        deployed.pointer(&format!("{container}/image")).unwrap(),
        concat!("registry.example/vm/neond:", env!("CARGO_PKG_VERSION"))
    );
    // What was chosen stays chosen.
    let before = server.until_quiet().await;
    let run = neonctl(&server, &["install"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(run.out.starts_with("nothing to do"), "{}", run.out);
    assert_eq!(server.revision(), before, "nothing was written");
    let run = neonctl(&server, &["install", "--replicas", "2", "-o", "json"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    let changed: Vec<&str> = document["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["change"] != "unchanged")
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(changed, ["neonvm-install", "neonvm-vm-controller"]);
    // What is no longer part of it is removed.
    let run = neonctl(&server, &["install", "--scheduler", "none"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(run.error.contains("without the scheduler, each kubelet permits growth"), "{}", run.error);
    let scheduler = "/apis/apps/v1/namespaces/neonvm-system/deployments/neonvm-scheduler";
    assert!(get(&server.client, scheduler).await.is_none());
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    assert!(get(&server.client, &format!("{leases}/neonvm-scheduler")).await.is_none(), "status reads it");
    assert!(get(&server.client, &format!("{leases}/neonvm-pod-autoscaler")).await.is_some());
    let run = neonctl(&server, &["install", "--reset-values", "--no-wait"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(get(&server.client, scheduler).await.is_some());
    assert_eq!(get(&server.client, CONTROLLER).await.unwrap()["spec"]["replicas"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ready_is_named_with_its_reason() {
    let server = ApiServer::start().await;
    let run = neonctl(&server, &["install", "--timeout", "500ms", "--components", "vm-controller"]).await;
    assert_eq!(run.code, 6, "{}{}", run.out, run.error);
    assert!(run.error.contains("vm-controller 0/3"), "{}", run.error);
    assert!(run.error.contains("no controller has processed it yet"), "{}", run.error);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c-0", "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/name": "neonvm-vm-controller"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    apply(&server.client, &pod).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/c-0");
    let waits = async |reason: &str| {
        let status = json!({"status": {"containerStatuses": [{"name": "c", "image": "neond:9", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": reason, "message": "no such image"}}}]}});
        patch(&server.client, &format!("{path}/status"), &status).await.unwrap();
        neonctl(&server, &["install", "--timeout", "500ms"]).await
    };
    let run = waits("ErrImagePull").await;
    assert_eq!(run.code, 6, "{}{}", run.out, run.error);
    assert!(run.error.contains("pod c-0: ErrImagePull neond:9: no such image"), "{}", run.error);
    // Between attempts of the kubelet a new pod is the next attempt.
    let run = waits("ImagePullBackOff").await;
    assert_eq!(run.code, 6, "{}{}", run.out, run.error);
    assert!(get(&server.client, &path).await.is_none());
    // The same command completes it.
    let _simulated = Simulated::start(&server.client, round);
    let run = neonctl(&server, &["install"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_prints_is_what_is_installed() {
    let server = ApiServer::start().await;
    let run = neonctl(&server, &["install", "--dry-run=server", "-o", "json"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(run.error.contains("namespace neonvm-system does not exist yet"), "{}", run.error);
    assert!(get(&server.client, &format!("/api/v1/namespaces/{NAMESPACE}")).await.is_none());
    let run = neonctl(&server, &["install", "--dry-run=client", "-o", "yaml"]).await;
    assert_eq!((run.code, run.error.as_str()), (0, ""));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&run.out).unwrap();
    // In the order in which they are printed, as kubectl sends them.
    for object in &documents {
        apply(&server.client, object).await;
    }
    let run = neonctl(&server, &["install", "--dry-run=server", "-o", "json"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    let items = document["items"].as_array().unwrap();
    assert_eq!(items.len(), documents.len());
    for item in items {
        assert_eq!(item["change"], "unchanged", "{item}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_goes_up_and_replaces_runners_one_by_one() {
    let server = ApiServer::start().await;
    let _simulated = Simulated::start(&server.client, round);
    assert_eq!(neonctl(&server, &["upgrade"]).await.code, 3, "nothing is installed");
    let run = neonctl(&server, &["install", "--version", "0.2.0"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    for command in ["install", "upgrade"] {
        let run = neonctl(&server, &[command, "--version", "0.1.9"]).await;
        assert_eq!(run.code, 5, "{}{}", run.out, run.error);
        assert!(
            run.error.contains("0.1.9 is older than the installed version 0.2.0")
                && run.error.contains("--allow-downgrade"),
            "{}",
            run.error
        );
    }
    apply(&server.client, &vm("db")).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": "default",
        "labels": {"app.kubernetes.io/name": "NeonVM"}},
        "spec": {"containers": [{"name": neonvm_api::names::RUNNER_CONTAINER, "image": "neonvm-runner:0.2.0"}]}});
    apply(&server.client, &pod).await;
    let machines = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/db/status";
    patch(&server.client, machines, &json!({"status": {"phase": "Running", "podName": "db-0"}}))
        .await
        .unwrap();
    let run = neonctl(&server, &["upgrade", "--version", "0.3.0"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(run.error.contains("1 runners keep another version"), "{}", run.error);
    for (phase, code) in [("Failed", 1), ("Succeeded", 0)] {
        let place = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachinemigrations";
        let end = eventually("a migration", async || {
            let list = get(&server.client, place).await?;
            let is_new = |one: &&Value| one["status"]["phase"].is_null();
            let new = list["items"].as_array()?.iter().find(is_new)?.clone();
            let path = format!("{place}/{}/status", new["metadata"]["name"].as_str()?);
            let status = json!({"status": {"phase": phase, "message": "as simulated"}});
            patch(&server.client, &path, &status).await
        });
        let (run, _) = tokio::join!(neonctl(&server, &["upgrade", "--runners", "migrate"]), end);
        assert_eq!(run.code, code, "{phase}: {}{}", run.out, run.error);
        if phase == "Failed" {
            assert!(run.error.contains("0 runners were replaced, 1 remain"), "{}", run.error);
            assert!(
                run.error.contains("as simulated") && run.error.contains("continue: neonctl upgrade"),
                "{}",
                run.error
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstallation_keeps_what_running_vms_trust() {
    let server = ApiServer::start().await;
    let simulated = Simulated::start(&server.client, round);
    let run = neonctl(&server, &["install"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    let made = authority::open(&server.client, NAMESPACE, authority::INTERNAL, "test").await.unwrap();
    apply(&server.client, &vm("db")).await;
    let run = neonctl(&server, &["uninstall"]).await;
    assert_eq!(run.code, 5, "{}{}", run.out, run.error);
    assert!(run.error.contains("1 VM exists: default/db"), "{}", run.error);
    assert!(get(&server.client, CONTROLLER).await.is_some());
    let path = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/db";
    delete(&server.client, path).await;
    eventually("the VM is gone", async || get(&server.client, path).await.is_none().then_some(())).await;
    for (name, signer) in [("neonvm-old", "vm.neon.tech/internal"), ("other", "example.com/other")] {
        apply(&server.client, &certificate_request(name, signer)).await;
    }
    let run = neonctl(&server, &["uninstall"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    assert!(get(&server.client, &format!("{REQUESTS}/neonvm-old")).await.is_none());
    assert!(get(&server.client, &format!("{REQUESTS}/other")).await.is_some());
    assert!(
        run.out.contains("kept: custom resource definitions") && run.out.contains("neonvm-internal-ca"),
        "{}",
        run.out
    );
    for side in ["mutating", "validating"] {
        let path = format!("{HOOKS}/{side}webhookconfigurations/neonvm-{side}-webhook-configuration");
        assert!(get(&server.client, &path).await.is_none(), "{side}");
    }
    // A VM can be written: no webhook is in the way.
    apply(&server.client, &vm("later")).await;
    let left = get(&server.client, "/apis/rbac.authorization.k8s.io/v1/clusterroles").await.unwrap();
    assert!(!left.to_string().contains("neonvm-vm-controller"));
    let run = neonctl(&server, &["install"]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    let again = authority::open(&server.client, NAMESPACE, authority::INTERNAL, "test").await.unwrap();
    assert_eq!(again.certificate(), made.certificate(), "running VMs trust it");
    drop(simulated);
    purge(&server).await;
}

fn certificate_request(name: &str, signer: &str) -> Value {
    let (request, _) = neonvm_kit::ca::Request::make("test").unwrap();
    let usages = json!(["digital signature", "client auth"]);
    let request = k8s_openapi::ByteString(request.into_bytes());
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": request, "signerName": signer, "usages": usages}})
}

async fn purge(server: &ApiServer) {
    let path = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/later";
    delete(&server.client, path).await;
    let run = neonctl(server, &["uninstall", "--purge", "production"]).await;
    assert_eq!(run.code, 2, "{}{}", run.out, run.error);
    let name = run.error.split("--purge ").last().unwrap().trim().to_owned();
    assert!(get(&server.client, CONTROLLER).await.is_some(), "nothing was removed");
    let run = neonctl(server, &["uninstall", "--purge", &name]).await;
    assert_eq!(run.code, 0, "{}{}", run.out, run.error);
    let definitions =
        get(&server.client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await.unwrap();
    assert_eq!(definitions["items"], json!([]));
    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/neonvm-internal-ca");
    assert!(get(&server.client, &secret).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_fail_later_is_refused_before() {
    let server = ApiServer::start().await;
    let run = neonctl(&server, &["install", "--overlay", "multus"]).await;
    assert_eq!(run.code, 5, "{}{}", run.out, run.error);
    assert!(run.error.contains("the cluster has no Multus"), "{}", run.error);
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "default",
        "labels": {"app.kubernetes.io/name": "neonvm-vm-controller"}}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    apply(&server.client, &other).await;
    let run = neonctl(&server, &["install"]).await;
    assert_eq!(run.code, 5, "{}{}", run.out, run.error);
    assert!(run.error.contains("neonvm is already installed in namespace default"), "{}", run.error);
    assert!(
        get(&server.client, &format!("/api/v1/namespaces/{NAMESPACE}")).await.is_none(),
        "nothing was made"
    );
}
