//! From a JSON schema to a structural one.
//!
//! The API server requires a type on every node (but for int-or-string), no `$ref`, no unknown formats, and value
//! checks only in the places that it supports. `nullable` is dropped: without it the API server prunes a null and
//! applies the default, which is what clients that write null mean.

use serde_json::{Map, Value};

/// Deeper schemas than this do not occur; the limit keeps the recursion finite.
const MAX_DEPTH: usize = 64;
/// Keywords without meaning for the API server.
const DROPPED: [&str; 6] = ["$schema", "title", "nullable", "examples", "writeOnly", "readOnly"];

/// Makes a schema node and all below it structural.
pub(crate) fn make_structural(schema: &mut Value) {
    node(schema, 0);
}

fn node(schema: &mut Value, depth: usize) {
    let Value::Object(fields) = schema else { return };
    if depth > MAX_DEPTH {
        return;
    }
    for keyword in DROPPED {
        fields.remove(keyword);
    }
    lift_option(fields);
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(format) = fields.get("format").and_then(Value::as_str).map(known_format) {
        fields.insert("format".to_owned(), format.into());
    }
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        for keyword in ["type", "anyOf", "oneOf", "format"] {
            fields.remove(keyword);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = fields.get_mut(keyword) {
            node(below, depth + 1);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(|below| node(below, depth + 1));
    }
    // A list of numbers written as floats by the generator (`"minimum": 1.0`) is fine for the API server but ugly.
    for keyword in ["minimum", "maximum"] {
        let limit = fields.get(keyword).and_then(Value::as_f64).filter(|limit| limit.fract() == 0.0);
        if let Some(whole) = limit.and_then(|limit| format!("{limit}").parse::<i64>().ok()) {
            fields.insert(keyword.to_owned(), whole.into());
        }
    }
}

/// `anyOf: [schema, null]`, which is how an optional value is generated, becomes the schema itself.
fn lift_option(fields: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = fields.get("anyOf") else { return };
    let is_null = |branch: &Value| {
        branch.get("type").is_some_and(|kind| kind == "null")
            || branch.get("nullable").is_some_and(|nullable| *nullable == Value::Bool(true))
    };
    let mut real = branches.iter().filter(|branch| !is_null(branch));
    if let (Some(Value::Object(only)), None) = (real.next().cloned(), real.next()) {
        fields.remove("anyOf");
        for (keyword, value) in only {
            fields.entry(keyword).or_insert(value);
        }
    }
}

/// Kubernetes supports signed formats only.
fn known_format(format: &str) -> String {
    match format {
        "uint8" | "uint16" | "int8" | "int16" => "int32",
        "uint32" | "uint64" | "uint" | "int" => "int64",
        known => known,
    }
    .to_owned()
}
