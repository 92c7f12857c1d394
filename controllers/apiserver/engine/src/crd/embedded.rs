//! Validation of objects inside of custom objects (`x-kubernetes-embedded-resource`).

use serde_json::{Map, Value};

use super::names;
use crate::builtin::meta;
use crate::field::FieldError;
use crate::schema::embedded::below;
use crate::schema::{MAX_DEPTH, Schema};

/// What is wrong with the type and the metadata of the objects in the value at `path`.
pub(crate) fn validate(schema: &Schema, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, path, 0, &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &str, depth: usize, errors: &mut Vec<FieldError>) {
    if depth >= MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                validate_object(fields, path, errors);
            }
            for (key, value) in fields.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(child) = schema.child(key) {
                    walk(child, value, &below(path, schema, key), depth + 1, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                walk(schema, item, &format!("{path}[{index}]"), depth + 1, errors);
            }
        }
        _ => {}
    }
}

fn validate_object(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if !fields.contains_key(key) {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    for (key, fault) in [("apiVersion", version_fault as fn(&str) -> Option<String>), ("kind", kind_fault)] {
        let Some(value) = fields.get(key) else { continue };
        let fault = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) => fault(text),
        };
        if let Some(fault) = fault {
            errors.push(FieldError::invalid(format!("{path}.{key}"), value, &fault));
        }
    }
    if let Some(metadata) = fields.get("metadata").and_then(Value::as_object) {
        meta::validate_embedded(metadata, &format!("{path}.metadata"), errors);
    }
}

fn version_fault(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind_fault(text: &str) -> Option<String> {
    let faults = names::label_faults(&text.to_lowercase());
    let why = || format!("may have mixed case, but should otherwise match: {}", faults.join(","));
    (!faults.is_empty()).then(why)
}

#[cfg(test)]
mod tests;
