//! `vm disk` against a real API server: the test simulates what the driver of volumes and the vm-controller write.

use kube::Client;
use neonvm_test_cluster::{ApiServer, Simulated};
use serde_json::{Value, json};

use super::{get, patch, run};

const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data-pg";
const VM: &str = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/pg";

async fn create(client: &Client, path: &str, object: Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let _: Value = client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}

/// Volumes of the class `grows` have at once what their claims request, and so have the guests.
async fn grow_all(client: Client) {
    let Some(claim) = get(&client, CLAIM).await else { return };
    let size = &claim["spec"]["resources"]["requests"]["storage"];
    if claim["spec"]["storageClassName"] == "grows" && claim["status"]["capacity"]["storage"] != *size {
        let status = json!({"status": {"phase": "Bound", "capacity": {"storage": size}}});
        patch(&client, &format!("{CLAIM}/status"), &status).await;
    }
    let Some(vm) = get(&client, VM).await else { return };
    let status = json!({"status": {"phase": "Running", "podName": "p", "observedGeneration": vm["metadata"]["generation"],
        "volumes": [{"name": "data", "claimName": "data-pg", "shared": false, "size": size}],
        "conditions": [{"type": "Available", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    patch(&client, &format!("{VM}/status"), &status).await;
}

/// A VM `pg` with a disk on a claim of the class, and an empty one.
async fn vm_with_disks(server: &ApiServer, class: &str) {
    let client = &server.client;
    let expands = class == "grows";
    create(
        client,
        "/apis/storage.k8s.io/v1/storageclasses",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": class}, "provisioner": "p", "allowVolumeExpansion": expands}),
    )
    .await;
    create(client, "/api/v1/namespaces/default/persistentvolumeclaims", json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-pg"}, "spec": {"storageClassName": class, "volumeName": "v", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}))
    .await;
    patch(
        client,
        &format!("{CLAIM}/status"),
        &json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
    )
    .await;
    let (code, _, error) = run(
        &server.kubeconfig(),
        &[
            "vm",
            "create",
            "pg",
            "--image",
            "i:1",
            "--cu",
            "1",
            "--claim",
            "data=data-pg:/data",
            "--disk",
            "tmp=2Gi:/scratch",
            "--no-wait",
        ],
    )
    .await;
    assert_eq!(code, 0, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_grows_and_is_listed() {
    let server = ApiServer::with_our_kinds().await;
    vm_with_disks(&server, "grows").await;
    let _simulated = Simulated::start(&server.client, grow_all);
    let config = server.kubeconfig();
    let good = async |arguments: &[&str]| {
        let (code, out, error) = run(&config, arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    };
    let out = good(&["vm", "disk", "grow", "pg", "data", "2Gi", "--timeout", "60s"]).await;
    assert!(out.starts_with("virtualmachine/pg disk data grown to 2Gi ("), "{out}");
    let claim = get(&server.client, CLAIM).await.unwrap();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    let out = good(&["vm", "disk", "grow", "pg", "data", "2Gi"]).await;
    assert!(out.contains("grown to 2Gi"), "again: {out}");
    let out = good(&["vm", "disk", "grow", "pg", "data", "3Gi", "--no-wait"]).await;
    assert_eq!(out, "virtualmachine/pg disk data growth to 3Gi requested\n");
    good(&["vm", "disk", "grow", "pg", "data", "3Gi"]).await;
    let table = good(&["vm", "disk", "list", "pg", "--no-headers"]).await;
    let cells: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(cells.contains(&vec!["data", "/data", "data-pg", "3Gi", "-", "-", "-", "copied"]), "{table}");
    assert!(cells.contains(&vec!["tmp", "/scratch", "-", "2Gi", "-", "-", "-", "-"]), "{table}");
    let json: Value = serde_json::from_str(&good(&["vm", "disk", "list", "pg", "-o", "json"]).await).unwrap();
    let disks = json["items"].as_array().unwrap();
    let data = disks.iter().find(|disk| disk["name"] == "data").unwrap();
    assert_eq!(
        (&data["claim"], &data["mode"], &json["kind"]),
        (&json!("data-pg"), &json!("copied"), &json!("DiskList"))
    );
}

/// Limits are at once in force, as the spec has them.
async fn limit_all(client: Client) {
    let Some(vm) = get(&client, VM).await else { return };
    let status = json!({"status": {"phase": "Running", "podName": "p", "diskLimits": vm["spec"].get("diskLimits"),
        "conditions": [{"type": "DiskLimited", "status": "True", "reason": "LimitBinds", "message": "disk data is held to its limit",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    patch(&client, &format!("{VM}/status"), &status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_limited_while_the_vm_runs() {
    let server = ApiServer::with_our_kinds().await;
    vm_with_disks(&server, "grows").await;
    let _simulated = Simulated::start(&server.client, limit_all);
    let config = server.kubeconfig();
    let limit =
        async |arguments: &[&str]| run(&config, &[&["vm", "disk", "limit", "pg"], arguments].concat()).await;
    let (code, out, error) =
        limit(&["data", "--iops", "500", "--bandwidth", "50Mi", "--timeout", "60s"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("virtualmachine/pg disk data: limit of 500 IOPS, 50Mi/s in force ("), "{out}");
    let burst = ["/", "--iops", "100", "--burst-iops", "900", "--burst-seconds", "30"];
    assert_eq!(limit(&burst).await.0, 0);
    let limits = async || get(&server.client, VM).await.unwrap()["spec"]["diskLimits"].clone();
    let root = json!({"disk": "rootdisk", "iops": 100, "burst": {"iops": 900, "seconds": 30}});
    assert_eq!(limits().await, json!([{"disk": "data", "iops": 500, "bandwidth": "50Mi"}, root]));
    let (_, table, _) = run(&config, &["vm", "disk", "list", "pg"]).await;
    assert!(table.contains("LIMITS") && table.contains("500 IOPS, 50Mi/s"), "{table}");
    let (_, text, _) = run(&config, &["vm", "describe", "pg"]).await;
    assert!(
        text.contains("; limited to 500 IOPS, 50Mi/s") && text.contains("Root          limited to 100 IOPS"),
        "{text}"
    );
    let (_, _, notes) = run(&config, &["top", "vms"]).await;
    assert!(notes.contains("pg: disk data is held to its limit"), "{notes}");

    for (arguments, code, part) in [
        (&["dat", "--iops", "50"][..], 3, "did you mean \"data\"?"),
        (&["data"], 2, "--iops"),
        (&["data", "--none", "--iops", "50"], 2, "--none"),
        (&["data", "--bandwidth", "50Mi", "--burst-iops", "50"], 2, "--iops"),
        (&["data", "--iops", "5"], 2, "between 10 and 10000000"),
        (&["data", "--iops", "50", "--burst-iops", "50"], 2, "must be above"),
    ] {
        let (found, _, error) = limit(arguments).await;
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {error}");
    }
    assert_eq!(limit(&["data", "--none"]).await.0, 0);
    assert_eq!(limits().await, json!([root]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_grow_is_refused_with_the_reason() {
    let server = ApiServer::with_our_kinds().await;
    vm_with_disks(&server, "fixed").await;
    let config = server.kubeconfig();
    let bad = async |arguments: &[&str]| {
        let (code, _, error) = run(&config, &[&["vm", "disk", "grow"], arguments].concat()).await;
        (code, error)
    };
    for (arguments, code, part) in [
        (["pg", "dat", "2Gi"], 3, "did you mean \"data\"?"),
        (["other", "data", "2Gi"], 3, "other"),
        (["pg", "tmp", "3Gi"], 5, "not on a persistent volume claim"),
        (["pg", "data", "512Mi"], 2, "does not shrink"),
        (["pg", "data", "2Gi"], 5, "storage class fixed of claim data-pg does not allow expansion"),
        (["pg", "data", "many"], 2, "many"),
    ] {
        let (found, error) = bad(&arguments).await;
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {error}");
    }
    let claim = get(&server.client, CLAIM).await.unwrap();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi", "nothing was requested");
}
