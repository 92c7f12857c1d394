//! The values as a schema, made of the types.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::Values;

/// The schema, JSON Schema draft 7, without references: Helm checks values with it.
pub(crate) fn schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Values>().to_value()
}

/// The schema that holds for a value that may be absent, too.
fn present(schema: &Value) -> &Value {
    let options = schema.get("anyOf").and_then(Value::as_array);
    let is_null = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("null");
    options.and_then(|all| all.iter().find(|one| !is_null(one))).unwrap_or(schema)
}

pub(crate) fn fields(schema: &Value) -> Option<&Map<String, Value>> {
    present(schema).get("properties").and_then(Value::as_object)
}

/// The schema of what stands under a key; of lists, of their items.
pub(crate) fn below<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let schema = present(schema);
    match schema.get("properties").and_then(|fields| fields.get(key)) {
        Some(found) => Some(found),
        None => schema.get("additionalProperties").filter(|more| more.is_object()),
    }
}

pub(crate) fn items(schema: &Value) -> Option<&Value> {
    present(schema).get("items")
}

/// Whether a text is wanted, so that `1.10` stays one.
pub(crate) fn is_text(schema: &Value) -> bool {
    let schema = present(schema);
    let named = |kind: &Value| {
        kind == "string" || kind.as_array().is_some_and(|all| all.iter().any(|one| one == "string"))
    };
    let is_word =
        |one: &Value| one.get("const").is_some_and(Value::is_string) || one.get("type").is_some_and(named);
    schema.get("type").is_some_and(named)
        || schema.get("oneOf").and_then(Value::as_array).is_some_and(|all| all.iter().all(is_word))
}

pub(crate) fn about(schema: &Value) -> &str {
    let own = schema.get("description").and_then(Value::as_str);
    own.or_else(|| present(schema).get("description").and_then(Value::as_str)).unwrap_or_default()
}
