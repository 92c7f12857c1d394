//! Lists that are sets or maps hold each item or key once.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::{ListType, MAX_DEPTH, Schema};
use crate::field::FieldError;

/// The items that stand in a set or list map a second time: `spec.map[1]: Duplicate value: {"name":"a"}`.
pub fn check(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, &mut String::new(), 0, &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &mut String, depth: usize, errors: &mut Vec<FieldError>) {
    if depth >= MAX_DEPTH {
        return;
    }
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                push(path, schema, key);
                if let Some(child) = schema.child(key) {
                    walk(child, value, path, depth + 1, errors);
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            duplicates(schema, items, path, errors);
            let Some(item_schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item_schema, item, path, depth + 1, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Properties are appended with a dot, map keys in brackets.
pub(crate) fn push(path: &mut String, schema: &Schema, key: &str) {
    if !schema.properties.contains_key(key) && schema.additional.is_some() {
        path.push_str(&format!("[{key}]"));
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn duplicates(schema: &Schema, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    for (index, item) in items.iter().enumerate() {
        let identity = match &schema.list_type {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(keys) => {
                let Some(fields) = item.as_object() else { continue };
                let found = keys.iter().filter_map(|key| fields.get(key).map(|v| (key.clone(), v.clone())));
                Value::Object(found.collect::<Map<_, _>>())
            }
        };
        // A third one is not named again.
        if !seen.insert(identity.to_string()) && found.insert(identity.to_string()) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &identity));
        }
    }
}
