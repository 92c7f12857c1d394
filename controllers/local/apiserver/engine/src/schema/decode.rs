//! Decoding of built-in objects into their types: wrong types are refused, unknown fields dropped and
//! listed, nulls dropped, quantities, times and base64 put in canonical form, empty optional lists and maps left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use neonvm_types::Quantity;
use serde_json::{Value, json};

use super::builtin::{MICRO_TIME, QUANTITY};
use super::{JsonType, MAX_DEPTH, Schema};

/// The error text of a real server for anything that is no quantity.
pub(super) const MALFORMED_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Most strict-decoding complaints that are listed.
const MAX_UNKNOWN: usize = 100;

/// Decodes an object of a built-in kind in place. Returns the paths of unknown fields, sorted.
///
/// # Errors
/// What does not fit: of several mistakes, the first by the names of fields.
pub fn decode_builtin(value: &mut Value, schema: &Schema) -> Result<Vec<String>, String> {
    Walk::run(value, schema, "")
}

/// Decodes the `metadata` of an object of any kind in place, with paths from the object's root.
///
/// # Errors
/// As [`decode_builtin`].
pub fn decode_metadata(object: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    Walk::run(metadata, &super::builtin::object_meta(), "metadata")
}

pub fn cannot_be_handled(kind: &str, version: &str, why: &str) -> String {
    format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}")
}

/// `strict decoding error: unknown field "a", duplicate field "b"`, or `None` when there is nothing to complain of.
pub fn strict_error(complaints: &[String]) -> Option<String> {
    if complaints.is_empty() {
        None
    } else {
        Some(format!("strict decoding error: {}", complaints.join(", ")))
    }
}

/// The complaints about a body, each ready for a `Warning` header or [`strict_error`].
pub fn complaints(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let duplicates = duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
    duplicates.chain(unknown.iter().map(|path| format!("unknown field \"{path}\""))).collect()
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    fn run(value: &mut Value, schema: &Schema, path: &str) -> Result<Vec<String>, String> {
        let mut walk = Self { path: path.to_owned(), unknown: Vec::new() };
        walk.node(value, schema, 0)?;
        // As clients write objects, metadata comes first.
        walk.unknown.sort_by_key(|path| !path.starts_with("metadata"));
        Ok(walk.unknown)
    }

    fn node(&mut self, value: &mut Value, schema: &Schema, depth: usize) -> Result<(), String> {
        if depth >= MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        if schema.type_name.as_deref() == Some(QUANTITY) {
            return canonical_quantity(value);
        }
        let fits = match schema.json_type {
            _ if schema.int_or_string => value.is_string() || integer_fits(value, "int32"),
            JsonType::Any => return Ok(()),
            JsonType::Object => value.is_object(),
            JsonType::Array => value.is_array(),
            JsonType::String => value.is_string(),
            JsonType::Integer => integer_fits(value, format_of(schema)),
            JsonType::Number => value.is_number(),
            JsonType::Boolean => value.is_boolean(),
        };
        if !fits {
            return Err(self.mismatch(value, schema));
        }
        match value {
            Value::Object(fields) => {
                let mut outcome = Ok(());
                fields.retain(|key, value| {
                    if outcome.is_err() {
                        return true;
                    }
                    let kept = self.field(key, value, schema, depth);
                    let keep = !matches!(kept, Ok(false));
                    outcome = kept.map(|_| ());
                    keep
                });
                outcome
            }
            Value::Array(items) => {
                let Some(item_schema) = &schema.items else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = zero(item_schema);
                    }
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.node(item, item_schema, depth + 1)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Value::String(text) => canonical_text(text, schema),
            _ => Ok(()),
        }
    }

    /// Decodes one field or map entry; `false` if it does not stay.
    fn field(&mut self, key: &str, value: &mut Value, schema: &Schema, depth: usize) -> Result<bool, String> {
        let length = self.path.len();
        push_key(&mut self.path, key);
        let mut keep = true;
        if let Some(property) = schema.properties.get(key) {
            keep = !value.is_null();
            if keep {
                self.node(value, property, depth + 1)?;
                keep = !left_out(value, property) || schema.required.iter().any(|name| name == key);
            }
        } else if let Some(values) = &schema.additional {
            if value.is_null() {
                *value = zero(values);
            }
            self.node(value, values, depth + 1)?;
            if values.type_name.as_deref() == Some(QUANTITY) {
                round_up(value);
            }
        } else if !schema.preserve_unknown {
            keep = false;
            if self.unknown.len() < MAX_UNKNOWN {
                self.unknown.push(self.path.clone());
            }
        }
        self.path.truncate(length);
        Ok(keep)
    }

    fn mismatch(&self, value: &Value, schema: &Schema) -> String {
        let got = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let want = match schema.json_type {
            _ if schema.int_or_string => "integer or string",
            JsonType::Any => "any",
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer if format_of(schema) == "int32" => "int32",
            JsonType::Integer => "int64",
            JsonType::Number => "number",
            JsonType::Boolean => "bool",
        };
        format!("json: cannot unmarshal {got} into field {:?} of type {want}", self.path)
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn format_of(schema: &Schema) -> &str {
    schema.constraints.as_ref().and_then(|constraints| constraints.format.as_deref()).unwrap_or_default()
}

fn integer_fits(value: &Value, format: &str) -> bool {
    value.as_i64().is_some_and(|number| format != "int32" || i32::try_from(number).is_ok())
}

/// What Go's zero value of the type looks like in JSON.
fn zero(schema: &Schema) -> Value {
    if schema.type_name.as_deref() == Some(QUANTITY) {
        return json!("0");
    }
    match schema.json_type {
        JsonType::String => json!(""),
        JsonType::Integer | JsonType::Number => json!(0),
        JsonType::Boolean => json!(false),
        JsonType::Object => json!({}),
        JsonType::Array => json!([]),
        JsonType::Any => Value::Null,
    }
}

/// Empty lists and maps are `omitempty` wherever they are optional; empty structs are not.
fn left_out(value: &Value, schema: &Schema) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && schema.json_type == JsonType::Array,
        Value::Object(fields) => {
            fields.is_empty() && schema.json_type == JsonType::Object && schema.additional.is_some()
        }
        _ => false,
    }
}

