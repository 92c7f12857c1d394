//! Facts of objects.

use serde_json::json;

use super::*;

fn migration_of(status: &serde_json::Value) -> MoveFacts {
    let object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": "pg-1", "namespace": "db", "creationTimestamp": "2026-01-01T00:00:01Z" },
        "spec": { "vmName": "pg" }, "status": status });
    migration(&serde_json::from_value(object).unwrap()).1
}

#[test]
fn vms() {
    let object = |status: serde_json::Value| {
        json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg", "namespace": "db", "labels": { "autoscaling.neon.tech/enabled": "true" } },
            "spec": { "guest": { "cpus": { "min": "250m", "max": 3, "use": 1 }, "memorySlotSize": "1Gi",
                "rootDisk": { "image": "i" }, "memorySlots": { "min": 1, "max": 12, "use": 4 } } }, "status": status })
    };
    let running = json!({ "phase": "Running", "podName": "pg-a", "node": "n\u{1b}[2J", "cpus": 1, "memorySize": "4Gi" });
    let (key, facts) = vm(&serde_json::from_value(object(running)).unwrap());
    assert_eq!(key, Key::new("db", "pg"));
    assert!(facts.running && facts.scaled);
    assert_eq!((facts.node.as_str(), facts.size), ("n\\x1b[2J", facts.requested));
    assert_eq!(facts.max, Resources::new(MilliCpu::new(3000), Bytes::gib(12)));
    let (_, facts) = vm(&serde_json::from_value(object(json!({}))).unwrap());
    assert_eq!((facts.phase.as_str(), facts.running, facts.size), ("New", false, Resources::default()));
}

#[test]
fn nodes() {
    let of = |value: serde_json::Value| node(&serde_json::from_value(value).unwrap()).1;
    let ready = |status: &str| json!([{ "type": "Ready", "status": status, "message": "kubelet stopped" }]);
    let amounts = json!({ "cpu": "3900m", "memory": "16Gi" });
    let facts = of(
        json!({ "metadata": { "name": "n" }, "status": { "allocatable": amounts, "conditions": ready("True") } }),
    );
    assert_eq!(facts, NodeFacts { total: Resources::new(MilliCpu::new(3900), Bytes::gib(16)), closed: None });
    let facts = of(json!({ "metadata": {}, "status": { "conditions": ready("Unknown") } }));
    assert_eq!(facts.closed.as_deref(), Some("not ready: kubelet stopped"));
    let facts = of(json!({ "metadata": {}, "spec": { "unschedulable": true } }));
    assert_eq!(facts.closed.as_deref(), Some("cordoned"));
}

#[test]
fn migrations() {
    let active = migration_of(
        &json!({ "phase": "Running", "reason": "Copying", "sourceNode": "n1", "targetNode": "n2",
        "info": { "passes": 3, "throughput": 1 << 30, "ram": { "total": 100, "remaining": 25 } } }),
    );
    assert_eq!((active.percent, active.ended, active.failed), (Some(75), None, false));
    assert_eq!((active.text.as_str(), active.created), ("iteration 3, 1Gi/s, dirty 0/s", 1_767_225_601_000));
    let done = migration_of(
        &json!({ "phase": "Succeeded", "completionTime": "2026-01-01T00:00:03Z", "targetNode": "n2",
        "info": { "downtimeMs": 31 } }),
    );
    assert_eq!((done.ended, done.failed, done.percent), (Some(1_767_225_603_000), false, Some(100)));
    assert_eq!(done.text, "succeeded, downtime 31 ms");
    assert!(migration_of(&json!({ "phase": "Failed", "reason": "NoRoom", "message": "no room" })).failed);
    assert_eq!(migration_of(&json!({})).phase, "Queued");
}

#[test]
fn events() {
    let object = json!({ "metadata": { "uid": "u" }, "involvedObject": { "kind": "VirtualMachine", "namespace": "db", "name": "pg" },
        "reason": "Started", "message": "a\nb", "type": "Warning", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 3 });
    let entry = event(serde_json::from_value(object).unwrap());
    assert_eq!((entry.kind, entry.text.as_str()), (Kind::Warning, "Started: a\\nb (x3)"));
    assert_eq!((entry.at, entry.vm), (1_767_225_600_000, Key::new("db", "pg")));
    let bare = event(serde_json::from_value(json!({ "metadata": {}, "involvedObject": {} })).unwrap());
    assert_eq!(bare.at, 0);
}

#[test]
fn long_texts_are_cut() {
    let long = inspected(VmInspect { state: "\u{1f600}".repeat(5000), ..VmInspect::default() });
    assert_eq!(long.state.chars().count(), LONGEST + 3);
}
