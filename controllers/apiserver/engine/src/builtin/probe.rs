//! Probes and lifecycle hooks of containers.

use serde_json::{Value, json};

use super::{items, name, number, one_of, part, required};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// What a container may be asked, in the order in which several of them are refused.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// The probes of a container at `path`, and its hooks. `grace` is the pod's `terminationGracePeriodSeconds`.
pub(super) fn validate(container: &Value, path: &str, grace: Option<i64>, errors: &mut Vec<FieldError>) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = at(container, &format!("lifecycle.{hook}")) {
            validate_handler(handler, &format!("{path}.lifecycle.{hook}"), grace, errors);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get(kind) {
            validate_probe(probe, &format!("{path}.{kind}"), kind == "readinessProbe", grace, errors);
        }
    }
}

/// What an init container that ends before the others start may not have.
pub(super) fn forbid(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for kind in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(kind).is_some() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(format!("{path}.{kind}"), detail));
        }
    }
}

fn validate_probe(
    probe: &Value,
    path: &str,
    readiness: bool,
    grace: Option<i64>,
    errors: &mut Vec<FieldError>,
) {
    validate_handler(probe, path, grace, errors);
    let below = format!("{path}.");
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        super::not_negative(probe, &below, field, errors);
    }
    let own = number(probe, "terminationGracePeriodSeconds");
    let field = format!("{path}.terminationGracePeriodSeconds");
    if let Some(seconds) = own.filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid(field.clone(), &json!(seconds), super::POSITIVE));
    }
    if let Some(seconds) = own.filter(|_| readiness) {
        errors.push(FieldError::invalid(field, &json!(seconds), "must not be set for readinessProbes"));
    }
    let successes = number(probe, "successThreshold").unwrap_or(0);
    if !readiness && successes != 1 {
        errors.push(FieldError::invalid(format!("{path}.successThreshold"), &json!(successes), "must be 1"));
    }
}

/// Exactly one kind of handler, and what that kind needs.
fn validate_handler(handler: &Value, path: &str, grace: Option<i64>, errors: &mut Vec<FieldError>) {
    let mut first = true;
    for kind in HANDLERS {
        let Some(action) = handler.get(kind) else { continue };
        let path = format!("{path}.{kind}");
        if std::mem::replace(&mut first, false) {
            validate_action(kind, action, &path, grace, errors);
        } else {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
        }
    }
    if first {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn validate_action(kind: &str, action: &Value, path: &str, grace: Option<i64>, errors: &mut Vec<FieldError>) {
    let below = format!("{path}.");
    match kind {
        "exec" if items(action, "command").is_empty() => {
            errors.push(FieldError::required(format!("{path}.command"), ""));
        }
        "httpGet" => {
            required(action, &below, "path", errors);
            validate_port(action, path, errors);
            one_of(action, &below, "scheme", &["HTTP", "HTTPS"], errors);
            for header in items(action, "httpHeaders") {
                validate_header(text_at(header, "name"), path, errors);
            }
        }
        "tcpSocket" => validate_port(action, path, errors),
        "grpc" => {
            part::check_port(number(action, "port").unwrap_or(0), format!("{path}.port"), errors);
        }
        "sleep" => {
            let seconds = number(action, "seconds").unwrap_or(0);
            if let Some(most) = grace.filter(|most| !(0..=*most).contains(&seconds)) {
                let detail =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
                errors.push(FieldError::invalid(path, &json!(seconds), &detail));
            }
        }
        _ => {}
    }
}

/// A port by number or by name.
fn validate_port(action: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.port");
    match action.get("port") {
        Some(Value::String(port)) => {
            name::check(port, &field, name::port, errors);
        }
        port => part::check_port(port.and_then(Value::as_i64).unwrap_or(0), field, errors),
    }
}

fn validate_header(header: &str, path: &str, errors: &mut Vec<FieldError>) {
    if header.is_empty() || !header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                      regex used for validation is '[-A-Za-z0-9]+')";
        errors.push(FieldError::invalid(format!("{path}.httpHeaders"), &json!(header), detail));
    }
}
