//! Changes of a VM's spec that wait for its next start: a merge patch (RFC 7386) in an annotation.
//!
//! What a pod is made of cannot change while the pod exists. A change of it can be left in the annotation; the controller writes it
//! into the spec between two pods.

use serde_json::{Map, Value};

use crate::names::annotation::AT_NEXT_START;
use crate::{FieldError, VirtualMachine};

/// Fields that say what runs when; they take effect at once.
const AT_ONCE: [&str; 2] = ["powerState", "restartRequest"];

/// The patch that waits for the next start of the VM, if there is one.
///
/// # Errors
/// When the annotation is not a JSON object, or has a field that takes effect at once. The path of the error is the annotation's.
pub fn patch(vm: &VirtualMachine) -> Result<Option<Map<String, Value>>, FieldError> {
    let text = vm.metadata.annotations.as_ref().and_then(|annotations| annotations.get(AT_NEXT_START));
    let Some(text) = text else { return Ok(None) };
    let refused = |message: String| FieldError { path: format!("metadata.annotations[{AT_NEXT_START}]"), message };
    let patch: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        refused(format!("is not a JSON object, a merge patch of the spec: {error}; correct or remove it"))
    })?;
    match AT_ONCE.iter().find(|field| patch.contains_key(**field)) {
        Some(field) => Err(refused(format!("has {field}, which takes effect at once; set spec.{field}"))),
        None => Ok(Some(patch)),
    }
}

/// The VM as it will be after its next start, if a change waits for it.
///
/// # Errors
/// As [`patch`], and when the result is not a VM.
pub fn changed(vm: &VirtualMachine) -> Result<Option<VirtualMachine>, FieldError> {
    let Some(patch) = patch(vm)? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| FieldError {
        path: format!("metadata.annotations[{AT_NEXT_START}]"),
        message: format!("does not give a VM: {error}"),
    };
    let mut object = serde_json::to_value(vm).map_err(unreadable)?;
    if let Some(spec) = object.get_mut("spec") {
        merge(spec, &Value::Object(patch));
    }
    serde_json::from_value(object).map(Some).map_err(unreadable)
}

/// The paths below `spec` that the patch changes, in order.
#[must_use]
pub fn paths(patch: &Map<String, Value>) -> Vec<String> {
    fn collect(prefix: &str, fields: &Map<String, Value>, paths: &mut Vec<String>) {
        for (name, value) in fields {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Object(below) if !below.is_empty() => collect(&path, below, paths),
                _ => paths.push(path),
            }
        }
    }
    let mut paths = Vec::new();
    collect("", patch, &mut paths);
    paths
}

/// Merges a patch into a value, as RFC 7386 has it.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(annotation: &str) -> VirtualMachine {
        serde_json::from_value(json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "annotations": {AT_NEXT_START: annotation}}, "spec": {"guest": {
            "cpus": {"min": "250m", "max": "1", "use": "250m"}, "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "i"}}}}))
        .unwrap()
    }

    #[test]
    fn the_patch_is_merged_into_the_spec() {
        let vm = vm(r#"{"guest": {"cpus": {"max": "4"}, "command": ["a"]}}"#);
        let next = changed(&vm).unwrap().unwrap();
        assert_eq!(next.spec.guest.cpus.max.to_string(), "4");
        assert_eq!(next.spec.guest.cpus.min, vm.spec.guest.cpus.min);
        assert_eq!(next.spec.guest.command, ["a"]);
        assert_eq!(paths(&patch(&vm).unwrap().unwrap()), ["guest.command", "guest.cpus.max"]);
    }

    #[test]
    fn what_is_no_patch_is_refused_with_the_annotation_as_path() {
        for (text, part) in [
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            (r#"{"powerState": "Stopped"}"#, "set spec.powerState"),
            (r#"{"guest": 1}"#, "does not give a VM"),
        ] {
            let error = changed(&vm(text)).unwrap_err();
            assert_eq!(error.path, "metadata.annotations[vm.neon.tech/at-next-start]");
            assert!(error.message.contains(part), "{error}");
        }
    }
}
