use serde_json::{Value, json};

use super::*;

fn vm(change: &Value) -> VirtualMachine {
    let mut object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": { "name": "pg", "namespace": "db" }, "spec": { "restartPolicy": "Always", "guest": {
            "cpus": { "min": 1, "max": 2, "use": 1 }, "memorySlots": { "min": 1, "max": 4, "use": 1 },
            "kernelImage": "kernel:9", "rootDisk": { "image": "db:17" } } },
        "status": { "phase": "Pending" } });
    neonvm_api::merge_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
}

fn degraded(reason: &str, message: &str) -> Value {
    condition("Degraded", "True", reason, message)
}

/// The row that ends the wait, and the error.
fn ended_by(awaited: Awaited, seen: &VirtualMachine) -> Option<(usize, Error)> {
    let WaitProgress::Never(error) = of_vm(awaited, seen) else { return None };
    Some((row_of(awaited, &error), error))
}

fn row_of(awaited: Awaited, error: &Error) -> usize {
    let fits = |row: &Final| {
        let parts: Vec<&str> = row.what.split("IMAGE").collect();
        row.ends.contains(&awaited) && parts.iter().all(|part| error.message.contains(part))
    };
    TABLE.iter().position(fits).unwrap()
}

fn autoscaler(kind: &str) -> PodAutoscaler {
    let mut object = json!({ "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "maxReplicas": 3,
            "scalingStrategy": "APA", "metricsSources": [] } });
    neonvm_api::merge_patch::merge(&mut object, &condition(kind, "False", "R", "why"));
    serde_json::from_value(object).unwrap()
}

/// Each row ends a wait at once, with exit code 5, the cause and a command.
#[test]
fn each_row_ends_the_wait() {
    let forbidden = "pods \"pg-1\" is forbidden: violates PodSecurity \"baseline:latest\"";
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let never = json!({ "spec": { "restartPolicy": "Never" }, "status": { "phase": "Failed" } });
    let mut unwell = degraded("WorkloadFailing", "it ends again and again");
    unwell["status"]["phase"] = json!("Running");
    let machines: Vec<(Awaited, Value, &str)> = vec![
        (Up, going, "neonctl vm list"),
        (Up, degraded("QuotaExceeded", "exceeded quota: vms"), "resourcequota -n db"),
        (Up, degraded("PodFailed", forbidden), "neonctl vm delete pg"),
        (Up, degraded("InvalidSpec", "no such disk"), "kubectl edit neonvm pg -n db"),
        (Up, degraded("PodNotStarting", "ErrImagePull: db:17: not found"), "neonctl vm delete pg"),
        (
            Up,
            degraded("StartFailure", "root disk: there is no image /vm/rootdisk/disk.qcow2; 2 ends in a row"),
            "neonctl vm build",
        ),
        (Up, degraded("AcceleratorFailure", "x; not started again until the spec changes"), "--previous"),
        (Up, never, "neonctl vm logs pg --previous"),
        (Up, unwell, "neonctl vm logs pg"),
        (Paused, degraded("PauseFailed", "the runner knows no pause"), "neonctl vm migrate pg"),
        (Paused, json!({ "status": { "phase": "Failed" } }), "neonctl vm describe pg"),
        (Suspended, degraded("SuspendFailed", "no space left on device"), "neonctl vm migrate pg"),
        (Suspended, json!({ "status": { "phase": "Failed" } }), "neonctl vm describe pg"),
        (Resumed, json!({ "spec": { "powerState": "Stopped" } }), "neonctl vm start pg"),
        (Size, json!({ "status": { "phase": "Succeeded" } }), "neonctl vm start pg"),
        (Size, condition("Scaled", "False", "Paused", "p"), "neonctl vm resume pg"),
        (Size, condition("Scaled", "False", "ResizeInfeasible", "r"), "neonctl vm migrate pg"),
        (Size, condition("Scaled", "False", "ResizeForbidden", "f"), "neonctl vm describe pg"),
    ];
    let mut hit = std::collections::BTreeSet::new();
    let mut check = |row: usize, error: &Error, hint: &str| {
        assert_eq!(error.code, Code::Conflict, "{error:?}");
        assert!(error.hint.as_deref().unwrap().contains(hint) && error.causes.len() == 1, "{error:?}");
        assert!(!error.message.contains("IMAGE"), "{error:?}");
        assert!(hit.insert(row), "two examples of a row: {error:?}");
    };
    for (awaited, change, hint) in &machines {
        let (row, error) = ended_by(*awaited, &vm(change)).unwrap_or_else(|| panic!("{change}"));
        check(row, &error, hint);
    }
    for kind in ["ValidSpec", "MultiPodAutoscalerConflict"] {
        let WaitProgress::Never(error) = of_autoscaler(&autoscaler(kind)) else { panic!("{kind}") };
        check(row_of(Ready, &error), &error, "podautoscaler web -n shop");
    }
    for waits_for in ["ErrImagePull r/neond:9: r/neond:9: not found", forbidden] {
        let error = of_service("agent", waits_for).unwrap();
        check(row_of(Service, &error), &error, "run the same command again");
    }
    assert_eq!(hit.len(), TABLE.len(), "a row has no example");
}

