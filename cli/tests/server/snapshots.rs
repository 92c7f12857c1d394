//! `vm snapshot` and `vm create --from-snapshot` against a real API server with the definitions of snapshots; the test simulates their
//! controller. The VM is off, so that nothing is frozen.

use kube::Client;
use neonvm_test_cluster::{ApiServer, Simulated, apply, eventually};
use serde_json::{Value, json};

use super::{get, patch, run};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn post(client: &Client, path: &str, object: Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let _: Value = client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap();
}

async fn define(client: &Client) {
    for (kind, plural, scope) in [
        ("VolumeSnapshot", "volumesnapshots", "Namespaced"),
        ("VolumeSnapshotClass", "volumesnapshotclasses", "Cluster"),
    ] {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        apply(client, &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.snapshot.storage.k8s.io"), "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}},
            "spec": {"group": "snapshot.storage.k8s.io", "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}))
        .await;
    }
}

/// What the controller of snapshots does: those of `broken` fail.
async fn cut_all(client: Client) {
    let Some(list) = get(&client, SNAPSHOTS).await else { return };
    for snapshot in list["items"].as_array().unwrap() {
        let name = snapshot["metadata"]["name"].as_str().unwrap();
        let status = match snapshot["spec"]["source"]["persistentVolumeClaimName"] == "broken" {
            true => json!({"error": {"message": "no such volume"}}),
            false => {
                json!({"creationTime": "2026-01-01T00:00:00Z", "readyToUse": true, "restoreSize": "2Gi"})
            }
        };
        patch(&client, &format!("{SNAPSHOTS}/{name}"), &json!({ "status": status })).await;
    }
}

/// A VM that is off, with disks on two claims.
async fn vm(client: &Client, name: &str, claims: [&str; 2]) {
    for claim in claims {
        if get(client, &format!("{CLAIM}/{claim}")).await.is_none() {
            post(client, CLAIM, json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim},
                "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
            .await;
        }
    }
    let disks: Vec<Value> = ["data", "log"].iter().zip(claims).map(|(disk, claim)| {
        json!({"name": disk, "mountPath": format!("/{disk}"), "persistentVolumeClaim": {"claimName": claim}})
    }).collect();
    post(client, "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines", json!({"apiVersion": "vm.neon.tech/v1",
        "kind": "VirtualMachine", "metadata": {"name": name}, "spec": {"powerState": "Stopped", "disks": disks, "guest": {
            "cpus": {"min": 1, "max": 1, "use": 1}, "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": "i:1"}}}}))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_volumes_are_snapshot_and_a_vm_is_made_from_them() {
    let server = ApiServer::with_our_kinds().await;
    let (client, config) = (&server.client, server.kubeconfig());
    vm(client, "pg", ["data-pg", "log-pg"]).await;
    let good = async |arguments: &[&str]| {
        let (code, out, error) = run(&config, arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    };
    let bad = async |arguments: &[&str], code: i32, part: &str| {
        let (found, out, error) = run(&config, arguments).await;
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {out}{error}");
    };
    bad(&["vm", "snapshot", "create", "pg"], 3, "this cluster has no VolumeSnapshots").await;
    bad(&["vm", "snapshot", "list"], 3, "external-snapshotter").await;
    define(client).await;
    let class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "copies"},
        "driver": "d", "deletionPolicy": "Delete"});
    eventually("the definitions are served", async || get(client, SNAPSHOTS).await).await;
    bad(&["vm", "snapshot", "create", "pg"], 3, "has no VolumeSnapshotClass").await;
    eventually("the class is stored", async || {
        let path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request::<Value>(request.body(class.to_string().into_bytes()).unwrap()).await.ok()
    })
    .await;
    bad(&["vm", "snapshot", "create", "pg", "--class", "other"], 3, "there are: copies").await;
    bad(&["vm", "snapshot", "create", "pg", "--name", "A"], 2, "--name").await;

    let _simulated = Simulated::start(client, cut_all);
    let out = good(&["vm", "snapshot", "create", "pg", "--name", "s1", "--class", "copies"]).await;
    assert_eq!(out, "snapshot/s1 of virtualmachine/pg created: s1-data, s1-log; the VM is off\n");
    let stored = get(client, &format!("{SNAPSHOTS}/s1-data")).await.unwrap();
    assert_eq!(stored["spec"]["source"]["persistentVolumeClaimName"], "data-pg");
    assert_eq!(stored["spec"]["volumeSnapshotClassName"], "copies");
    bad(&["vm", "snapshot", "create", "pg", "--name", "s1"], 5, "there is a snapshot s1 already").await;
    assert!(get(client, &format!("{SNAPSHOTS}/s1-data")).await.is_some(), "it stays");
    let json: Value = serde_json::from_str(&good(&["vm", "snapshot", "list", "-o", "json"]).await).unwrap();
    assert_eq!(
        json["items"],
        json!([{"name": "s1", "metadata": {"name": "s1"}, "vm": "pg", "disks": ["data", "log"], "ready": true}])
    );

    // A part that fails leaves nothing.
    vm(client, "half", ["data-pg", "broken"]).await;
    bad(&["vm", "snapshot", "create", "half", "--name", "s2"], 1, "no such volume").await;
    assert_eq!(get(client, SNAPSHOTS).await.unwrap()["items"].as_array().unwrap().len(), 2);

    let create = "vm create pg2 --image i:1 --cu 1 --from-snapshot s1 --storage-class slow";
    good(&create.split(' ').collect::<Vec<_>>()).await;
    let made = get(client, "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/pg2").await.unwrap();
    assert_eq!(
        made["spec"]["disks"][0],
        json!({"name": "data", "mountPath": "/data", "readOnly": false, "watch": false})
    );
    let template = &made["spec"]["volumeClaimTemplates"][1];
    assert_eq!(
        (&template["metadata"]["name"], &template["spec"]["storageClassName"]),
        (&json!("log"), &json!("slow"))
    );
    assert_eq!(template["spec"]["dataSource"]["name"], "s1-log");
    assert_eq!(template["spec"]["resources"]["requests"]["storage"], "2Gi");
    bad(&["vm", "create", "pg3", "--image", "i:1", "--from-snapshot", "s2"], 3, "did you mean \"s1\"?").await;

    good(&["vm", "snapshot", "delete", "s1"]).await;
    assert_eq!(get(client, SNAPSHOTS).await.unwrap()["items"], json!([]));
}
