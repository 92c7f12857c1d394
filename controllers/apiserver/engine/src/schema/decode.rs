//! Decoding of built-in objects as Go's typed decoder does it: wrong types are refused, unknown fields dropped and
//! listed, nulls dropped, quantities, times and base64 put in canonical form, empty optional lists and maps left out.

mod types;

pub(crate) use types::OF_VOLUMES;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use neonvm_types::Quantity;
use serde_json::{Map, Value, json};

use super::builtin::{MICRO_TIME, QUANTITY};
use super::{JsonType, MAX_DEPTH, Schema};

/// The error text of a real server for anything that is no quantity.
pub(super) const MALFORMED_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Most strict-decoding complaints that are listed.
const MAX_UNKNOWN: usize = 100;

/// Decodes an object of a built-in kind, which was read from `document`, in place. Returns the paths of unknown fields, sorted by
/// key; for the order of the real server apply [`super::json::in_document_order`].
///
/// # Errors
/// The text a real server puts after `cannot be handled as a <Kind>: `: of several mistakes, the first one in the document. Without
/// JSON in that, as for YAML, the first by the names of fields.
pub fn decode_builtin(value: &mut Value, schema: &Schema, document: &[u8]) -> Result<Vec<String>, String> {
    let mut walk = Walk::new("", "");
    walk.node(value, schema, 0)?;
    walk.end(document)
}

/// Decodes the `metadata` of an object of any kind in place, with paths from the object's root.
///
/// # Errors
/// As [`decode_builtin`].
pub fn decode_metadata(object: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let mut walk = Walk::new("metadata", "ObjectMeta");
    walk.node(metadata, &super::builtin::object_meta(), 0)?;
    walk.end(&[])
}

/// Decodes the metadata of an object that is embedded in another one, with paths from the metadata.
///
/// # Errors
/// As [`decode_builtin`].
pub fn decode_embedded(metadata: &mut Value) -> Result<Vec<String>, String> {
    let mut walk = Walk::new("", "ObjectMeta");
    walk.node(metadata, &super::builtin::object_meta(), 0)?;
    walk.end(&[])
}

/// `<Kind> in version "<version>" cannot be handled as a <Kind>: <why>`.
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
    /// With list indices, as strict decoding reports it.
    path: String,
    /// Without them, as type errors report it.
    go_path: String,
    /// Go name of the innermost struct.
    owner: String,
    unknown: Vec<String>,
    /// What does not fit: where, and the text.
    mistakes: Vec<(String, String)>,
}

impl Walk {
    fn new(path: &str, owner: &str) -> Self {
        let (path, owner) = (path.to_owned(), owner.to_owned());
        Self { go_path: path.clone(), path, owner, unknown: Vec::new(), mistakes: Vec::new() }
    }

    /// The unknown fields, or the first mistake of the document.
    fn end(self, document: &[u8]) -> Result<Vec<String>, String> {
        let mut places: Vec<String> = self.mistakes.iter().map(|(place, _)| place.clone()).collect();
        super::json::in_document_order(document, &mut places);
        let first = places.first().and_then(|first| self.mistakes.iter().find(|(place, _)| place == first));
        first.map_or(Ok(self.unknown), |(_, text)| Err(text.clone()))
    }

    /// Decodes what is at the path; a mistake does not end the walk.
    fn inner(&mut self, value: &mut Value, schema: &Schema, depth: usize) {
        if let Err(text) = self.node(value, schema, depth)
            && self.mistakes.len() < MAX_UNKNOWN
        {
            self.mistakes.push((self.path.clone(), text));
        }
    }

