//! Drivers of storage, and what nodes know of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::unchanged::{unchanged, unchanged_as};
use super::{internal, items, name, number, one_of};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// Longest name of a driver.
const LONGEST_NAME: usize = 63;
/// Longest name that a driver has for a node.
const LONGEST_NODE: usize = 256;
const MODES: [&str; 2] = ["Persistent", "Ephemeral"];

fn check_name(text: &str, field: &str, errors: &mut Vec<FieldError>) {
    if text.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if text.len() > LONGEST_NAME {
        errors.push(FieldError::too_long(field, LONGEST_NAME as u64));
    }
    for fault in name::subdomain(&text.to_lowercase()) {
        errors.push(FieldError::invalid(field, &json!(text), &fault));
    }
}

pub(super) fn validate_driver(object: &Value, errors: &mut Vec<FieldError>) {
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(object, "", "spec.fsGroupPolicy", &policies, errors);
    let requests = items(object, "spec.tokenRequests");
    validate_requests(requests, errors);
    for mode in items(object, "spec.volumeLifecycleModes") {
        if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &MODES));
        }
    }
    let path = "spec.nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = number(object, path).filter(|seconds| *seconds < 10) {
        errors.push(FieldError::invalid(
            path,
            &json!(seconds),
            "must be greater than or equal to 10 seconds",
        ));
    }
    let path = "spec.serviceAccountTokenInSecrets";
    if let Some(flag) = at(object, path).filter(|_| requests.is_empty()) {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid(path, flag, detail));
    }
}

fn validate_requests(requests: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = format!("spec.tokenRequests[{index}]");
        let audience = text_at(request, "audience");
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(format!("{path}.audience"), &json!(audience)));
            continue;
        }
        let seconds = number(request, "expirationSeconds").unwrap_or(600);
        let detail = match seconds {
            ..600 => "may not specify a duration less than 10 minutes",
            4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), &json!(seconds), detail));
    }
}

pub(super) fn validate_driver_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    unchanged_as("spec.attachRequired", "spec.attachedRequired", object, live, errors);
    unchanged("spec.volumeLifecycleModes", object, live, errors);
}

pub(super) fn validate_node(object: &Value, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, driver) in items(object, "spec.drivers").iter().enumerate() {
        let path = format!("spec.drivers[{index}]");
        let own = text_at(driver, "name");
        check_name(own, &format!("{path}.name"), errors);
        let (node, field) = (text_at(driver, "nodeID"), format!("{path}.nodeID"));
        if node.is_empty() {
            errors.push(FieldError::required(field.clone(), ""));
        }
        if node.len() > LONGEST_NODE {
            let detail = format!("must be {LONGEST_NODE} characters or less");
            errors.push(FieldError::invalid(field, &json!(node), &detail));
        }
        super::not_negative(driver, &format!("{path}."), "allocatable.count", errors);
        if !names.insert(own) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(own)));
        }
        validate_keys(items(driver, "topologyKeys"), &path, errors);
    }
}

fn validate_keys(keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(path, &json!(key)));
        }
        name::check(key, path, name::qualified, errors);
    }
}

/// A driver that stays on a node stays as it is, but for the number of volumes.
pub(super) fn validate_node_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let held = |driver: &Value| {
        let mut driver = driver.clone();
        crate::object::drop_key(&mut driver, "allocatable");
        internal::held("CSINodeDriver", Some(&driver))
    };
    for old in items(live, "spec.drivers") {
        for new in items(object, "spec.drivers") {
            if text_at(new, "name") == text_at(old, "name") && held(new) != held(old) {
                let shown = held(new).shown();
                errors.push(FieldError::invalid_shown("spec.drivers", &shown, super::IMMUTABLE));
            }
        }
    }
}
