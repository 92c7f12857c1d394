//! Nodes.

use serde_json::Value;

use super::{items, name, required, resources};
use crate::field::FieldError;
use crate::object::{at, text_at};

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    validate_taints(object, errors);
    validate_status(object, errors);
}

fn validate_taints(object: &Value, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in items(object, "spec.taints").iter().enumerate() {
        // The real server names them under metadata, where they once were.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (text_at(taint, "key"), text_at(taint, "effect"));
        name::check(key, &format!("{path}.key"), name::qualified, errors);
        for fault in name::label_value(text_at(taint, "value")) {
            errors.push(FieldError::invalid(format!("{path}.value"), &text_at(taint, "value"), &fault));
        }
        required(taint, &format!("{path}."), "effect", errors);
        if !effect.is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            super::one_of(taint, &format!("{path}."), "effect", &effects, errors);
        }
        if seen.contains(&(key, effect)) {
            errors.push(FieldError::duplicate(path, taint));
        }
        seen.push((key, effect));
    }
}

pub(super) fn validate_status(object: &Value, errors: &mut Vec<FieldError>) {
    let status = at(object, "status").unwrap_or(&Value::Null);
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in resources::amounts(status, list) {
            for fault in resources::amount_faults(&resource, amount) {
                let field = format!("status.{list}.{resource}");
                errors.push(FieldError::invalid(field, &amount.to_string(), fault));
            }
        }
    }
}

/// A node that replaces `live`: what it was given once stays.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (items(object, "spec.podCIDRs"), items(live, "spec.podCIDRs"));
    if !old.is_empty() && new != old {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    let before = text_at(live, "spec.providerID");
    if !before.is_empty() && before != text_at(object, "spec.providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", why));
    }
}
