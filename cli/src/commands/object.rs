//! Reading objects of the API as JSON.

use serde_json::Value;

use crate::connect::Connection;
use crate::error::{Code, Result};

/// A text in an object; empty if it is not there.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    conditions.iter().find(|found| text(found, "/type") == kind)
}

/// Whether a condition is `True`.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|found| text(found, "/status") == "True")
}

/// The items of a list; none where the kind does not exist.
pub(super) async fn items_if_any(connection: &Connection, path: &str) -> Result<Vec<Value>> {
    match items(connection, path).await {
        Err(error) if error.code == Code::NotFound => Ok(Vec::new()),
        found => found,
    }
}

pub(super) async fn items(connection: &Connection, path: &str) -> Result<Vec<Value>> {
    let mut list = connection.json(path).await?;
    Ok(list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default())
}
