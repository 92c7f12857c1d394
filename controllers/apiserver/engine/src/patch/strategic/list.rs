//! Merging of lists and the order of what comes out.

use serde_json::Value;

use super::{DIRECTIVE, Step, merge_map, server_error, unknown_directive};
use crate::schema::Schema;

/// Merges `patch` into `base`: objects by `key`, scalars as a set.
pub(super) fn merge_list(
    base: Vec<Value>,
    patch: &[Value],
    key: Option<&str>,
    item: &Schema,
    arrange: bool,
) -> Step<Vec<Value>> {
    let objects = base.iter().chain(patch).filter(|value| value.is_object()).count();
    if objects == 0 {
        let before = base.clone();
        let merged = deduplicated(base.into_iter().chain(patch.iter().cloned()));
        return Ok(if arrange { arranged(merged, patch, &before, None) } else { merged });
    }
    if objects != base.len() + patch.len() {
        return Err(server_error("list element types are not identical"));
    }
    let Some(key) = key else { return Err(server_error("cannot merge lists without merge key")) };
    let Directives { before, patch } = directives(base, patch, key)?;
    let merged = merge_objects(before.clone(), &patch, key, item)?;
    Ok(if arrange { arranged(merged, &patch, &before, Some(key)) } else { merged })
}

struct Directives {
    before: Vec<Value>,
    patch: Vec<Value>,
}

/// Carries out `$patch` items and leaves the ordinary ones.
fn directives(mut base: Vec<Value>, patch: &[Value], key: &str) -> Step<Directives> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut replace = false;
    for entry in patch {
        let Some(directive) = entry.get(DIRECTIVE) else {
            rest.push(entry.clone());
            continue;
        };
        match directive.as_str() {
            Some("replace") => replace = true,
            Some("delete") => {
                let gone = entry.get(key).ok_or_else(|| no_merge_key(entry, key))?;
                base.retain(|item| item.get(key) != Some(gone));
            }
            Some("merge") => return Err(server_error("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive)),
        }
    }
    if replace {
        base.clear();
    }
    Ok(Directives { before: base, patch: rest })
}

fn merge_objects(mut merged: Vec<Value>, patch: &[Value], key: &str, item: &Schema) -> Step<Vec<Value>> {
    for entry in patch {
        let Value::Object(changes) = entry else { continue };
        let wanted = changes.get(key).ok_or_else(|| no_merge_key(entry, key))?;
        match merged.iter_mut().find(|existing| existing.get(key) == Some(wanted)) {
            Some(slot) => {
                if let Value::Object(old) = std::mem::take(slot) {
                    *slot = Value::Object(merge_map(old, changes, item)?);
                }
            }
            None => merged.push(Value::Object(merge_map(serde_json::Map::new(), changes, item)?)),
        }
    }
    Ok(merged)
}

fn no_merge_key(entry: &Value, key: &str) -> crate::status::ApiError {
    server_error(format!("map: {entry} does not contain declared merge key: {key}"))
}

/// The first of each value, in order.
fn deduplicated(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// Whether two items are the same one: by merge key, or by value where there is none.
fn same(left: &Value, right: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        None => left == right,
    }
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    list.iter().position(|other| same(other, item, key))
}

/// The order without `$setElementOrder`: items of the patch in the order of the patch, the others in the order of the
/// live list, interleaved so that an untouched item goes before a patched one exactly if it was before it.
fn arranged(merged: Vec<Value>, patch: &[Value], live: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut patched, kept): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(patch, item, key).is_some());
    patched.sort_by_key(|item| position(patch, item, key));
    interleaved(kept, patched, live, key)
}

/// The order with `$setElementOrder`: listed items in that order, the others as near to their old place as can be.
pub(super) fn ordered_by(items: Vec<Value>, order: &[Value], key: Option<&str>) -> Vec<Value> {
    let live = items.clone();
    let (mut listed, kept): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(order, item, key).is_some());
    listed.sort_by_key(|item| position(order, item, key));
    interleaved(kept, listed, &live, key)
}

fn interleaved(kept: Vec<Value>, patched: Vec<Value>, live: &[Value], key: Option<&str>) -> Vec<Value> {
    let mut result = Vec::with_capacity(kept.len() + patched.len());
    let mut patched = patched.into_iter().peekable();
    for item in kept {
        let own = position(live, &item, key);
        while let Some(next) = patched.peek() {
            let before = matches!((own, position(live, next, key)), (Some(own), Some(other)) if own < other);
            if before {
                break;
            }
            result.extend(patched.next());
        }
        result.push(item);
    }
    result.extend(patched);
    result
}
