//! What keeps an object from being read: missing fields and values of the wrong type, each with its path.

use serde_json::Value;

use crate::FieldError;
use crate::defaults::schemas;
use crate::field_error::Faults;

/// Deeper schemas than this do not occur; the limit keeps the recursion finite.
const MAX_DEPTH: usize = 64;

/// All missing fields of an object of `kind`, all values of another type than the schema's, and all numbers out of its range. None
/// for kinds of other groups. A field that is null is absent.
pub(crate) fn faults(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut faults = Faults::default();
    if let Some(schema) = schemas().get(kind) {
        look(object, schema, "", 0, &mut faults);
    }
    faults.finish()
}

fn look(value: &Value, schema: &Value, path: &str, depth: usize, faults: &mut Faults) {
    if depth > MAX_DEPTH {
        return;
    }
    let type_ = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if !fits(value, type_) {
        let path = if path.is_empty() { "object" } else { path };
        return faults.push(path, format!("must be {}, not {}", with_article(type_), shown(value)));
    }
    match value {
        Value::Object(fields) => {
            let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                let missing = fields.get(name).is_none_or(Value::is_null);
                faults.require(!missing, at(name), "is required");
            }
            let properties = schema.get("properties");
            let others = schema.get("additionalProperties");
            for (name, field) in fields.iter().filter(|(_, field)| !field.is_null()) {
                if let Some(below) = properties.and_then(|known| known.get(name)).or(others) {
                    look(field, below, &at(name), depth + 1, faults);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                look(item, below, &format!("{path}[{index}]"), depth + 1, faults);
            }
        }
        Value::Number(number) => {
            let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
            let number = number.as_f64().unwrap_or_default();
            let (least, most) = (limit("minimum"), limit("maximum"));
            let within = least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
            faults.require(within, path, range(value, least, most));
        }
        Value::String(text) => {
            let Some(known) = schema.get("enum").and_then(Value::as_array) else { return };
            let known: Vec<&str> = known.iter().filter_map(Value::as_str).collect();
            faults.require(
                known.contains(&text.as_str()),
                path,
                format!("{text:?} must be one of {}", known.join(", ")),
            );
        }
        _ => {}
    }
}

fn range(value: &Value, least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{value} must be between {least} and {most}"),
        (Some(least), None) => format!("{value} must not be below {least}"),
        (None, Some(most)) => format!("{value} must not be above {most}"),
        (None, None) => String::new(),
    }
}

/// Without a type, the schema leaves it to others: a quantity is checked where it is normalised.
fn fits(value: &Value, type_: &str) -> bool {
    match type_ {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn with_article(type_: &str) -> &'static str {
    match type_ {
        "object" => "an object",
        "array" => "a list",
        "string" => "a text; put it in quotes",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        // The author has the text; a long one would hide the message.
        Value::String(text) if text.len() > 40 => "a text".to_owned(),
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
