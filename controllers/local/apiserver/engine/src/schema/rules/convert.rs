//! JSON values as CEL values, typed by their schema.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::Value as Cel;
use cel::objects::{Key, Map};
use serde_json::{Number, Value};

use super::super::{JsonType, MAX_DEPTH, Schema, SchemaRef, formats};
use crate::object::is_word;

/// Converts the value of a node. At the root only `name` and `generateName` of `metadata` are shown.
pub(super) fn to_cel(schema: &Schema, value: &Value, is_root: bool) -> Cel {
    node(Some(schema), value, is_root, 0)
}

fn node(schema: Option<&Schema>, value: &Value, is_object: bool, depth: usize) -> Cel {
    if depth >= MAX_DEPTH {
        return Cel::Null;
    }
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number_to_cel(schema, number),
        Value::String(text) => text_to_cel(schema, text),
        Value::Array(items) => {
            let item_schema = schema.and_then(|schema| schema.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| node(item_schema, item, false, depth + 1)).collect()))
        }
        Value::Object(fields) => {
            let entries = fields.iter().filter_map(|(name, value)| {
                let child = schema.and_then(|schema| schema.child(name)).map(SchemaRef::as_schema);
                let declared = schema.is_some_and(|schema| schema.properties.contains_key(name));
                let key = if declared { escape(name)? } else { name.clone() };
                let value = if is_object && name == "metadata" {
                    visible_metadata(value)
                } else {
                    node(child, value, false, depth + 1)
                };
                Some((Key::String(Arc::new(key)), value))
            });
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

fn visible_metadata(value: &Value) -> Cel {
    let shown = ["name", "generateName"].into_iter().filter_map(|key| {
        let text = value.get(key)?.as_str()?;
        Some((Key::String(Arc::new(key.to_owned())), Cel::from(text)))
    });
    Cel::Map(Map { map: Arc::new(shown.collect()) })
}

fn number_to_cel(schema: Option<&Schema>, number: &Number) -> Cel {
    let double = schema.is_some_and(|schema| schema.json_type == JsonType::Number && !schema.int_or_string);
    let integer = schema.is_some_and(|schema| schema.json_type == JsonType::Integer);
    match number.as_i64() {
        Some(whole) if !double => Cel::Int(whole),
        _ => whole_float(number)
            .filter(|_| integer)
            .map_or_else(|| Cel::Float(number.as_f64().unwrap_or_default()), Cel::Int),
    }
}

/// The integer that a number such as `3.0` stands for, where the schema requires an integer.
#[allow(clippy::cast_possible_truncation, reason = "whole and below 9e15 when it is cast")]
fn whole_float(number: &Number) -> Option<i64> {
    let float = number.as_f64()?;
    if float.fract() == 0.0 && float.abs() < 9.0e15 { Some(float as i64) } else { None }
}

fn text_to_cel(schema: Option<&Schema>, text: &str) -> Cel {
    let constraints = schema.and_then(|schema| schema.constraints.as_ref());
    let format = constraints.and_then(|constraints| constraints.format.as_deref()).unwrap_or_default();
    let typed = match format {
        "byte" => STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        "duration" => formats::parse_duration(text).map(super::library::duration),
        "date-time" | "datetime" => super::library::timestamp(text),
        "date" => super::library::timestamp(&format!("{text}T00:00:00Z")),
        _ => None,
    };
    typed.unwrap_or_else(|| Cel::from(text))
}

const RESERVED: &str = "true false null in as break const continue else for function if import let loop \
    package namespace return var void while";

/// The name of a property in expressions: `x.y` is `x__dot__y`, `a-b` is `a__dash__b`, `if` is `__if__`. Names with
/// other characters have none.
pub(crate) fn escape(name: &str) -> Option<String> {
    if is_word(RESERVED, name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    let mut plain = first.is_ascii_alphabetic() || first == '_' || matches!(first, '.' | '-' | '/');
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let mut width = c.len_utf8();
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            '_' if rest.starts_with("__") => {
                out.push_str("__underscores__");
                width = 2;
            }
            c => {
                plain &= c.is_ascii_alphanumeric() || c == '_';
                out.push(c);
            }
        }
        rest = rest.get(width..).unwrap_or_default();
    }
    plain.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_that_are_no_identifiers_are_escaped() {
        for (name, want) in [
            ("plain", Some("plain")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("if", Some("__if__")),
            ("self", Some("self")),
            ("1a", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), want, "{name}");
        }
    }
}
