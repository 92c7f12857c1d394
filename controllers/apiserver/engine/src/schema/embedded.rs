//! Objects inside of custom objects (`x-kubernetes-embedded-resource`): their metadata is brought into its type, as the
//! decoder of a real server does it.

use serde_json::{Map, Value, json};

use super::{MAX_DEPTH, Schema, decode};
use crate::field::FieldError;

/// Brings the metadata of all embedded objects into its type; the paths of fields that it does not have.
///
/// # Errors
/// What is of another type.
pub fn coerce(object: &mut Value, schema: &Schema) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    walk(object, schema, "", 0, &mut unknown)?;
    unknown.sort_unstable();
    Ok(unknown)
}

/// The path of a field.
pub(crate) fn below(path: &str, schema: &Schema, key: &str) -> String {
    match (path, schema.properties.contains_key(key)) {
        ("", _) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{key}]"),
    }
}

fn walk(
    value: &mut Value,
    schema: &Schema,
    path: &str,
    depth: usize,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if depth >= MAX_DEPTH {
        return Ok(());
    }
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                own_fields(fields, path, unknown)?;
            }
            for (key, value) in fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(child) = schema.child(key) {
                    walk(value, child, &below(path, schema, key), depth + 1, unknown)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, schema, &format!("{path}[{index}]"), depth + 1, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The fields that every object has.
fn own_fields(
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for key in ["apiVersion", "kind"] {
        if let Some(odd) = fields.get(key).filter(|value| !value.is_string()) {
            return Err(FieldError::invalid(format!("{path}.{key}"), odd, "must be a string"));
        }
    }
    let Some(metadata) = fields.get_mut("metadata") else { return Ok(()) };
    if metadata.is_null() {
        *metadata = json!({});
    }
    let given = metadata.clone();
    let place = format!("{path}.metadata");
    match decode::decode_embedded(metadata) {
        Ok(found) => unknown.extend(found.iter().map(|field| format!("{place}.{field}"))),
        Err(why) => return Err(FieldError::invalid(place, &given, &why)),
    }
    if let Some(metadata) = metadata.as_object_mut() {
        leave_out_zeros(metadata);
    }
    Ok(())
}

/// What an encoder leaves out of metadata, and what it always shows of an owner.
fn leave_out_zeros(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| value.as_str() != Some("") && *value != json!(0));
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            owner.as_object_mut().into_iter().for_each(|owner| {
                owner.entry(key).or_insert_with(|| json!(""));
            });
        }
    }
}
