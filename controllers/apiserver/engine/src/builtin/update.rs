//! What is wrong with changes of objects of built-in kinds.

use serde_json::{Value, json};

use super::unchanged::{unchanged, unchanged_selector, unchanged_text};
use super::{
    certificate, config, csi, event, ingress, job, meta, node, pod, quota, rbac, service, storage,
    validate_create, volume, workload,
};
use crate::field::FieldError;

/// One of the steps in which a real server checks a change. Several kinds have metadata looked at more than once.
#[derive(Clone, Copy)]
enum Step {
    /// Metadata as a change.
    Changed,
    /// Metadata as those of a new object.
    Whole,
    /// Everything else as in a new object.
    New,
    /// What may not change.
    Fixed,
}

/// The steps of a kind in their order.
fn steps(group: &str, kind: &str) -> &'static [Step] {
    use Step::{Changed, Fixed, New, Whole};
    match (group, kind) {
        ("policy", "PodDisruptionBudget") => &[New, Fixed],
        ("", "LimitRange")
        | ("discovery.k8s.io" | "storage.k8s.io", "EndpointSlice" | "CSINode" | "VolumeAttachment")
        | ("admissionregistration.k8s.io", _) => &[Whole, New, Fixed],
        ("", "PersistentVolume") => &[Whole, New, Whole, New, Fixed],
        ("", "Namespace" | "Node") | ("batch", "Job") => &[Whole, New, Changed, Fixed],
        ("storage.k8s.io", "StorageClass") | ("node.k8s.io", "RuntimeClass") | (crate::access::GROUP, _) => {
            &[Whole, New, Changed, Fixed]
        }
        ("", "ConfigMap" | "Secret") => &[Changed, Fixed, Whole, New],
        ("networking.k8s.io", "IngressClass") => &[Changed, Fixed, Whole, New],
        ("", "PersistentVolumeClaim" | "ServiceAccount" | "Endpoints")
        | ("networking.k8s.io", "Ingress")
        | ("apiregistration.k8s.io", _)
        | ("apps", "ControllerRevision") => &[Changed, Whole, New, Fixed],
        ("", "Service") | ("apps", "DaemonSet") => &[Changed, Fixed, New],
        ("scheduling.k8s.io", "PriorityClass") => &[Changed, Fixed],
        ("events.k8s.io", "Event") => &[Fixed, Changed],
        ("", "Event") => &[Fixed],
        _ => &[Changed, New, Fixed],
    }
}

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
    if group == certificate::GROUP {
        meta::validate_whole(group, kind, object, found);
        certificate::validate_update(subresource, object, live, found);
        meta::validate_change((group, kind), object, live, found);
        return errors;
    }
    if (group, kind, subresource) == ("", "Service", "") {
        // Addresses are given before anything else is looked at.
        service::kept::validate_addresses(object, found);
        if !found.is_empty() {
            return errors;
        }
    }
    if subresource == "status" {
        if group != "policy" && (group, kind) != ("batch", "CronJob") {
            meta::validate_change((group, kind), object, live, found);
        }
        validate_status(group, kind, object, live, found);
        return errors;
    }
    if (group, kind) == ("", "Pod") {
        meta::validate_change((group, kind), object, live, found);
        meta::validate_whole(group, kind, object, found);
        errors.extend(pod::validate_update(subresource, object, live));
        return errors;
    }
    for step in steps(group, kind) {
        match step {
            Step::Changed => meta::validate_change((group, kind), object, live, found),
            Step::Whole => meta::validate_whole(group, kind, object, found),
            Step::New => validate_new(group, kind, object, live, found),
            Step::Fixed => validate_fixed(group, kind, object, live, found),
        }
    }
    errors
}

fn validate_status(group: &str, kind: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    match (group, kind) {
        ("", "Pod") => pod::validate_status(object, live, errors),
        ("", "Node") => node::validate_status(object, errors),
        ("", "Namespace") => validate_phase(object, errors),
        ("apps", _) | ("", "ReplicationController") => workload::status::validate(kind, object, errors),
        _ => {}
    }
}

/// A namespace is active until it is deleted.
fn validate_phase(object: &Value, errors: &mut Vec<FieldError>) {
    let phase = crate::object::text_at(object, "status.phase");
    let (wanted, when) = if crate::object::is_deleting(object) {
        ("Terminating", "is not empty")
    } else {
        ("Active", "is empty")
    };
    if phase != wanted {
        let detail = format!("may only be '{wanted}' if `deletionTimestamp` {when}");
        errors.push(FieldError::invalid("status.Phase", &json!(phase), &detail));
    }
}

/// The object as a new one, but for what is let pass in one that was there before.
fn validate_new(group: &str, kind: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let list = match (group, kind) {
        ("discovery.k8s.io", "EndpointSlice") => "endpoints",
        ("", "Endpoints") => "subsets",
        _ => "",
    };
    match (group, kind) {
        ("batch", "CronJob") => job::cron::validate(object, Some(live), errors),
        ("apps", "StatefulSet") => workload::validate(kind, object, true, errors),
        ("apps", "ControllerRevision") => workload::older::validate_revision(object, errors),
        ("networking.k8s.io", "Ingress") => ingress::validate(object, errors),
        _ => {
            let mut found = validate_create(group, kind, object);
            if !list.is_empty() && object.get(list) == live.get(list) {
                found.retain(|error| !error.field.starts_with(list));
            }
            errors.extend(found);
        }
    }
}

fn validate_fixed(group: &str, kind: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    match (group, kind) {
        ("", "Event") => event::validate_update(object, live, false, errors),
        ("events.k8s.io", "Event") => event::validate_update(object, live, true, errors),
        ("", "ConfigMap") => config::validate_immutable(object, live, &["data", "binaryData"], errors),
        ("", "Secret") => {
            unchanged("type", object, live, errors);
            config::validate_immutable(object, live, &["data"], errors);
        }
        ("", "Service") => service::validate_update(object, live, errors),
        ("", "Node") => node::validate_update(object, live, errors),
        ("", "PersistentVolumeClaim") => volume::validate_claim_update(object, live, errors),
        ("", "PersistentVolume") => storage::validate_volume_update(object, live, errors),
        ("", "ResourceQuota") => quota::validate_update(object, live, errors),
        ("batch", "Job") => job::validate_job_update(object, live, errors),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            unchanged_selector("spec.selector", object, live, errors);
        }
        ("apps", "StatefulSet") => workload::validate_stateful_set_update(object, live, errors),
        ("apps", "ControllerRevision") => unchanged("data", object, live, errors),
        ("storage.k8s.io", "StorageClass") => storage::validate_class_update(object, live, errors),
        ("storage.k8s.io", "CSIDriver") => csi::validate_driver_update(object, live, errors),
        ("storage.k8s.io", "CSINode") => csi::validate_node_update(object, live, errors),
        ("networking.k8s.io", "IngressClass") => unchanged_text("spec.controller", object, live, errors),
        ("node.k8s.io", "RuntimeClass") => unchanged_text("handler", object, live, errors),
        ("discovery.k8s.io", "EndpointSlice") => unchanged_text("addressType", object, live, errors),
        ("scheduling.k8s.io", "PriorityClass") => {
            let value = |object: &Value| super::number(object, "value").unwrap_or(0);
            if value(object) != value(live) {
                errors.push(FieldError::forbidden("value", "may not be changed in an update."));
            }
            unchanged("preemptionPolicy", object, live, errors);
        }
        (crate::access::GROUP, _) => rbac::validate_update(object, live, errors),
        _ => {}
    }
}
