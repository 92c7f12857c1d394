//! Values that a change must leave as they are.

use serde_json::{Value, json};

use super::{IMMUTABLE, internal, part};
use crate::field::FieldError;
use crate::object::at;

/// A value, none if it is null or has no content: the server takes those to be the same.
fn content(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    })
}

/// Whether the value at a path is another one.
fn differs(path: &str, object: &Value, live: &Value) -> bool {
    content(at(object, path)) != content(at(live, path))
}

/// `field is immutable`, if the value at `path` differs.
pub(super) fn unchanged(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    unchanged_as(path, path, object, live, errors);
}

/// The same where the server shows the field under another path.
pub(super) fn unchanged_as(
    path: &str,
    shown: &str,
    object: &Value,
    live: &Value,
    errors: &mut Vec<FieldError>,
) {
    if differs(path, object, live) {
        errors.push(FieldError::invalid(shown, at(object, path).unwrap_or(&Value::Null), IMMUTABLE));
    }
}

/// The same for a text, which is empty where it is left out.
pub(super) fn unchanged_text(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    if differs(path, object, live) {
        errors.push(FieldError::invalid(path, at(object, path).unwrap_or(&json!("")), IMMUTABLE));
    }
}

/// The same for a selector, whose fields are shown in the order of its type.
pub(super) fn unchanged_selector(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (at(object, path), at(live, path));
    if new != old {
        let shown = new.map_or_else(|| "null".to_owned(), part::shown_selector);
        errors.push(FieldError::invalid_shown(path, &shown, IMMUTABLE));
    }
}

/// The same for a value that is shown as one of an internal type.
pub(super) fn unchanged_type(
    kind: &'static str,
    path: &str,
    object: &Value,
    live: &Value,
    errors: &mut Vec<FieldError>,
) {
    let held = |object: &Value| at(object, path).map(|value| internal::held(kind, Some(value)));
    if held(object) != held(live) {
        let shown = held(object).map_or_else(|| "null".to_owned(), |value| value.shown());
        errors.push(FieldError::invalid_shown(path, &shown, IMMUTABLE));
    }
}
