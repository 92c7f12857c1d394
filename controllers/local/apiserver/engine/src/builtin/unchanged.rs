//! Values that a change must leave as they are.

use std::collections::BTreeSet;

use serde_json::Value;

use super::IMMUTABLE;
use crate::field::FieldError;
use crate::object::at;

/// Paths of a refusal; more are left out.
const MAX_PATHS: usize = 20;

/// Returns the value, or none if it is null or has no content: the server takes those to be the same.
fn content(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    })
}

fn differs(path: &str, object: &Value, live: &Value) -> bool {
    content(at(object, path)) != content(at(live, path))
}

pub(super) fn unchanged(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    if differs(path, object, live) {
        errors.push(FieldError::invalid(path, at(object, path).unwrap_or(&Value::Null), IMMUTABLE));
    }
}

/// The same for a text, which is empty where it is left out.
pub(super) fn unchanged_text(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    if differs(path, object, live) {
        errors.push(FieldError::invalid(
            path,
            at(object, path).and_then(Value::as_str).unwrap_or(""),
            IMMUTABLE,
        ));
    }
}

/// Returns the paths below `path` whose values differ, for a refusal that names them.
pub(super) fn changed_paths(new: &Value, old: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    compare(Some(new), Some(old), path, &mut found);
    found.truncate(MAX_PATHS);
    found
}

fn compare(new: Option<&Value>, old: Option<&Value>, path: &str, found: &mut Vec<String>) {
    match (content(new), content(old)) {
        (Some(Value::Object(new)), Some(Value::Object(old))) => {
            for key in new.keys().chain(old.keys()).collect::<BTreeSet<_>>() {
                compare(new.get(key), old.get(key), &format!("{path}.{key}"), found);
            }
        }
        (Some(Value::Array(new)), Some(Value::Array(old))) => {
            for index in 0..new.len().max(old.len()) {
                compare(new.get(index), old.get(index), &format!("{path}[{index}]"), found);
            }
        }
        (new, old) if new != old => found.push(path.to_owned()),
        _ => {}
    }
}
