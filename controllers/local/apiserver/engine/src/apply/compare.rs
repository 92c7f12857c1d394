//! What differs between two states of an object, as sets of fields.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields::{FieldSet, SERVER_FIELDS, field, is_struct};
use super::typed::{ANY, View, by_element, child_schema, item_schema, view};
use crate::object::is_word;
use crate::patch::MAX_DEPTH;
use crate::schema::{JsonType, Schema};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) changed: FieldSet,
    pub(super) removed: FieldSet,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn attach(&mut self, element: &str, below: Self) {
        self.changed.attach(|| element.to_owned(), below.changed);
        self.removed.attach(|| element.to_owned(), below.removed);
    }

    pub(super) fn without(mut self, fields: &FieldSet) -> Self {
        self.changed.subtract_branches(fields);
        self.removed.subtract_branches(fields);
        self
    }
}

/// Compares whole objects. Identity and what the server keeps (`metadata.resourceVersion` …) are left out.
pub(super) fn compare(schema: &Schema, before: Option<&Value>, after: &Value) -> Difference {
    let mut difference = walk(schema, before.or(Some(&EMPTY)), Some(after), 0);
    difference.changed.owned = false;
    difference.removed.owned = false;
    difference
}

static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static NO_ITEMS: Value = Value::Array(Vec::new());

fn walk(schema: &Schema, before: Option<&Value>, after: Option<&Value>, depth: usize) -> Difference {
    if depth > MAX_DEPTH {
        return leaf(before, after);
    }
    let mut difference = match (view(schema, before), view(schema, after)) {
        (View::Map(left), View::Map(right)) if !(left.is_empty() && right.is_empty()) => {
            maps(schema, Some(left), Some(right), depth)
        }
        (View::Map(left), View::Nothing) if !left.is_empty() => maps(schema, Some(left), None, depth),
        (View::Nothing, View::Map(right)) if !right.is_empty() => maps(schema, None, Some(right), depth),
        (View::List(left), View::List(right)) if !(left.is_empty() && right.is_empty()) => {
            lists(schema, left, right, depth)
        }
        (View::List(left), View::Nothing) if !left.is_empty() => lists(schema, left, &[], depth),
        (View::Nothing, View::List(right)) if !right.is_empty() => lists(schema, &[], right, depth),
        (View::Leaf | View::Nothing, View::Leaf | View::Nothing)
        | (View::Map(_), View::Map(_) | View::Nothing)
        | (View::List(_), View::List(_) | View::Nothing)
        | (View::Nothing, View::Map(_) | View::List(_)) => return leaf(before, after),
        _ => return replaced(schema, before, after, depth),
    };
    difference.changed.owned |= before.is_none();
    difference.removed.owned |= after.is_none();
    difference
}

fn leaf(before: Option<&Value>, after: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    match (before, after) {
        (Some(_), None) => difference.removed.owned = true,
        (before, after) => difference.changed.owned = before != after,
    }
    difference
}

/// A list became a map, or the like: everything below goes, everything below comes.
fn replaced(schema: &Schema, before: Option<&Value>, after: Option<&Value>, depth: usize) -> Difference {
    let mut gone = walk(schema, before, None, depth + 1);
    let come = walk(schema, None, after, depth + 1);
    gone.removed.owned = false;
    Difference { changed: FieldSet { owned: true, ..come.changed }, removed: gone.removed }
}

fn maps(
    schema: &Schema,
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
    depth: usize,
) -> Difference {
    let mut difference = Difference::default();
    let known = before.into_iter().flat_map(Map::keys);
    let added = after.into_iter().flat_map(Map::keys);
    for key in known.chain(added.filter(|key| before.is_none_or(|before| !before.contains_key(*key)))) {
        let mut left = before.and_then(|before| before.get(key));
        let mut right = after.and_then(|after| after.get(key));
        let skipped = match depth {
            0 => key == "apiVersion" || key == "kind",
            1 => schema.type_name.as_deref() == Some(OBJECT_META) && is_word(SERVER_FIELDS, key),
            _ => false,
        };
        if skipped {
            continue;
        }
        let child = child_schema(schema, key, depth).unwrap_or(&ANY);
        // What holds it must be there, too.
        if let Some(empty) = always_there(schema, key, child, depth) {
            left = left.or(before.map(|_| empty));
            right = right.or(after.map(|_| empty));
        }
        let below = walk(child, left, right, depth + 1);
        if !below.is_empty() {
            difference.attach(&field(key), below);
        }
    }
    difference
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Optional fields of built-in types that hold a struct by value: the real server never sees them absent, so that
/// their coming and going is no change of ownership.
const BY_VALUE: &str = "metadata spec status template strategy updateStrategy jobTemplate resources \
    loadBalancer daemonEndpoints nodeInfo";

/// What stands where such a field is left out.
fn always_there(schema: &Schema, key: &str, child: &Schema, depth: usize) -> Option<&'static Value> {
    if depth == 0 && key == "metadata" {
        return Some(&EMPTY);
    }
    schema.type_name.as_ref()?;
    let required = schema.required.iter().any(|name| name == key);
    if is_struct(child) && (is_word(BY_VALUE, key) || required) {
        return Some(&EMPTY);
    }
    (required && child.json_type == JsonType::Array).then_some(&NO_ITEMS)
}

fn lists(schema: &Schema, before: &[Value], after: &[Value], depth: usize) -> Difference {
    let mut difference = Difference::default();
    if before == after {
        return difference;
    }
    let (left, right) = (by_element(schema, before), by_element(schema, after));
    let elements: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let none = Vec::new();
    for element in elements {
        let old = left.get(element).unwrap_or(&none).as_slice();
        let new = right.get(element).unwrap_or(&none).as_slice();
        let item = item_schema(schema);
        let below = match (old, new) {
            ([] | [_], [] | [_]) => walk(item, old.first().copied(), new.first().copied(), depth + 1),
            // Duplicates are owned as one thing, without what is in them.
            ([_, _, ..], [_, _, ..]) => Difference {
                changed: FieldSet { owned: old != new, ..FieldSet::default() },
                ..Difference::default()
            },
            ([_, _, ..], _) => {
                let mut below = new
                    .first()
                    .map_or_else(Difference::default, |new| walk(item, None, Some(new), depth + 1));
                below.removed.owned = true;
                below
            }
            (_, _) => {
                let mut below = old
                    .first()
                    .map_or_else(Difference::default, |old| walk(item, Some(old), None, depth + 1));
                below.changed.owned = true;
                below
            }
        };
        difference.attach(element, below);
    }
    difference
}