    fn node(&mut self, value: &mut Value, schema: &Schema, depth: usize) -> Result<(), String> {
        if depth >= MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        if schema.type_name.as_deref() == Some(QUANTITY) {
            return canonical_quantity(value);
        }
        if schema.int_or_string {
            return self.int_or_string(value);
        }
        let fits = match schema.json_type {
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
                self.object(fields, schema, depth);
                Ok(())
            }
            Value::Array(items) => {
                let Some(item_schema) = &schema.items else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    if item.is_null() {
                        *item = zero(item_schema);
                    }
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.inner(item, item_schema, depth + 1);
                    self.path.truncate(length);
                }
                Ok(())
            }
            Value::String(text) => canonical_text(text, schema),
            _ => Ok(()),
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, schema: &Schema, depth: usize) {
        let outer = schema.type_name.as_deref().map(|name| {
            let short = name.rsplit('.').next().unwrap_or(name);
            std::mem::replace(&mut self.owner, short.to_owned())
        });
        fields.retain(|key, value| self.field(key, value, schema, depth));
        if let Some(outer) = outer {
            self.owner = outer;
        }
    }

    /// Decodes one field or map entry; `false` if it does not stay.
    fn field(&mut self, key: &str, value: &mut Value, schema: &Schema, depth: usize) -> bool {
        let (length, go_length) = (self.path.len(), self.go_path.len());
        push_key(&mut self.path, key);
        let mut keep = true;
        if let Some(property) = schema.properties.get(key) {
            if let Some(embedded) = types::embedded(&self.owner, key) {
                push_key(&mut self.go_path, embedded);
            }
            push_key(&mut self.go_path, key);
            keep = !value.is_null();
            if keep {
                self.inner(value, property, depth + 1);
                keep = !left_out(value, property) || schema.required.iter().any(|name| name == key);
            }
        } else if let Some(values) = &schema.additional {
            if value.is_null() {
                *value = zero(values);
            }
            self.inner(value, values, depth + 1);
        } else if !schema.preserve_unknown {
            keep = false;
            if self.unknown.len() < MAX_UNKNOWN {
                self.unknown.push(self.path.clone());
            }
        }
        self.path.truncate(length);
        self.go_path.truncate(go_length);
        keep
    }

    fn int_or_string(&self, value: &Value) -> Result<(), String> {
        if value.is_string() || integer_fits(value, "int32") {
            return Ok(());
        }
        // Go reads whatever is no text as a number.
        Err(unmarshal_error(value, &self.owner, &self.go_path, "int32"))
    }

    fn mismatch(&self, value: &Value, schema: &Schema) -> String {
        let field = self.go_path.rsplit('.').next().unwrap_or_default();
        let want = match (types::named(&self.owner, field), schema.json_type) {
            (Some(name), JsonType::Array) => format!("[]{name}"),
            (Some(name), _) => name.to_owned(),
            (None, _) => go_type(schema, 0),
        };
        unmarshal_error(value, &self.owner, &self.go_path, &want)
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// `json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string`.
fn unmarshal_error(value: &Value, owner: &str, path: &str, want: &str) -> String {
    let got = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if matches!(want, "int32" | "int64") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    if path.is_empty() {
        return format!("json: cannot unmarshal {got} into Go value of type {want}");
    }
    format!("json: cannot unmarshal {got} into Go struct field {owner}.{path} of type {want}")
}

/// The Go type a node stands for: `string`, `[]v1.Container`, `map[string]string`.
fn go_type(schema: &Schema, depth: usize) -> String {
    if let Some(name) = schema.type_name.as_deref().filter(|_| schema.json_type == JsonType::Object) {
        let mut parts = name.rsplit('.');
        let (kind, package) = (parts.next().unwrap_or(name), parts.next().unwrap_or("v1"));
        return format!("{package}.{kind}");
    }
    let inner = |node: Option<&super::SchemaRef>| {
        node.filter(|_| depth < 8).map_or_else(|| "interface {}".to_owned(), |node| go_type(node, depth + 1))
    };
    match schema.json_type {
        JsonType::Any => "interface {}".to_owned(),
        JsonType::Object => format!("map[string]{}", inner(schema.additional.as_ref())),
        JsonType::Array => format!("[]{}", inner(schema.items.as_ref())),
        JsonType::String if format_of(schema) == "byte" => "[]uint8".to_owned(),
        JsonType::String => "string".to_owned(),
        JsonType::Integer if format_of(schema) == "int32" => "int32".to_owned(),
        JsonType::Integer => "int64".to_owned(),
        JsonType::Number => "float64".to_owned(),
        JsonType::Boolean => "bool".to_owned(),
    }
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
