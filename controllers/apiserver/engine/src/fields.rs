//! Values of field-selector paths.

use serde_json::Value;

use crate::kinds::Kind;
use crate::object;
use crate::selector::FieldSelector;
use crate::status::ApiError;

/// Refuses selectors on fields that a kind does not index.
///
/// # Errors
/// 400 with the real server's wording, which differs by kind.
pub(crate) fn check(kind: &Kind, selector: &FieldSelector) -> Result<(), ApiError> {
    for (path, ..) in &selector.terms {
        let known = path == "metadata.name"
            || (path == "metadata.namespace" && (kind.namespaced || kind.is_builtin()))
            || kind.fields.iter().any(|field| field == path);
        if !known {
            let message = if kind.is_builtin() && kind.fields.is_empty() {
                format!(
                    "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {path}")
            };
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

/// The value of a path as text; what is missing reads as the zero value of its type.
pub(crate) fn value(kind: &Kind, object: &Value, path: &str) -> String {
    let path = match path {
        "name" => "metadata.name",
        "source" => {
            let source = object::text_at(object, "source.component");
            return if source.is_empty() { object::text_at(object, "reportingComponent") } else { source }
                .to_owned();
        }
        "reportingComponent" if kind.kind == "Event" => "reportingComponent",
        "status.successful" => "status.succeeded",
        other => other,
    };
    match object::at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Array(items)) if path == "status.podIPs" => {
            items.first().map(|ip| object::text_at(ip, "ip").to_owned()).unwrap_or_default()
        }
        _ => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.replicas" | "status.succeeded" => "0".to_owned(),
            _ => String::new(),
        },
    }
}
