//! The fields that an applied configuration names.

use serde_json::Value;

use super::fields::{FieldSet, field};
use super::typed::{ANY, View, child_schema, elements, item_schema, view};
use crate::patch::MAX_DEPTH;
use crate::schema::Schema;

/// The set of all leaves of `value`, of the items of its lists and of the entries of its maps.
pub(super) fn collect(schema: &Schema, value: &Value, depth: usize) -> FieldSet {
    let mut set = FieldSet::default();
    if depth > MAX_DEPTH {
        return FieldSet::leaf();
    }
    match view(schema, Some(value)) {
        // A null map or list names nothing by itself; the field that holds it is added by its parent.
        View::Nothing | View::Leaf => set.owned = true,
        View::Map(map) => {
            for (key, item) in map {
                let child = child_schema(schema, key, depth).unwrap_or(&ANY);
                let mut below = collect(child, item, depth + 1);
                let declared = schema.properties.contains_key(key) || (depth == 0 && key == "metadata");
                below.owned |=
                    !declared || item.is_null() || item.as_object().is_some_and(serde_json::Map::is_empty);
                set.attach(|| field(key), below);
            }
        }
        View::List(list) => {
            for (element, item) in elements(schema, list).into_iter().zip(list) {
                let mut below = collect(item_schema(schema), item, depth + 1);
                below.owned = true;
                set.attach(|| element, below);
            }
        }
    }
    set
}
