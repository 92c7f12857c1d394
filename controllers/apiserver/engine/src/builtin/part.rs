//! Values that several objects have: ports, paths, selectors.

use serde_json::{Value, json};

use super::items;
use crate::field::FieldError;
use crate::object::text_at;

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
    super::name::check(protocol, &format!("{path}.appProtocol"), super::name::qualified, errors);
}

/// Refuses a path that leads upwards.
pub(super) fn check_steps(path: &str, field: &str, errors: &mut Vec<FieldError>) {
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(field, &json!(path), "must not contain '..'"));
    }
}

/// Refuses what is no path below a domain: `<domain>/<path>`.
pub(super) fn check_domain_path(text: &str, field: &str, errors: &mut Vec<FieldError>) {
    const PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    let parts = text.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty());
    match parts {
        None if text.is_empty() => errors.push(FieldError::required(field, "")),
        None => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(field, &json!(text), detail));
        }
        Some((domain, path)) => {
            super::name::check(domain, field, super::name::subdomain, errors);
            if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
                errors.push(FieldError::invalid(field, &json!(path), PATH));
            }
        }
    }
}

/// A selector as JSON with its fields in the order of the type.
pub(super) fn shown_selector(selector: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(labels) = selector.get("matchLabels") {
        parts.push(format!("\"matchLabels\":{labels}"));
    }
    let terms = items(selector, "matchExpressions").iter().map(|term| {
        let of = |key: &str| json!(text_at(term, key));
        let values = term.get("values").map_or_else(String::new, |values| format!(",\"values\":{values}"));
        format!("{{\"key\":{},\"operator\":{}{values}}}", of("key"), of("operator"))
    });
    let terms: Vec<String> = terms.collect();
    if !terms.is_empty() {
        parts.push(format!("\"matchExpressions\":[{}]", terms.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}
