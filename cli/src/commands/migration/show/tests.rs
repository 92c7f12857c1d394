use serde_json::{Value, json};

use super::*;

fn migration(status: &Value) -> VirtualMachineMigration {
    serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration", "metadata": { "name": "pg-1" },
        "spec": { "vmName": "pg" }, "status": status }))
    .unwrap()
}

#[test]
fn an_active_migration() {
    let gib = 1_i64 << 30;
    let moving =
        migration(&json!({ "phase": "Running", "reason": "Copying", "sourceNode": "n1", "targetNode": "n3",
        "info": { "passes": 2, "throughput": gib, "dirtyRate": gib / 2, "throttlePercent": 20,
            "ram": { "total": 8 * gib, "remaining": 2 * gib, "transferred": 7 * gib } } }));
    assert_eq!(percent(&moving), Some(75));
    assert_eq!(state(&moving), "copying, iteration 2, 75%");
    assert_eq!(way(&moving), "migration/pg-1 n1 -> n3");
    assert_eq!(
        progress(&moving),
        "iteration 2 [###############.....] 6Gi/8Gi 1Gi/s dirty 512Mi/s eta 4s throttled by 20%"
    );
    assert_eq!(step(&moving), Some("copy"));
    let copying = migration(&json!({ "phase": "Running", "reason": "Mirroring",
        "info": { "diskWriteLimit": 12 << 20, "disk": { "total": 8 * gib, "transferred": 2 * gib } } }));
    assert_eq!(progress(&copying), "2Gi/8Gi of disks, disk writes limited to 12Mi/s each");
    assert_eq!(asked_by(&moving), "user");
}

#[test]
fn how_migrations_end() {
    let ended = migration(
        &json!({ "phase": "Succeeded", "reason": "Completed", "sourceNode": "n1", "targetNode": "n3",
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:12Z", "info": { "downtimeMs": 71 } }),
    );
    assert_eq!(ending(&ended), "succeeded: pg runs on n3 (downtime 71 ms)");
    assert_eq!((percent(&ended), step(&ended)), (Some(100), None));
    assert_eq!(took(&ended, Instant::UNIX_EPOCH).as_deref(), Some("12s"));
    let off = migration(&json!({ "phase": "Failed", "reason": "Cancelled", "sourceNode": "n1" }));
    assert_eq!(
        (phase_word(&off).as_str(), ending(&off).as_str()),
        ("Cancelled", "cancelled; pg stayed on n1")
    );
    let failed = migration(&json!({ "phase": "Failed", "reason": "TargetFailed", "message": "no room" }));
    assert_eq!(phase_word(&failed), "Failed");
    assert_eq!(ending(&failed), "failed: no room (TargetFailed)");
}

#[test]
fn one_that_is_not_reconciled_yet() {
    let new = migration(&json!({}));
    assert_eq!((phase_word(&new).as_str(), percent(&new), step(&new)), ("Queued", None, Some("queue")));
    assert!(reason(&new).contains("vm-controller"));
}

#[test]
fn sizes_are_short() {
    assert_eq!((size(0), size(1023), size(1024)), ("0".into(), "1023".into(), "1Ki".into()));
    assert_eq!((size(-5), size(150 << 20), size(3 << 29)), ("0".into(), "150Mi".into(), "1.5Gi".into()));
}