#[test]
fn what_may_still_come_right_is_waited_for() {
    let away = "the pod cannot be made: Internal error occurred: failed calling webhook \"a\": no endpoints";
    for (awaited, change) in [
        (Up, json!({})),
        (Up, degraded("PodFailed", away)),
        (Up, degraded("PodFailed", "the pod cannot be made: the API server cannot be reached")),
        (Up, degraded("PodNotStarting", "CreateContainerConfigError")),
        (Up, degraded("Other", "ErrImagePull")),
        (Up, degraded("StartFailure", "network: the node service: the API server does not answer")),
        (Up, degraded("RunnerUnreachable", "the runner does not answer")),
        (Up, json!({ "status": { "phase": "Failed" } })),
        (Up, condition("Scaled", "False", "Paused", "p")),
        (Paused, degraded("RunnerUnreachable", "the runner does not answer")),
        (Resumed, json!({ "status": { "phase": "Running" } })),
        (Suspended, condition("Suspended", "False", "GuestBusy", "2 of its tasks run")),
    ] {
        assert!(matches!(of_vm(awaited, &vm(&change)), WaitProgress::NotYet), "{awaited:?} {change}");
    }
    let reasons = [
        "InProgress",
        "MemoryNotReleased",
        "MemoryNotTaken",
        "CpuNotScaled",
        "Migrating",
        "ResizeDeferred",
        "ResizeUnanswered",
        "ResizeRefused",
        "ResizeDenied",
        "ResizeFailing",
        "DevicesUnavailable",
        "AReasonOfLater",
    ];
    for reason in reasons {
        let seen = vm(&condition("Scaled", "False", reason, "as the controller wrote"));
        assert!(matches!(of_vm(Size, &seen), WaitProgress::NotYet), "{reason}");
    }
    let mut movable = vm(&condition("Scaled", "False", "ResizeInfeasible", "r"));
    movable.metadata.labels = Some([(label::AUTO_MIGRATION_ENABLED.to_owned(), TRUE.to_owned())].into());
    assert!(matches!(of_vm(Size, &movable), WaitProgress::NotYet), "the controller migrates it");
    assert!(of_service("agent", "ErrImagePull: dial tcp: connection refused").is_none());
    assert!(of_service("agent", "it is starting on n1").is_none());
}

#[test]
fn the_image_that_cannot_be_pulled_is_named() {
    for (message, part) in [
        ("ErrImagePull: db:17: not found", "its image \"db:17\" cannot be pulled"),
        (
            "ImagePullBackOff: Back-off pulling image \"kernel:9\"",
            "its kernel image \"kernel:9\" cannot be pulled",
        ),
        ("ImagePullBackOff", "an image cannot be pulled"),
    ] {
        let (_, error) = ended_by(Up, &vm(&degraded("PodNotStarting", message))).unwrap();
        assert!(error.message.contains(part), "{error:?}");
        assert_eq!(error.causes, [message]);
    }
}