fn canonical_quantity(value: &mut Value) -> Result<(), String> {
    let parsed = match &*value {
        Value::String(text) => Quantity::parse_capped(text.trim()),
        Value::Number(number) => Quantity::parse_capped(&number.to_string()),
        _ => None,
    };
    *value = Value::String(parsed.ok_or_else(|| MALFORMED_QUANTITY.to_owned())?.to_string());
    Ok(())
}

/// Amounts of resources have at most three decimals.
fn round_up(value: &mut Value) {
    let given = value.as_str().and_then(Quantity::parse_capped);
    if let Some(amount) = given.filter(|amount| amount.nanos() % 1_000_000 != 0)
        && let Ok(milli) = i64::try_from(amount.milli_rounded_up())
    {
        *value = Value::String(Quantity::from_milli(milli, amount.format()).to_string());
    }
}

fn canonical_text(text: &mut String, schema: &Schema) -> Result<(), String> {
    match format_of(schema) {
        "byte" => canonical_base64(text),
        "date-time" => {
            let micro = schema.type_name.as_deref() == Some(MICRO_TIME);
            *text = canonical_time(text, micro).ok_or_else(|| time_error(text, micro))?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn canonical_base64(text: &mut String) -> Result<(), String> {
    if text.contains(['\r', '\n']) {
        text.retain(|c| c != '\r' && c != '\n');
    }
    match STANDARD.decode(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        // Go names the first byte of the quantum that is not whole.
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len() - text.len() % 4)),
    }
}

/// RFC 3339, in UTC, with seconds or microseconds; `None` for what is no time.
pub(crate) fn canonical_time(text: &str, micro: bool) -> Option<String> {
    if text.as_bytes().get(10) != Some(&b'T') || text.contains('[') {
        return None;
    }
    let time: Timestamp = text.parse().ok()?;
    // Go's layout of a micro time takes exactly six decimals.
    let decimals =
        text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    if micro && decimals != 6 {
        return None;
    }
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(time.strftime(format).to_string())
}

fn time_error(text: &str, micro: bool) -> String {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")
}

#[cfg(test)]
mod tests;
