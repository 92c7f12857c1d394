use proptest::prelude::*;

use super::*;

const NEWEST: u64 = 1000;

fn entry(table: &str, key: &str, object: &Value) -> Entry {
    let json = Bytes::from(object.to_string());
    (table.into(), key.into(), Stored { revision: 7, json })
}

/// What becomes of one object.
fn renewed(table: &str, object: &Value, is_new: bool) -> Option<Value> {
    let (objects, newest) = renew(vec![entry(table, "default/x", object)], NEWEST, is_new);
    let (_, _, stored) = objects.into_iter().next()?;
    let renewed: Value = serde_json::from_slice(&stored.json).unwrap();
    let is_changed = renewed != *object;
    // A change that no client has seen has a version that no client has.
    assert_eq!(stored.revision, if is_changed { NEWEST + 1 } else { 7 });
    assert_eq!(newest, stored.revision.max(NEWEST));
    if is_changed {
        assert_eq!(renewed["metadata"]["resourceVersion"], "1001");
    }
    Some(renewed)
}

fn owned() -> Value {
    json!([{ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": "x", "uid": "u", "controller": true }])
}

#[test]
fn a_vm_that_ran_starts_and_one_that_had_ended_stays() {
    let spec = json!({ "guest": {}, "powerState": "Paused" });
    let status = json!({ "phase": "Running", "podName": "x-abcde", "podIP": "10.128.1.2", "node": "n1", "cpus": 1,
        "memorySize": "1Gi", "conditions": [{ "type": "Available", "status": "True" }], "powerState": "Paused",
        "extraNetIP": "10.16.128.1", "extraNetMask": "255.255.0.0", "restartCount": 2, "restartRequest": "r",
        "machine": {}, "migration": { "name": "m" }, "lastExit": { "reason": "Stopped" }, "sshSecretName": "ssh-x" });
    let vm =
        |status: &Value| json!({ "metadata": { "name": "x", "uid": "u" }, "spec": spec, "status": status });
    let table = "vm.neon.tech/virtualmachines";
    let kept = json!({ "restartCount": 2, "restartRequest": "r", "lastExit": { "reason": "Stopped" },
        "sshSecretName": "ssh-x" });
    for phase in ["Pending", "Running", "Scaling", "PreMigrating", "Migrating"] {
        let mut status = status.clone();
        status["phase"] = json!(phase);
        let renewed = renewed(table, &vm(&status), true).unwrap();
        assert_eq!((&renewed["status"], &renewed["spec"]), (&kept, &spec), "{phase}");
        assert_eq!(renewed["metadata"]["uid"], "u");
    }
    // In its own cluster a VM keeps its address.
    let own = renewed(table, &vm(&status), false).unwrap();
    assert_eq!(own["status"]["extraNetIP"], "10.16.128.1");
    assert_eq!((&own["status"]["podIP"], &own["status"]["phase"]), (&Value::Null, &Value::Null));
    for phase in ["Succeeded", "Failed"] {
        let status = json!({ "phase": phase, "powerState": "Stopped", "restartCount": 1, "lastExit": {},
            "conditions": [{ "type": "Available", "status": "False" }] });
        assert_eq!(renewed(table, &vm(&status), true).unwrap(), vm(&status), "as it is, with its version");
    }
}

#[test]
fn pods_nodes_and_leases_of_processes_that_are_gone_go() {
    let pod = |owners: Value, phase: &str| {
        json!({ "metadata": { "name": "x", "ownerReferences": owners },
        "spec": { "nodeName": "n1", "containers": [] },
        "status": { "phase": phase, "podIP": "10.128.1.2", "qosClass": "Burstable" } })
    };
    assert_eq!(renewed("/pods", &pod(owned(), "Running"), false), None);
    assert_eq!(renewed("/pods", &pod(owned(), "Failed"), true), None);
    let own = renewed("/pods", &pod(json!([]), "Running"), false).unwrap();
    assert_eq!(own["spec"], json!({ "containers": [] }));
    assert_eq!(own["status"], json!({ "phase": "Pending", "qosClass": "Burstable" }));
    let ended = pod(json!([]), "Succeeded");
    assert_eq!(renewed("/pods", &ended, true), Some(ended));
    let mut deleted = pod(json!([]), "Running");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(renewed("/pods", &deleted, false), None);
    assert_eq!(renewed("coordination.k8s.io/leases", &json!({ "metadata": {} }), false), None);
    let node = json!({ "metadata": { "name": "n1", "labels": { "disk": "fast" },
            "annotations": { "a": "b", "vm.neon.tech/host-facts": "{}" } },
        "spec": { "podCIDR": "10.128.1.0/24", "podCIDRs": ["10.128.1.0/24"], "unschedulable": true,
            "taints": [{ "key": "mine", "effect": "NoSchedule" },
                { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }] },
        "status": { "addresses": [{ "type": "InternalIP", "address": "10.90.1.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }] } });
    let renewed = renewed("/nodes", &node, true).unwrap();
    let spec = json!({ "unschedulable": true, "taints": [{ "key": "mine", "effect": "NoSchedule" }] });
    assert_eq!((&renewed["spec"], &renewed["status"]), (&spec, &json!({})));
    assert_eq!(renewed["metadata"]["labels"]["disk"], "fast");
    assert_eq!(renewed["metadata"]["annotations"], json!({ "a": "b" }));
}

#[test]
fn a_migration_that_was_under_way_is_over() {
    let migration = |phase: &str| json!({ "metadata": { "name": "m" }, "spec": { "vmName": "x" }, "status": { "phase": phase } });
    let table = "vm.neon.tech/virtualmachinemigrations";
    for phase in ["", "Pending", "Running", "Cancelling"] {
        assert_eq!(renewed(table, &migration(phase), false), None, "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(renewed(table, &migration(phase), true), Some(migration(phase)));
    }
}

#[test]
fn a_new_cluster_has_its_own_keys_and_addresses() {
    let secret = |name: &str, owners: Value, kind: &str, key: &str| {
        json!({ "metadata": { "name": name,
        "namespace": "default", "ownerReferences": owners }, "type": kind, "data": { key: "eA==" } })
    };
    let none = json!([]);
    // Of the cluster: (secret, of its own cluster, of a new one).
    for (object, in_own) in [
        (secret("neonvm-internal-ca", none.clone(), "Opaque", "tls.key"), true),
        (secret("neonvm-vm-ca", none.clone(), "Opaque", "tls.key"), true),
        (secret("ssh-x", owned(), "kubernetes.io/ssh-auth", "ssh-privatekey"), true),
        (secret("x-tls", owned(), "kubernetes.io/tls", "tls.key"), true),
        (secret("token", none.clone(), "kubernetes.io/service-account-token", "token"), true),
        (secret("x-abcde", owned(), "Opaque", "vm.json"), false),
    ] {
        assert_eq!(renewed("/secrets", &object, false), in_own.then(|| object.clone()), "{object}");
        assert_eq!(renewed("/secrets", &object, true), None, "{object}");
    }
    let mut identity = secret("x-abcde-identity", owned(), "Opaque", "tls.key");
    identity["metadata"]["labels"] = json!({ "vm.neon.tech/runner-config": "true" });
    assert_eq!(renewed("/secrets", &identity, false), None);
    for object in [
        secret("mine", none.clone(), "Opaque", "password"),
        secret("mine", none.clone(), "kubernetes.io/ssh-auth", "ssh-privatekey"),
        secret("mine", none, "kubernetes.io/dockerconfigjson", ".dockerconfigjson"),
    ] {
        assert_eq!(renewed("/secrets", &object, true), Some(object));
    }
    let named = |name: &str| json!({ "metadata": { "name": name } });
    for (table, name, in_own) in [
        ("/configmaps", "neonvm-internal-ca", true),
        ("vm.neon.tech/ippools", "pool", true),
        ("certificates.k8s.io/certificatesigningrequests", "csr", true),
        // They have the address of a process.
        (
            "admissionregistration.k8s.io/validatingwebhookconfigurations",
            "neonvm-validating-webhook-configuration",
            false,
        ),
    ] {
        assert_eq!(renewed(table, &named(name), false), in_own.then(|| named(name)), "{table}");
        assert_eq!(renewed(table, &named(name), true), None, "{table}");
    }
    let service = |namespace: &str| json!({ "metadata": { "name": "kubernetes", "namespace": namespace } });
    assert_eq!(renewed("/services", &service("default"), false), None, "it has the port of the source");
    assert_eq!(renewed("/services", &service("mine"), true), Some(service("mine")));
    for (table, name) in [
        ("/configmaps", "mine"),
        ("/services", "neonvm-internal-ca"),
        ("/namespaces", "default"),
        ("admissionregistration.k8s.io/validatingwebhookconfigurations", "mine"),
    ] {
        assert_eq!(renewed(table, &named(name), true), Some(named(name)), "{table}");
    }
}

#[test]
fn addresses_of_another_range_are_released() {
    let vm = |status: &Value| json!({ "metadata": { "name": "x" }, "status": status });
    let with = json!({ "phase": "Failed", "extraNetIP": "10.16.128.1", "extraNetMask": "255.255.0.0" });
    let without = vm(&json!({ "phase": "Failed" }));
    let objects = vec![
        entry("vm.neon.tech/virtualmachines", "default/x", &vm(&with)),
        entry("vm.neon.tech/virtualmachines", "default/y", &without),
        entry("vm.neon.tech/ippools", "default/p", &json!({})),
        entry("/pods", "default/p", &json!({ "status": { "phase": "Running" } })),
    ];
    let (left, newest) = without_addresses(objects.clone(), NEWEST);
    assert_eq!((newest, left.len()), (NEWEST + 1, 3));
    let changed: Value = serde_json::from_slice(&left[0].2.json).unwrap();
    assert_eq!(changed["status"], json!({ "phase": "Failed" }));
    assert_eq!(left[1..], [objects[1].clone(), objects[3].clone()]);
}

proptest! {
    /// Whatever bytes stand in a backup, and a second restore changes nothing more.
    #[test]
    fn any_object_is_renewed_once(
        table in prop::sample::select(vec!["/pods", "/nodes", "/secrets", "vm.neon.tech/virtualmachines",
            "vm.neon.tech/virtualmachinemigrations", "things", ""]),
        status in prop::sample::select(vec!["null", "1", "[]", "{}", r#"{"phase":"Running","podIP":"1.2.3.4"}"#,
            r#"{"phase":7}"#]),
        spec in prop::sample::select(vec!["null", "\"x\"", r#"{"nodeName":"n1","podCIDR":"10.0.0.0/24","taints":[1]}"#]),
        metadata in prop::sample::select(vec!["null", "[]", "{}", r#"{"annotations":[],"ownerReferences":[1]}"#]),
        is_new: bool,
    ) {
        let text = format!(r#"{{"metadata":{metadata},"spec":{spec},"status":{status}}}"#);
        let stored = Stored { revision: 7, json: Bytes::from(text) };
        let (once, newest) = renew(vec![(table.into(), "k".into(), stored)], NEWEST, is_new);
        let (twice, same) = renew(once.clone(), newest, is_new);
        prop_assert_eq!((once, newest), (twice, same));
    }
}
