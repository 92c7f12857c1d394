//! Containers of a pod or pod template.

use serde_json::{Value, json};

use super::{items, name, number, one_of};
use crate::field::FieldError;
use crate::object::{at, text_at};
use crate::schema::quantity::Quantity;

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// What containers may refer to.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a [&'a str],
}

/// The containers and init containers of the pod spec at `prefix` (`spec.`).
pub(super) fn validate_all(
    spec: &Value,
    prefix: &str,
    around: &Surroundings<'_>,
    errors: &mut Vec<FieldError>,
) {
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{prefix}containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = format!("{prefix}{list}[{index}]");
            let name = text_at(container, "name");
            if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
            }
            names.push(name);
            validate(container, &path, around, errors);
        }
    }
}

fn validate(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    let name = text_at(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        for fault in name::label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), &fault));
        }
    }
    let image = text_at(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image != image.trim() {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(format!("{path}.image"), &json!(image), detail));
    }
    let below = format!("{path}.");
    one_of(container, &below, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], errors);
    one_of(container, &below, "terminationMessagePolicy", &["FallbackToLogsOnError", "File"], errors);
    validate_ports(container, path, errors);
    validate_env(container, path, errors);
    validate_mounts(container, path, around, errors);
    validate_resources(
        at(container, "resources").unwrap_or(&Value::Null),
        &format!("{path}.resources"),
        errors,
    );
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            super::not_negative(container, &below, &format!("{probe}.{field}"), errors);
        }
    }
}

fn validate_ports(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        match number(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            value => check_port(value, format!("{path}.containerPort"), errors),
        }
        if let Some(value) = number(port, "hostPort").filter(|value| *value != 0) {
            check_port(value, format!("{path}.hostPort"), errors);
        }
        one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
        let name = text_at(port, "name");
        if !name.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        if name.len() > 15 {
            let detail = "must be no more than 15 characters";
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), detail));
        }
        names.push(name);
    }
}

/// Refuses what is no port number.
pub(super) fn check_port(value: i64, path: String, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&value) {
        errors.push(FieldError::invalid(path, &json!(value), PORT_RANGE));
    }
}

fn validate_env(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        if text_at(variable, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let both = !text_at(variable, "value").is_empty() && variable.get("valueFrom").is_some();
        if both {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{path}.valueFrom"), &json!(""), detail));
        }
    }
}

fn validate_mounts(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    let mut places = Vec::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, place) = (text_at(mount, "name"), text_at(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !around.volumes.contains(&name) {
            let reason = crate::field::FieldReason::NotFound;
            errors.push(FieldError::with_value(reason, format!("{path}.name"), &json!(name), ""));
        }
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if places.contains(&place) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), &json!(place), "must be unique"));
        }
        places.push(place);
    }
}

/// Resources that are counted in whole units and never overcommitted: those with a domain of their own.
fn is_extended(name: &str) -> bool {
    let foreign = name.split_once('/').is_some_and(|(domain, _)| !domain.ends_with("kubernetes.io"));
    foreign || name.starts_with("hugepages-")
}

/// `requests` and `limits`.
pub(super) fn validate_resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let read = |list: &str| -> Vec<(&str, &Value, Option<Quantity>)> {
        let map = resources.get(list).and_then(Value::as_object).into_iter().flatten();
        map.map(|(name, value)| (name.as_str(), value, value.as_str().and_then(Quantity::parse))).collect()
    };
    let limits = read("limits");
    for (list, entries) in [("limits", &limits), ("requests", &read("requests"))] {
        for (name, value, quantity) in entries {
            let field = format!("{path}.{list}[{name}]");
            if quantity.is_some_and(|quantity| quantity.sign() < 0) {
                errors.push(FieldError::invalid(field.clone(), value, super::NOT_NEGATIVE));
            }
            if is_extended(name) && quantity.is_some_and(|quantity| quantity.as_int().is_none()) {
                errors.push(FieldError::invalid(field, value, "must be an integer"));
            }
        }
    }
    for (name, value, request) in read("requests") {
        let limit = limits.iter().find(|(other, ..)| *other == name);
        match limit {
            Some((_, limit_text, limit)) => {
                let (kind, wrong) = if is_extended(name) {
                    ("equal to", request != *limit)
                } else {
                    ("less than or equal to", request > *limit)
                };
                if wrong {
                    let limit_text = limit_text.as_str().unwrap_or_default();
                    let detail = format!("must be {kind} {name} limit of {limit_text}");
                    errors.push(FieldError::invalid(format!("{path}.requests"), value, &detail));
                }
            }
            None if is_extended(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), detail));
            }
            None => {}
        }
    }
}
