//! Events of both groups, and Leases.

use serde_json::{Value, json};

use super::{NOT_NEGATIVE, POSITIVE, name, number, required};
use crate::field::FieldError;
use crate::object::{at, namespace, text_at};

/// The namespace of an event is that of its object; cluster objects have theirs in `default`.
fn check_namespace(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{field}.namespace");
    let (about, own) = (text_at(object, &path), namespace(object));
    let fits = if about.is_empty() { matches!(own, "default" | "kube-system") } else { about == own };
    // Events about objects without a namespace may also be in the reporter's namespace.
    if !fits && !about.is_empty() {
        errors.push(FieldError::invalid(path.clone(), &json!(about), "does not match event.namespace"));
    }
}

pub(super) fn validate_core(object: &Value, errors: &mut Vec<FieldError>) {
    check_namespace(object, "involvedObject", errors);
    if at(object, "eventTime").is_some_and(|time| !time.is_null()) {
        check_report(object, "reportingComponent", errors);
    }
}

pub(super) fn validate_new(object: &Value, errors: &mut Vec<FieldError>) {
    if at(object, "eventTime").is_none_or(Value::is_null) {
        errors.push(FieldError::required("eventTime", ""));
    }
    check_report(object, "reportingController", errors);
    if text_at(object, "note").len() > 1024 {
        errors.push(FieldError::invalid("note", &json!(""), "can have at most 1024 bytes"));
    }
    check_namespace(object, "regarding", errors);
}

/// The fields of reporter and reason that events.k8s.io events require.
fn check_report(object: &Value, controller: &str, errors: &mut Vec<FieldError>) {
    required(object, "", controller, errors);
    let reporter = text_at(object, controller);
    for fault in name::qualified(reporter) {
        errors.push(FieldError::invalid(controller, &json!(reporter), &fault));
    }
    for field in ["reportingInstance", "action", "reason"] {
        required(object, "", field, errors);
        if text_at(object, field).len() > 128 {
            errors.push(FieldError::invalid(field, &json!(""), "can have at most 128 bytes"));
        }
    }
    let kind = text_at(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
}

pub(super) fn validate_lease(object: &Value, errors: &mut Vec<FieldError>) {
    for (path, least, detail) in
        [("spec.leaseDurationSeconds", 1, POSITIVE), ("spec.leaseTransitions", 0, NOT_NEGATIVE)]
    {
        if let Some(value) = number(object, path).filter(|value| *value < least) {
            errors.push(FieldError::invalid(path, &json!(value), detail));
        }
    }
}
