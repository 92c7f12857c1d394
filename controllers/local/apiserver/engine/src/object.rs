//! Reading and writing the common metadata of an untyped object.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// `metadata`, or an empty map.
pub(crate) fn meta(object: &Value) -> &Map<String, Value> {
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// `metadata`, made if it is missing. A body that is no object gives a map that is thrown away.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The object under `key`, made if it is missing or of another type.
pub(crate) fn child_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let Value::Object(map) = object else { unreachable_map() };
    let slot = map.entry(key).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    let Value::Object(child) = slot else { unreachable_map() };
    child
}

#[expect(clippy::panic, reason = "both callers have just stored an object in that very place")]
fn unreachable_map() -> ! {
    panic!("a value that was set to an object is an object")
}

pub(crate) fn meta_text<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object).get(key).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// Whether a text is one of the words in a list with spaces between them.
pub(crate) fn is_word(list: &str, text: &str) -> bool {
    list.split(' ').any(|word| word == text)
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    meta(object).get("deletionTimestamp").is_some_and(|at| !at.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(meta(object).get("finalizers"))
}

pub(crate) fn strings(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, key| value.get(key))
}

pub(crate) fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// Sets `key` of `metadata`, or removes it when `value` is null.
pub(crate) fn set_meta(object: &mut Value, key: &str, value: Value) {
    let map = meta_mut(object);
    if value.is_null() {
        map.remove(key);
    } else {
        map.insert(key.to_owned(), value);
    }
}

/// Copies one top-level key from `from`, removing it where `from` has none.
pub(crate) fn copy_key(object: &mut Value, from: &Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        match from.get(key) {
            Some(value) => drop(map.insert(key.to_owned(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

pub(crate) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

pub(crate) fn drop_key(object: &mut Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(key);
    }
}

pub(crate) fn condition_is(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = at(object, "status.conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| text_at(c, "type") == kind && text_at(c, "status") == status)
}

pub(crate) fn condition_message<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = at(object, "status.conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| text_at(condition, "type") == kind);
    found.map_or("", |condition| text_at(condition, "message"))
}

pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    let status = child_mut(object, "status");
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let kind = text_at(&condition, "type").to_owned();
    match list.iter_mut().find(|c| text_at(c, "type") == kind) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
