//! Pruning of custom resources: fields that the schema does not name are dropped and listed.

use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};

/// Drops unknown fields from a custom resource and returns their paths, sorted as the real server lists them
/// (`spec.list[0].odd`, `top`). Idempotent; `apiVersion`, `kind` and `metadata` of the root and of embedded
/// resources are always known.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.node(value, schema, 0);
    walk.unknown.sort_unstable();
    walk.unknown
}

/// Writes whole numbers as such: `2.0` is `2`.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(whole) = whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    fn node(&mut self, value: &mut Value, schema: &Schema, depth: usize) {
        if depth >= MAX_DEPTH {
            // Nothing below this was seen by anyone: it does not stay.
            *value = Value::Null;
            return;
        }
        match value {
            Value::Object(fields) => self.object(fields, schema, depth),
            Value::Array(items) => self.items(items, schema, depth),
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, schema: &Schema, depth: usize) {
        fields.retain(|name, value| {
            let length = self.push_key(name);
            let known = match schema.child(name) {
                // Metadata of an embedded object is brought into its type, which drops what it does not have.
                Some(_) if schema.embedded_resource && name == "metadata" => true,
                Some(child) => {
                    self.node(value, child, depth + 1);
                    true
                }
                None => schema.preserve_unknown,
            };
            if !known {
                self.unknown.push(self.path.clone());
            }
            self.path.truncate(length);
            known
        });
    }

    fn items(&mut self, items: &mut [Value], schema: &Schema, depth: usize) {
        let unknown = Schema::typed(super::JsonType::Any);
        let item_schema = match &schema.items {
            Some(items) => items,
            None if schema.preserve_unknown => return,
            None => &unknown,
        };
        for (index, item) in items.iter_mut().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            self.node(item, item_schema, depth + 1);
            self.path.truncate(length);
        }
    }

    fn push_key(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }
}
