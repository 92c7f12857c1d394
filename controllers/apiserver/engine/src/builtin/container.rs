//! Containers of a pod or pod template.

use serde_json::{Value, json};

use super::{items, name, number, one_of, resources};
use crate::field::FieldError;
use crate::object::{at, text_at};

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// What containers may refer to.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a [&'a str],
    /// Names of `resourceClaims`.
    pub(super) claims: &'a [&'a str],
    /// The pod's `restartPolicy`.
    pub(super) restarts: &'a str,
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
            if list == "initContainers" && text_at(container, "restartPolicy") != "Always" {
                validate_init(container, &path, errors);
            }
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
    let own = at(container, "resources").unwrap_or(&Value::Null);
    resources::validate(own, &format!("{path}.resources"), around.claims, errors);
    resources::validate_policy(container, path, around.restarts, errors);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            super::not_negative(container, &below, &format!("{probe}.{field}"), errors);
        }
    }
}

/// An init container that ends before the others start is not restarted for a resize.
fn validate_init(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let restart = text_at(policy, "restartPolicy");
        if restart == "RestartContainer" {
            let field = format!("{path}.resizePolicy[{index}].restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(FieldError::invalid(field, &json!(restart), detail));
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
    let mounts = format!("{path}.volumeMounts");
    let mut places = Vec::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{mounts}[{index}]");
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
        let below = text_at(mount, "subPath");
        if below.split('/').any(|part| part == "..") {
            let field = format!("{mounts}.subPath");
            errors.push(FieldError::invalid(field, &json!(below), "must not contain '..'"));
        }
    }
}
