//! How a value is merged according to the schema: as a whole, by field, or by item.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::schema::{JsonType, ListType, Schema, SchemaRef, builtin};

pub(super) static ANY: Schema = Schema::any();

fn metadata() -> &'static Schema {
    static META: OnceLock<SchemaRef> = OnceLock::new();
    META.get_or_init(builtin::object_meta)
}

/// The schema of a field; `depth` 0 is the whole object. `None`: the field is not declared.
pub(super) fn child_schema<'a>(schema: &'a Schema, name: &str, depth: usize) -> Option<&'a Schema> {
    match name {
        "metadata" if depth == 0 => Some(metadata()),
        "apiVersion" | "kind" if depth == 0 => Some(&ANY),
        _ => match schema.child(name) {
            Some(child) => Some(child),
            None if schema.preserve_unknown || schema.json_type == JsonType::Any => Some(&ANY),
            None => None,
        },
    }
}

/// A value, seen the way it merges.
#[derive(Clone, Copy)]
pub(super) enum View<'v> {
    /// Absent or null.
    Nothing,
    /// A scalar, or a list or object that is replaced as a whole.
    Leaf,
    Map(&'v Map<String, Value>),
    List(&'v [Value]),
}

pub(super) fn view<'v>(schema: &Schema, value: Option<&'v Value>) -> View<'v> {
    match value {
        None | Some(Value::Null) => View::Nothing,
        Some(Value::Object(map)) => {
            let by_field = matches!(schema.json_type, JsonType::Object | JsonType::Any);
            if by_field && !schema.map_atomic && !schema.int_or_string { View::Map(map) } else { View::Leaf }
        }
        Some(Value::Array(list)) => {
            if schema.json_type == JsonType::Array && schema.list_type != ListType::Atomic {
                View::List(list)
            } else {
                View::Leaf
            }
        }
        Some(_) => View::Leaf,
    }
}

pub(super) fn item_schema(schema: &Schema) -> &Schema {
    schema.items.as_deref().unwrap_or(&ANY)
}

/// The path element of a list item, or why it has none.
pub(super) fn item_element(schema: &Schema, item: &Value) -> Result<String, String> {
    let ListType::Map(keys) = &schema.list_type else {
        let refused = match item {
            Value::Object(_) => "associative list without keys has an element that's a map type",
            Value::Array(_) => "not supported: associative list with lists as elements",
            Value::Null => "associative list without keys has an element that's an explicit null",
            scalar => return Ok(format!("v:{scalar}")),
        };
        return Err(refused.to_owned());
    };
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut sorted: Vec<&str> = keys.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let given = sorted.into_iter().filter_map(|key| {
        let value = map.get(key).cloned().or_else(|| key_default(schema, key))?;
        Some(format!("{}:{value}", Value::from(key)))
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(format!("k:{{{}}}", given.join(",")))
}

fn key_default(schema: &Schema, key: &str) -> Option<Value> {
    let item = item_schema(schema);
    let declared = item.properties.get(key).and_then(|property| property.default.clone());
    // The published documents declare this default, the types made from them do not.
    let ports =
        || key == "protocol" && item.type_name.as_deref().is_some_and(|name| name.starts_with("io.k8s."));
    declared.or_else(|| ports().then(|| Value::from("TCP")))
}

/// The element of each item; items without one are identified by position.
pub(super) fn elements(schema: &Schema, list: &[Value]) -> Vec<String> {
    let element = |(at, item)| item_element(schema, item).unwrap_or_else(|_| format!("i:{at}"));
    list.iter().enumerate().map(element).collect()
}

/// The items of a list by element; more than one where there are duplicates.
pub(super) fn by_element<'v>(schema: &Schema, list: &'v [Value]) -> BTreeMap<String, Vec<&'v Value>> {
    let mut index: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for (element, item) in elements(schema, list).into_iter().zip(list) {
        index.entry(element).or_default().push(item);
    }
    index
}
