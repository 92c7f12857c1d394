//! What is wrong with changes of objects of built-in kinds.

use serde_json::Value;

use super::unchanged::{unchanged, unchanged_text};
use super::{
    certificate, check, config, event, node, pod, rbac, service, storage, validate_create, workload,
};
use crate::field::FieldError;

/// What is wrong with a change from `live` to `object` through `subresource` (empty: the object itself), besides what is
/// wrong with metadata of any kind.
pub fn validate_update(
    group: &str,
    kind: &str,
    subresource: &str,
    object: &Value,
    live: &Value,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    if subresource == "status" || kind == "Pod" {
        check(group, kind, object, subresource == "status", found);
    }
    match (group, kind, subresource) {
        (certificate::GROUP, ..) => certificate::validate_update(subresource, object, live, found),
        ("", "Pod", "status") => pod::validate_status(object, live, found),
        ("", "Node", "status") => node::validate_status(object, found),
        ("", "Namespace", "status") => validate_phase(object, found),
        (_, _, "status") => {}
        ("", "Pod", _) => pod::validate_update(subresource, object, live, found),
        ("", "Event", _) => event::validate_update(object, live, false, found),
        ("events.k8s.io", "Event", _) => event::validate_update(object, live, true, found),
        _ => {
            found.extend(validate_create(group, kind, object));
            validate_fixed(group, kind, object, live, found);
        }
    }
    errors
}

fn validate_phase(object: &Value, errors: &mut Vec<FieldError>) {
    let phase = crate::object::text_at(object, "status.phase");
    let (wanted, when) = if crate::object::is_deleting(object) {
        ("Terminating", "is not empty")
    } else {
        ("Active", "is empty")
    };
    if phase != wanted {
        let detail = format!("may only be '{wanted}' if `deletionTimestamp` {when}");
        errors.push(FieldError::invalid("status.Phase", &phase, &detail));
    }
}

fn validate_fixed(group: &str, kind: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    match (group, kind) {
        ("", "ConfigMap") => config::validate_immutable(object, live, &["data", "binaryData"], errors),
        ("", "Secret") => {
            unchanged("type", object, live, errors);
            config::validate_immutable(object, live, &["data"], errors);
        }
        ("", "Service") => service::validate_update(object, live, errors),
        ("", "Node") => node::validate_update(object, live, errors),
        ("", "PersistentVolumeClaim") => storage::validate_claim_update(object, live, errors),
        ("", "PersistentVolume") => storage::validate_volume_update(object, live, errors),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            unchanged("spec.selector", object, live, errors);
        }
        ("apps", "StatefulSet") => workload::validate_stateful_set_update(object, live, errors),
        ("storage.k8s.io", "StorageClass") => storage::validate_class_update(object, live, errors),
        ("discovery.k8s.io", "EndpointSlice") => unchanged_text("addressType", object, live, errors),
        ("scheduling.k8s.io", "PriorityClass") => {
            if object.get("value") != live.get("value") {
                errors.push(FieldError::forbidden("value", "may not be changed in an update."));
            }
            unchanged("preemptionPolicy", object, live, errors);
        }
        (crate::access::GROUP, _) => rbac::validate_update(object, live, errors),
        _ => {}
    }
}
