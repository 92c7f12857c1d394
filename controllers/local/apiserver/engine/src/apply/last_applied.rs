//! Migration from client-side `kubectl apply` to server-side apply: the annotation with the last configuration holds
//! the fields that kubectl set before it had its own entry.

use serde_json::{Map, Value};

use super::collect::collect;
use super::compare::compare;
use super::conflict::Conflict;
use super::fields::FieldSet;
use crate::schema::Schema;

/// The only manager that is treated this way.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// The conflicts that the annotation of `live` does not explain.
pub(super) fn unexplained(
    mut conflicts: Vec<Conflict>,
    live: &Value,
    schema: &Schema,
    api_version: &str,
) -> Vec<Conflict> {
    let own = set_by_client(live, schema, api_version).unwrap_or_default();
    for conflict in &mut conflicts {
        conflict.set.subtract(&own);
    }
    conflicts.retain(|conflict| !conflict.set.is_empty());
    conflicts
}

/// Fields of the last configuration that still have the value it gave them.
fn set_by_client(live: &Value, schema: &Schema, api_version: &str) -> Option<FieldSet> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let mut set = collect(schema, &last, 0);
    let since = compare(schema, Some(&last), live);
    set.subtract(&since.changed);
    set.subtract(&since.removed);
    Some(set)
}

/// Keeps the annotation, where there is one, in step with what was applied.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if !annotations(object).is_some_and(|map| map.contains_key(ANNOTATION)) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(map)) = applied.pointer_mut("/metadata/annotations") {
        map.remove(ANNOTATION);
    }
    let text = format!("{applied}\n");
    if let Some(Value::Object(map)) = object.pointer_mut("/metadata/annotations") {
        map.insert(ANNOTATION.to_owned(), Value::String(text));
    }
}
