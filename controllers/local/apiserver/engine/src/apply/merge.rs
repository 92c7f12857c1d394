//! Merging an applied configuration into the live object, and taking fields out of an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::fields::{FieldSet, field};
use super::typed::{ANY, View, child_schema, elements, item_element, item_schema, view};
use crate::patch::MAX_DEPTH;
use crate::schema::Schema;

/// `applied` over `live`: maps and keyed lists are united, of everything else the applied value is taken.
pub(super) fn merge(schema: &Schema, live: Option<&Value>, applied: Option<&Value>, depth: usize) -> Value {
    let (Some(left), Some(right)) = (live, applied) else {
        return applied.or(live).cloned().unwrap_or_default();
    };
    if depth > MAX_DEPTH {
        return right.clone();
    }
    match (view(schema, live), view(schema, applied)) {
        (View::Map(old), View::Map(new)) => {
            let mut merged = old.clone();
            for (key, value) in new {
                let child = child_schema(schema, key, depth).unwrap_or(&ANY);
                let value = merge(child, old.get(key), Some(value), depth + 1);
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (View::List(old), View::List(new)) => Value::Array(merge_lists(schema, old, new, depth)),
        // Null leaves a map or list that has content as it is.
        (View::Map(old), View::Nothing) if !old.is_empty() => left.clone(),
        (View::List(old), View::Nothing) if !old.is_empty() => left.clone(),
        _ => right.clone(),
    }
}

/// Shared items take the order of the applied list; the others stay between the neighbours they had.
fn merge_lists(schema: &Schema, live: &[Value], applied: &[Value], depth: usize) -> Vec<Value> {
    let (left, right) = (elements(schema, live), elements(schema, applied));
    let index = |names: &[String], list: &[Value]| -> BTreeMap<String, Value> {
        names.iter().cloned().zip(list.iter().cloned()).rev().collect()
    };
    let (old, new) = (index(&left, live), index(&right, applied));
    let mut shared: VecDeque<&String> = right.iter().filter(|name| old.contains_key(*name)).collect();
    let mut next = shared.pop_front();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let item = item_schema(schema);
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        match (left.get(l), right.get(r)) {
            (Some(name), Some(other)) if name == other => {
                merged.push(merge(item, old.get(name), new.get(name), depth + 1));
                done.insert(other);
                next = shared.pop_front();
                l += 1;
                r += 1;
            }
            // A shared item, but not the next one in order.
            (Some(name), Some(_)) if new.contains_key(name) && next.is_some_and(|next| next != name) => {
                l += 1;
            }
            (Some(name), _) if !new.contains_key(name) => {
                merged.extend(live.get(l).cloned());
                l += 1;
            }
            (Some(name), None) if done.contains(name) => {
                l += 1;
            }
            (_, Some(name)) => {
                merged.push(merge(item, old.get(name), new.get(name), depth + 1));
                done.insert(name);
                if next == Some(name) {
                    next = shared.pop_front();
                }
                r += 1;
            }
            (_, None) => {
                l += 1;
            }
        }
    }
    merged
}

/// `value` without the fields and items of `gone`. What is only emptied stays, as an empty map or list.
pub(super) fn remove(schema: &Schema, value: &Value, gone: &FieldSet, depth: usize) -> Value {
    if gone.children.is_empty() || depth > MAX_DEPTH {
        return value.clone();
    }
    match view(schema, Some(value)) {
        View::Map(map) => {
            let mut kept = Map::new();
            for (key, item) in map {
                let below = gone.children.get(&field(key));
                if below.is_some_and(|below| below.owned) {
                    continue;
                }
                let child = child_schema(schema, key, depth).unwrap_or(&ANY);
                kept.insert(key.clone(), removed_below(child, item, below, depth));
            }
            Value::Object(kept)
        }
        View::List(list) => {
            let mut kept = Vec::with_capacity(list.len());
            for item in list {
                let element = item_element(schema, item).unwrap_or_default();
                let below = gone.children.get(&element);
                if below.is_none_or(|below| !below.owned) {
                    kept.push(removed_below(item_schema(schema), item, below, depth));
                }
            }
            Value::Array(kept)
        }
        View::Leaf | View::Nothing => value.clone(),
    }
}

fn removed_below(schema: &Schema, value: &Value, gone: Option<&FieldSet>, depth: usize) -> Value {
    gone.map_or_else(|| value.clone(), |gone| remove(schema, value, gone, depth + 1))
}
