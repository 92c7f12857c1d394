//! Structural defaulting: absent properties take the schema's default where their parent exists.

use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};

/// Applies defaults, then drops `null` from properties that are not nullable and have no default. Idempotent.
/// For custom resources: after pruning on a write, and on every read.
pub fn apply_defaults(value: &mut Value, schema: &Schema) {
    fill(value, schema, 0);
    drop_nulls(value, schema, 0);
}

fn refused_null(value: &Value, schema: &Schema) -> bool {
    value.is_null() && !schema.nullable
}

fn fill(value: &mut Value, schema: &Schema, depth: usize) {
    if depth >= MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => fill_object(fields, schema, depth),
        Value::Array(items) => {
            let Some(item_schema) = &schema.items else { return };
            for item in items {
                fill_one(item, item_schema, depth);
            }
        }
        _ => {}
    }
}

fn fill_object(fields: &mut Map<String, Value>, schema: &Schema, depth: usize) {
    for (name, property) in &schema.properties {
        let Some(default) = &property.default else { continue };
        if fields.get(name).is_none_or(|value| refused_null(value, property)) {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in fields {
        if let Some(child) = schema.child(name) {
            fill_one(value, child, depth);
        }
    }
}

fn fill_one(value: &mut Value, schema: &Schema, depth: usize) {
    if refused_null(value, schema)
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    fill(value, schema, depth + 1);
}

fn drop_nulls(value: &mut Value, schema: &Schema, depth: usize) {
    if depth >= MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !schema.child(name).is_some_and(|child| refused_null(value, child)));
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    drop_nulls(value, child, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = &schema.items else { return };
            for item in items {
                drop_nulls(item, item_schema, depth + 1);
            }
        }
        _ => {}
    }
}
