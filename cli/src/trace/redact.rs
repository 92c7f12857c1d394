//! JSON of the API for people who look for a fault, and who may send it to others: keys are shown, and values of the fields listed here.
//! Every other value (data, variables, arguments, annotations, and what is not known yet) is replaced by its length. Pure.

use serde_json::Value;

/// Objects and lists of the API whose fields have the meaning that their names have here.
const STRUCTURE: [&str; 41] = [
    "",
    "addresses",
    "causes",
    "conditions",
    "containerStatuses",
    "containers",
    "cpus",
    "details",
    "disks",
    "extraNetwork",
    "guest",
    "initContainerStatuses",
    "involvedObject",
    "items",
    "kernel",
    "lastExit",
    "lastState",
    "managedFields",
    "memorySlots",
    "metadata",
    "object",
    "ownerReferences",
    "podSelector",
    "ports",
    "regarding",
    "resourceAttributes",
    "resources",
    "roleRef",
    "rules",
    "running",
    "scaleTargetRef",
    "series",
    "source",
    "spec",
    "state",
    "status",
    "subjects",
    "target",
    "terminated",
    "tolerations",
    "waiting",
];

/// Maps with keys of their author whose values are no secrets: they select, or are quantities.
const OPEN: [&str; 9] = [
    "allocatable",
    "capacity",
    "hard",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "requests",
    "used",
];

/// Fields whose text is shown.
const SHOWN: [&str; 78] = [
    "accelerator",
    "acquireTime",
    "action",
    "apiGroup",
    "apiGroups",
    "apiVersion",
    "component",
    "containerID",
    "continue",
    "cpu",
    "cpuScalingMode",
    "creationTimestamp",
    "deletionTimestamp",
    "effect",
    "eventTime",
    "extraNetIP",
    "field",
    "finalizers",
    "finishedAt",
    "firstTimestamp",
    "generateName",
    "group",
    "holderIdentity",
    "host",
    "hostIP",
    "image",
    "imageID",
    "imagePullPolicy",
    "ip",
    "kernelImage",
    "key",
    "kind",
    "lastScaleTime",
    "lastTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "manager",
    "max",
    "memory",
    "memorySlotSize",
    "message",
    "min",
    "mode",
    "name",
    "namespace",
    "node",
    "nodeName",
    "operation",
    "operator",
    "phase",
    "podIP",
    "podName",
    "policy",
    "powerState",
    "protocol",
    "qosClass",
    "reason",
    "renewTime",
    "reportingController",
    "reportingInstance",
    "resource",
    "resourceVersion",
    "resources",
    "restartPolicy",
    "runnerImage",
    "schedulerName",
    "serviceAccountName",
    "startTime",
    "startedAt",
    "status",
    "subresource",
    "time",
    "type",
    "uid",
    "use",
    "verb",
    "verbs",
    "version",
];

/// Hides what is not listed. `target`: path and query of the request.
pub(super) fn redact(target: &str, value: &mut Value) {
    let path = target.split('?').next().unwrap_or_default();
    // A server quotes what it refuses.
    let quotes = path.split('/').any(|word| word == "secrets");
    let place = Place { is_known: true, quotes };
    match value {
        Value::Array(operations) => operations.iter_mut().for_each(|operation| patch(operation, place)),
        other => walk(other, "", place),
    }
}

/// Where in an object a value is.
#[derive(Clone, Copy)]
struct Place {
    /// All objects around it are among [`STRUCTURE`].
    is_known: bool,
    /// Messages may have parts of a secret.
    quotes: bool,
}

fn walk(value: &mut Value, key: &str, place: Place) {
    match value {
        Value::Object(fields) if place.is_known && OPEN.contains(&key) => {
            fields.values_mut().filter(|value| value.is_object() || value.is_array()).for_each(hide);
        }
        Value::Object(fields) => {
            let place = Place { is_known: place.is_known && STRUCTURE.contains(&key), ..place };
            fields.iter_mut().for_each(|(key, value)| walk(value, key, place));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, key, place)),
        Value::Null => {}
        Value::String(_) if !is_shown(key, place) => hide(value),
        Value::Number(_) | Value::Bool(_) if !place.is_known => hide(value),
        _ => {}
    }
}

fn is_shown(key: &str, place: Place) -> bool {
    place.is_known && SHOWN.contains(&key) && !(place.quotes && key == "message")
}

/// An operation of a JSON patch: its value is what the path leads to. Nothing else of the API is a list.
fn patch(operation: &mut Value, place: Place) {
    let Value::Object(fields) = operation else { return hide(operation) };
    let path = fields.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut around: Vec<&str> =
        path.split('/').skip(1).filter(|step| step.parse::<u32>().is_err() && *step != "-").collect();
    let last = around.pop().unwrap_or_default();
    let is_known = around.iter().all(|step| STRUCTURE.contains(step));
    for (key, value) in fields {
        match key.as_str() {
            "op" | "path" | "from" => {}
            "value" => walk(value, last, Place { is_known, ..place }),
            _ => hide(value),
        }
    }
}

fn hide(value: &mut Value) {
    let length = value.as_str().map_or_else(|| value.to_string().len(), str::len);
    *value = Value::String(format!("REDACTED ({length} bytes)"));
}
