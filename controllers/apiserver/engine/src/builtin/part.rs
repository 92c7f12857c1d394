//! Checks of values that several objects have: ports, paths.

use serde_json::{Value, json};

use crate::field::FieldError;

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Refuses what is no port number.
pub(super) fn check_port(value: i64, path: String, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&value) {
        errors.push(FieldError::invalid(path, &json!(value), PORT_RANGE));
    }
}

/// Refuses an `appProtocol` of the port at `path` that is no qualified name.
pub(super) fn check_app_protocol(port: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) else { return };
    for fault in super::name::qualified(protocol) {
        errors.push(FieldError::invalid(format!("{path}.appProtocol"), &json!(protocol), &fault));
    }
}

/// Refuses a path that leads upwards.
pub(super) fn check_steps(path: &str, field: &str, errors: &mut Vec<FieldError>) {
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(field, &json!(path), "must not contain '..'"));
    }
}
