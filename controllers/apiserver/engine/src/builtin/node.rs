//! Nodes.

use serde_json::{Value, json};

use super::{items, name, required, resources};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    validate_taints(object, errors);
    validate_status(object, errors);
    validate_ranges(object, errors);
}

fn validate_taints(object: &Value, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in items(object, "spec.taints").iter().enumerate() {
        // The real server names them under metadata, where they once were.
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (text_at(taint, "key"), text_at(taint, "effect"));
        name::check(key, &format!("{path}.key"), name::qualified, errors);
        for fault in name::label_value(text_at(taint, "value")) {
            errors.push(FieldError::invalid(
                format!("{path}.value"),
                &json!(text_at(taint, "value")),
                &fault,
            ));
        }
        required(taint, &format!("{path}."), "effect", errors);
        if !effect.is_empty() {
            super::placement::check_effect(taint, &path, errors);
        }
        if seen.contains(&(key, effect)) {
            let fields = [("Key", "key"), ("Value", "value"), ("Effect", "effect")];
            let shown: Vec<String> =
                fields.iter().map(|(name, own)| format!("{name:?}:{}", json!(text_at(taint, own)))).collect();
            let added = taint.get("timeAdded").unwrap_or(&Value::Null);
            let value = format!("{{{},\"TimeAdded\":{added}}}", shown.join(","));
            errors.push(FieldError {
                reason: FieldReason::Duplicate,
                field: path,
                message: format!("Duplicate value: {value}: taints must be unique by key and effect pair"),
            });
        }
        seen.push((key, effect));
    }
}

fn validate_ranges(object: &Value, errors: &mut Vec<FieldError>) {
    let ranges = items(object, "spec.podCIDRs");
    for (index, range) in ranges.iter().enumerate() {
        let field = format!("spec.podCIDRs[{index}]");
        super::address::check_range(range.as_str().unwrap_or_default(), &field, errors);
    }
    let is_v6 = |range: &Value| range.as_str().unwrap_or_default().contains(':');
    if ranges.len() > 2 || (ranges.len() == 2 && ranges.iter().filter(|range| is_v6(range)).count() != 1) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", &json!(ranges), detail));
    }
}

/// Amounts of the resources that a node reports.
pub(super) fn validate_status(object: &Value, errors: &mut Vec<FieldError>) {
    let status = at(object, "status").unwrap_or(&Value::Null);
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in resources::amounts(status, list) {
            for fault in resources::amount_faults(&resource, amount) {
                let field = format!("status.{list}.{resource}");
                errors.push(FieldError::invalid(field, &json!(amount.to_string()), fault));
            }
        }
    }
}

/// A node that replaces `live`: what it was given once stays. Some of it is looked at once more.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    validate_status(object, errors);
    let (new, old) = (items(object, "spec.podCIDRs"), items(live, "spec.podCIDRs"));
    let changed = match (old.len(), new.len()) {
        (0, _) => 0,
        (before, after) if before != after => 1,
        _ => new.iter().zip(old).filter(|(new, old)| new != old).count(),
    };
    for _ in 0..changed {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    let before = text_at(live, "spec.providerID");
    if !before.is_empty() && before != text_at(object, "spec.providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", why));
    }
    validate_taints(object, errors);
}

/// How the pods of a class are run.
pub(super) fn validate_runtime_class(object: &Value, errors: &mut Vec<FieldError>) {
    let handler = text_at(object, "handler");
    if handler.is_empty() {
        errors.push(FieldError::required("handler", ""));
    }
    for fault in if handler.is_empty() { Vec::new() } else { name::label(handler) } {
        errors.push(FieldError::invalid("handler", &json!(handler), &fault));
    }
    if let Some(overhead) = object.get("overhead") {
        let limits = json!({ "limits": overhead.get("podFixed").unwrap_or(&json!({})) });
        resources::validate(&limits, "overhead", &[], errors);
    }
    let Some(scheduling) = object.get("scheduling") else { return };
    super::meta::validate_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector", errors);
    super::placement::validate_tolerations(scheduling, "scheduling.", errors);
}
