//! Strategic merge patch: a merge patch that takes from the schema which lists merge item by item, plus directives
//! (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`).

mod list;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use self::list::{merge_list, ordered_by};
use super::{MAX_DEPTH, server_error, within_depth};
use crate::schema::{PatchStrategy, Schema};
use crate::status::ApiError;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

type Object = Map<String, Value>;
type Step<T> = Result<T, ApiError>;

static ANY: Schema = Schema::any();
static ATOMIC: PatchStrategy = PatchStrategy { merge: false, retain_keys: false, merge_key: None };

/// Merges `patch` into `document` by the merge rules of `schema`, the schema of the whole kind.
///
/// # Errors
/// 400 if the patch is no object or a directive has the wrong form, 500 (as the real server) for an unknown directive
/// or a list item without its merge key.
pub fn apply_strategic(document: &Value, patch: &Value, schema: &Schema) -> Result<Value, ApiError> {
    let Value::Object(changes) = patch else { return Err(ApiError::bad_request("invalid JSON document")) };
    if !within_depth(patch, MAX_DEPTH) || !within_depth(document, MAX_DEPTH) {
        return Err(ApiError::bad_request("the patch is nested too deeply"));
    }
    let base = document.as_object().cloned().unwrap_or_default();
    merge_map(base, changes, schema).map(Value::Object)
}

fn merge_map(mut base: Object, patch: &Object, schema: &Schema) -> Step<Object> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => return Ok(without_directives(patch)),
            Some("delete") => return Ok(Object::new()),
            Some("merge") => {}
            _ => return Err(unknown_directive(directive)),
        }
    }
    retain_keys(&mut base, patch)?;
    for (key, change) in patch {
        if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(ORDER_PREFIX) {
            continue;
        }
        if let Some(field) = key.strip_prefix(DELETE_PREFIX) {
            delete_primitives(&mut base, field, change)?;
        } else if !(patch.contains_key(&format!("{DELETE_PREFIX}{key}")) && change.is_null()) {
            merge_field(&mut base, key, change, patch.get(&format!("{ORDER_PREFIX}{key}")), schema)?;
        }
    }
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix(ORDER_PREFIX) {
            set_order(&mut base, field, order, strategy_of(schema, field))?;
        }
    }
    Ok(base)
}

fn strategy_of<'a>(schema: &'a Schema, field: &str) -> &'a PatchStrategy {
    schema.child(field).map_or(&ATOMIC, |child| &child.patch)
}

fn merge_field(
    base: &mut Object,
    key: &str,
    change: &Value,
    order: Option<&Value>,
    schema: &Schema,
) -> Step<()> {
    let child: &Schema = schema.child(key).map_or(&ANY, |child| child);
    let merged = match (base.remove(key), change) {
        (_, Value::Null) => return Ok(()),
        (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merge_map(old, new, child)?),
        (Some(Value::Array(old)), Value::Array(new)) if child.patch.merge => {
            let item: &Schema = child.items.as_deref().unwrap_or(&ANY);
            // With an explicit order the implicit one would be computed in vain.
            Value::Array(merge_list(old, new, child.patch.merge_key.as_deref(), item, order.is_none())?)
        }
        (None, Value::Object(new)) => Value::Object(merge_map(Object::new(), new, child)?),
        (_, Value::Array(new)) if child.patch.merge => {
            let item: &Schema = child.items.as_deref().unwrap_or(&ANY);
            Value::Array(merge_list(
                Vec::new(),
                new,
                child.patch.merge_key.as_deref(),
                item,
                order.is_none(),
            )?)
        }
        (_, other) => clean(other),
    };
    base.insert(key.to_owned(), merged);
    Ok(())
}

/// `$retainKeys`: keys of the live object that the list does not name go; the patch itself may name no others.
fn retain_keys(base: &mut Object, patch: &Object) -> Step<()> {
    let Some(listed) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let bad = || ApiError::bad_request("invalid patch format of retainKeys");
    let Value::Array(listed) = listed else { return Err(bad()) };
    let listed: BTreeSet<&str> =
        listed.iter().map(|key| key.as_str().ok_or_else(bad)).collect::<Step<_>>()?;
    if patch
        .iter()
        .any(|(key, value)| !key.starts_with('$') && !value.is_null() && !listed.contains(key.as_str()))
    {
        return Err(bad());
    }
    base.retain(|key, _| listed.contains(key.as_str()));
    Ok(())
}

fn delete_primitives(base: &mut Object, field: &str, gone: &Value) -> Step<()> {
    let Value::Array(gone) = gone else {
        return Err(ApiError::bad_request("invalid patch format of primitive list"));
    };
    if let Some(Value::Array(list)) = base.get_mut(field) {
        let gone: BTreeSet<String> = gone.iter().map(Value::to_string).collect();
        list.retain(|item| !gone.contains(&item.to_string()));
    }
    Ok(())
}

fn set_order(base: &mut Object, field: &str, order: &Value, strategy: &PatchStrategy) -> Step<()> {
    let Value::Array(order) = order else {
        return Err(ApiError::bad_request("invalid patch format of setElementOrder list"));
    };
    if let (Some(Value::Array(list)), true) = (base.get_mut(field), strategy.merge) {
        let items = std::mem::take(list);
        *list = ordered_by(items, order, strategy.merge_key.as_deref());
    }
    Ok(())
}

/// What remains of a patch value that replaces: no directives and no nulls in objects.
fn clean(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_directives(map)),
        Value::Array(list) => Value::Array(list.iter().map(clean).collect()),
        other => other.clone(),
    }
}

fn without_directives(map: &Object) -> Object {
    let kept = |key: &str| {
        key != DIRECTIVE
            && key != RETAIN_KEYS
            && !key.starts_with(DELETE_PREFIX)
            && !key.starts_with(ORDER_PREFIX)
    };
    let items = map.iter().filter(|(key, item)| kept(key) && !item.is_null());
    items.map(|(key, item)| (key.clone(), clean(item))).collect()
}

fn unknown_directive(directive: &Value) -> ApiError {
    let name = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    server_error(format!("unknown patch type: {name} in map"))
}

#[cfg(test)]
pub(crate) mod tests;
