//! Merging of lists and the order of what comes out.

use std::collections::{BTreeMap, BTreeSet};

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
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for entry in patch {
        let Some(directive) = entry.get(DIRECTIVE) else {
            rest.push(entry.clone());
            continue;
        };
        match directive.as_str() {
            Some("replace") => replace = true,
            Some("delete") => {
                gone.insert(identity(entry, Some(key)).ok_or_else(|| no_merge_key(entry, key))?);
            }
            Some("merge") => return Err(server_error("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive)),
        }
    }
    if replace {
        base.clear();
    } else if !gone.is_empty() {
        base.retain(|item| identity(item, Some(key)).is_none_or(|own| !gone.contains(&own)));
    }
    Ok(Directives { before: base, patch: rest })
}

fn merge_objects(mut merged: Vec<Value>, patch: &[Value], key: &str, item: &Schema) -> Step<Vec<Value>> {
    let mut known = Positions::of(&merged, Some(key));
    for entry in patch {
        let Value::Object(changes) = entry else { continue };
        let wanted = identity(entry, Some(key)).ok_or_else(|| no_merge_key(entry, key))?;
        match known.0.get(&wanted).and_then(|at| merged.get_mut(*at)) {
            Some(slot) => {
                if let Value::Object(old) = std::mem::take(slot) {
                    *slot = Value::Object(merge_map(old, changes, item)?);
                }
            }
            None => {
                known.0.insert(wanted, merged.len());
                merged.push(Value::Object(merge_map(serde_json::Map::new(), changes, item)?));
            }
        }
    }
    Ok(merged)
}

fn no_merge_key(entry: &Value, key: &str) -> crate::status::ApiError {
    server_error(format!("map: {entry} does not contain declared merge key: {key}"))
}

/// The first of each value, in order.
fn deduplicated(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(item.to_string())).collect()
}

/// What makes an item the same as another: its merge key, or its value where there is none.
fn identity(item: &Value, key: Option<&str>) -> Option<String> {
    match key {
        Some(key) => item.get(key).map(Value::to_string),
        None => Some(item.to_string()),
    }
}

/// Where each item of a list is first: lists come from clients, and to search them for each item would take hours.
struct Positions(BTreeMap<String, usize>);

impl Positions {
    fn of(list: &[Value], key: Option<&str>) -> Self {
        let mut known = BTreeMap::new();
        for (at, item) in list.iter().enumerate() {
            if let Some(identity) = identity(item, key) {
                known.entry(identity).or_insert(at);
            }
        }
        Self(known)
    }

    fn find(&self, item: &Value, key: Option<&str>) -> Option<usize> {
        self.0.get(&identity(item, key)?).copied()
    }
}

/// The order without `$setElementOrder`: items of the patch in the order of the patch, the others in the order of the
/// live list, interleaved so that an untouched item goes before a patched one exactly if it was before it.
fn arranged(merged: Vec<Value>, patch: &[Value], live: &[Value], key: Option<&str>) -> Vec<Value> {
    let (patched, kept) = sorted_out(merged, patch, key);
    interleaved(kept, patched, live, key)
}

/// The order with `$setElementOrder`: listed items in that order, the others as near to their old place as can be.
pub(super) fn ordered_by(items: Vec<Value>, order: &[Value], key: Option<&str>) -> Vec<Value> {
    let live = items.clone();
    let (listed, kept) = sorted_out(items, order, key);
    interleaved(kept, listed, &live, key)
}

/// The items that a list has, in its order, and the others in theirs.
fn sorted_out(items: Vec<Value>, order: &[Value], key: Option<&str>) -> (Vec<Value>, Vec<Value>) {
    let places = Positions::of(order, key);
    let (mut listed, mut kept) = (Vec::new(), Vec::new());
    for item in items {
        match places.find(&item, key) {
            Some(at) => listed.push((at, item)),
            None => kept.push(item),
        }
    }
    listed.sort_by_key(|(at, _)| *at);
    (listed.into_iter().map(|(_, item)| item).collect(), kept)
}

fn interleaved(kept: Vec<Value>, patched: Vec<Value>, live: &[Value], key: Option<&str>) -> Vec<Value> {
    let places = Positions::of(live, key);
    let mut result = Vec::with_capacity(kept.len() + patched.len());
    let mut patched = patched.into_iter().map(|item| (places.find(&item, key), item)).peekable();
    for item in kept {
        let own = places.find(&item, key);
        while let Some((next, _)) = patched.peek() {
            let before = matches!((own, *next), (Some(own), Some(other)) if own < other);
            if before {
                break;
            }
            result.extend(patched.next().map(|(_, item)| item));
        }
        result.push(item);
    }
    result.extend(patched.map(|(_, item)| item));
    result
}
