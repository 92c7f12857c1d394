//! Objects with hostile texts wherever their types take any.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use neonvm_api::{PodAutoscaler, VirtualMachine, VirtualMachineMigration};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::server::HOSTILE;

const TIME: &str = "2026-01-01T00:00:00Z";

/// The object of this resource, if the server has one.
pub(crate) fn named(resource: &str) -> Option<Value> {
    Some(match resource {
        "virtualmachines" => hostile::<VirtualMachine>(machine()),
        "virtualmachinemigrations" => hostile::<VirtualMachineMigration>(migration()),
        "podautoscalers" => hostile::<PodAutoscaler>(autoscaler()),
        "events" => hostile::<Event>(event()),
        "nodes" => hostile::<Node>(node()),
        "pods" => hostile::<Pod>(pod()),
        "leases" => hostile::<Lease>(lease()),
        "deployments" => hostile::<Deployment>(deployment()),
        _ => return None,
    })
}

/// Every text with hostile bytes behind it, as long as the type still reads the object.
fn hostile<K: DeserializeOwned>(mut object: Value) -> Value {
    let reads = |object: &Value| serde_json::from_value::<K>(object.clone()).is_ok();
    assert!(reads(&object), "{:?}", serde_json::from_value::<K>(object.clone()).err());
    let mut texts = Vec::new();
    find(&object, &mut String::new(), &mut texts);
    let mut poisoned = 0;
    for pointer in texts {
        // Numbers in texts, and what objects are found by: of a pod that is looked for, no server has such a name.
        let finds = ["/kind", "/involvedObject/kind", "/status/podName", "/spec/vmName"];
        if pointer.ends_with("ersion") || finds.iter().any(|find| pointer.ends_with(find)) {
            continue;
        }
        let Some(place) = object.pointer_mut(&pointer) else { continue };
        let before = place.clone();
        *place = Value::String(format!("{}{HOSTILE}", before.as_str().unwrap_or_default()));
        if reads(&object) {
            poisoned += 1;
        } else if let Some(place) = object.pointer_mut(&pointer) {
            *place = before;
        }
    }
    assert!(poisoned > 1, "{object}");
    object
}

fn find(value: &Value, at: &mut String, texts: &mut Vec<String>) {
    let length = at.len();
    let mut below = |key: &str, value: &Value| {
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        find(value, at, texts);
        at.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| below(&index.to_string(), value));
        }
        Value::String(_) => texts.push(at.clone()),
        _ => {}
    }
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "False", "reason": "Because", "message": "a message", "lastTransitionTime": TIME })
}

fn machine() -> Value {
    json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
        "metadata": { "name": "pg", "namespace": "default", "uid": "u", "creationTimestamp": TIME, "resourceVersion": "1",
            "labels": { "a": "b" }, "annotations": { "c": "d" } },
        "spec": { "schedulerName": "s", "runnerImage": "r", "guest": { "cpus": { "min": 1, "max": 2, "use": 1 },
            "memorySlotSize": "1Gi", "memorySlots": { "min": 1, "max": 2, "use": 1 }, "rootDisk": { "image": "vm-pg:dev" },
            "command": ["postgres"], "args": ["-c"], "env": [{ "name": "A", "value": "B" }],
            "ports": [{ "name": "pg", "port": 5432, "protocol": "TCP" }] },
            "disks": [{ "name": "data", "mountPath": "/data", "emptyDisk": { "size": "1Gi" } }] },
        "status": { "phase": "Running", "podName": "pg-abcde", "podIP": "10.0.0.1", "node": "n1", "cpus": 1, "memorySize": "1Gi",
            "sshSecretName": "keys", "restartCount": 1, "conditions": [condition("Available"), condition("Scaled")],
            "lastExit": { "reason": "Crashed", "message": "m", "podName": "pg-old", "time": TIME, "console": ["last words"] } } })
}

fn migration() -> Value {
    json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
        "metadata": { "name": "pg-1", "namespace": "default", "uid": "u", "creationTimestamp": TIME, "resourceVersion": "1" },
        "spec": { "vmName": "pg" },
        "status": { "phase": "Running", "reason": "Copying", "sourceNode": "n1", "targetNode": "n3", "sourcePodName": "pg-a",
            "targetPodName": "pg-b", "mode": "multifd", "policy": "databases", "dropped": ["postcopy: no"], "startTime": TIME,
            "conditions": [condition("Running")],
            "info": { "status": "active", "passes": 3, "ram": { "total": 1 << 30, "transferred": 1 << 29 } } } })
}

fn autoscaler() -> Value {
    json!({ "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": { "name": "web", "namespace": "default", "uid": "u", "creationTimestamp": TIME, "resourceVersion": "1" },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1,
            "maxReplicas": 5, "scalingStrategy": "APA",
            "metricsSources": [{ "metricSourceType": "external", "protocolType": "http", "endpoint": "queue.default",
                "path": "/metrics", "port": "8080", "targetMetric": "queue_length", "targetValue": "10" }] },
        "status": { "actualScale": 3, "desiredScale": 5, "recommendation": 5,
            "currentMetrics": [{ "type": "external", "name": "lag", "target": { "averageValue": "10" }, "error": "TimedOut: no" }],
            "conditions": [condition("ValidSpec"), condition("ScalingActive"), condition("AbleToScale")],
            "explanation": [{ "step": "Metric", "message": "why", "replicas": 5 }],
            "lastFailure": { "time": TIME, "count": 2, "reason": "FailedGetScale", "message": "m" },
            "scalingHistory": [{ "timestamp": TIME, "previousScale": 3, "newScale": 5, "reason": "AboveTarget", "success": true }] } })
}

fn event() -> Value {
    json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "default", "creationTimestamp": TIME },
        "involvedObject": { "kind": "VirtualMachine", "name": "pg", "namespace": "default" }, "reason": "Started",
        "message": "it started\nand went on", "type": "Warning", "lastTimestamp": TIME, "count": 3, "reportingComponent": "c",
        "reportingInstance": "i" })
}

fn node() -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "creationTimestamp": TIME },
        "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
        "status": { "capacity": { "cpu": "2", "memory": "8Gi" }, "allocatable": { "cpu": "2", "memory": "8Gi" },
            "conditions": [{ "type": "Ready", "status": "False", "reason": "Down", "message": "gone", "lastTransitionTime": TIME }] } })
}

fn pod() -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pg-abcde", "namespace": "default", "creationTimestamp": TIME,
        "labels": { "vm.neon.tech/name": "pg" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "neonvm-runner", "image": "i" }] },
        "status": { "phase": "Pending", "podIP": "10.0.0.1", "message": "why", "reason": "Unschedulable",
            "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" }] } })
}

fn lease() -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l", "namespace": "neonvm-system" },
        "spec": { "holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" } })
}

fn deployment() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "neonvm-system" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } },
        "status": { "replicas": 1, "conditions": [{ "type": "Available", "status": "False", "reason": "r", "message": "m" }] } })
}
