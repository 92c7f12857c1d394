//! Whether an applied configuration fits its schema, in the words of the real server's merge library.

use serde_json::Value;

use super::fields::{field, shown};
use super::typed::{ANY, View, child_schema, item_element, item_schema, view};
use crate::patch::MAX_DEPTH;
use crate::schema::builtin::QUANTITY;
use crate::schema::json::kind_of;
use crate::schema::{JsonType, Schema};

pub(super) fn misfits(schema: &Schema, value: &Value) -> Vec<String> {
    let mut walk = Walk { path: String::new(), found: Vec::new() };
    walk.node(schema, value, 0);
    walk.found
}

/// One misfit by itself, several as a list under a heading.
pub(super) fn joined(misfits: &[String]) -> String {
    match misfits {
        [only] => only.clone(),
        many => many.iter().fold("errors:".to_owned(), |text, misfit| format!("{text}\n  {misfit}")),
    }
}

struct Walk {
    path: String,
    found: Vec<String>,
}

impl Walk {
    fn misfit(&mut self, text: &str) {
        let misfit = if self.path.is_empty() { text.to_owned() } else { format!("{}: {text}", self.path) };
        self.found.push(misfit);
    }

    fn below(&mut self, element: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(element);
        visit(self);
        self.path.truncate(length);
    }

    fn node(&mut self, schema: &Schema, value: &Value, depth: usize) {
        if depth > MAX_DEPTH || value.is_null() {
            return;
        }
        if let Some(expected) = mismatch(schema, value) {
            return self.misfit(&expected);
        }
        match value {
            Value::Object(map) if !schema.int_or_string => {
                for (key, item) in map {
                    let element = shown(&field(key));
                    match child_schema(schema, key, depth) {
                        Some(child) => self.below(&element, |walk| walk.node(child, item, depth + 1)),
                        None => self.below(&element, |walk| walk.misfit("field not declared in schema")),
                    }
                }
            }
            Value::Array(list) => self.list(schema, list, depth),
            _ => {}
        }
    }

    fn list(&mut self, schema: &Schema, list: &[Value], depth: usize) {
        let item = if schema.json_type == JsonType::Array { item_schema(schema) } else { &ANY };
        let merges = matches!(view(schema, Some(&Value::Array(Vec::new()))), View::List(_));
        let mut seen = std::collections::BTreeSet::new();
        for (at, value) in list.iter().enumerate() {
            let element = if merges { item_element(schema, value) } else { Ok(format!("i:{at}")) };
            let element = match element {
                Ok(element) => element,
                Err(why) => {
                    self.misfit(&format!("element {at}: {why}"));
                    continue;
                }
            };
            let position = shown(&element);
            if !seen.insert(element) {
                self.misfit(&format!("duplicate entries for key {position}"));
            }
            self.below(&position, |walk| walk.node(item, value, depth + 1));
        }
    }
}

fn mismatch(schema: &Schema, value: &Value) -> Option<String> {
    let untyped = schema.int_or_string || schema.type_name.as_deref() == Some(QUANTITY);
    let fits = match schema.json_type {
        JsonType::Any => true,
        _ if untyped => !value.is_object() && !value.is_array(),
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Integer | JsonType::Number => value.is_number(),
        JsonType::Boolean => value.is_boolean(),
    };
    if fits {
        return None;
    }
    // In the words of the merge library.
    let (expected, found) = match (schema.json_type, value) {
        (JsonType::Integer | JsonType::Number, Value::Array(_)) => {
            ("numeric (int or float)", "list".to_owned())
        }
        (JsonType::Integer | JsonType::Number, Value::Object(_)) => {
            ("numeric (int or float)", "map".to_owned())
        }
        (JsonType::Integer | JsonType::Number, value) => {
            ("numeric (int or float)", kind_of(value).to_owned())
        }
        (of, value) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let expected = match of {
                JsonType::Object => "map",
                JsonType::Array => "list",
                other => other.name(),
            };
            (expected, format!("&value.valueUnstructured{{Value:{text}}}"))
        }
    };
    Some(format!("expected {expected}, got {found}"))
}
