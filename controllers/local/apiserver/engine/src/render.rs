//! From stored bytes to the bytes of an answer: versions, lists, metadata-only forms, tables, YAML.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::convert;
use crate::form::{Form, metadata_only};
use crate::kinds::Kind;
use crate::media::{Shape, not_acceptable};
use crate::object;
use crate::status::ApiError;
use crate::store::Stored;
use crate::table;

/// Serialises an object for storage: `kind`, `apiVersion` and `metadata` first, so that [`without_header`] can cut
/// the first two off.
pub(crate) fn to_bytes(object: &Value) -> Bytes {
    let mut text = BytesMut::with_capacity(512);
    text.put_slice(header(object).as_bytes());
    let mut first = true;
    let Some(map) = object.as_object() else { return Bytes::from_static(b"{}") };
    let metadata = map.get_key_value("metadata");
    let rest = map.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
    for (key, value) in metadata.into_iter().chain(rest) {
        if !first {
            text.put_u8(b',');
        }
        first = false;
        put_json(&mut text, &json!(key));
        text.put_u8(b':');
        put_json(&mut text, value);
    }
    text.put_u8(b'}');
    // Exactly as long as needed: the buffer has up to twice the room, and what is stored stays for long.
    Bytes::copy_from_slice(&text)
}

fn header(object: &Value) -> String {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
    header_of(text("kind"), text("apiVersion"))
}

fn header_of(kind: &str, api_version: &str) -> String {
    match api_version {
        // Lists of the core group's resources have none.
        "" => format!("{{\"kind\":\"{kind}\","),
        _ => format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\","),
    }
}

fn put_json(text: &mut BytesMut, value: &Value) {
    // Writing JSON to memory cannot fail: all keys are strings and the buffer grows.
    let written = serde_json::to_writer((&mut *text).writer(), value);
    debug_assert!(written.is_ok());
}

/// Parses stored bytes. They were written by [`to_bytes`]; anything else reads as null.
pub(crate) fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or(Value::Null)
}

pub(crate) fn value_in(kind: &Kind, stored: &Stored) -> Value {
    let mut value = parse(&stored.json);
    if !same_version(kind) {
        convert::convert(&mut value, kind);
    } else if convert::is_outdated(kind, stored) {
        convert::fit(&mut value, kind);
    }
    value
}

fn same_version(kind: &Kind) -> bool {
    match kind.storage.split_once('/') {
        Some((group, version)) => group == kind.group && version == kind.version,
        None => kind.group.is_empty() && kind.storage == kind.version,
    }
}

pub(crate) fn is_as_stored(kind: &Kind, stored: &Stored) -> bool {
    same_version(kind) && !convert::is_outdated(kind, stored)
}

pub(crate) fn bytes_in(kind: &Kind, stored: &Stored) -> Bytes {
    if is_as_stored(kind, stored) {
        return stored.json.clone();
    }
    to_bytes(&value_in(kind, stored))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut meta = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(token) = &self.token {
            object::set(&mut meta, "continue", json!(token));
        }
        if let Some(left) = self.remaining {
            object::set(&mut meta, "remainingItemCount", json!(left));
        }
        meta
    }
}

/// One object in the requested form.
///
/// # Errors
/// 406 for a list form.
pub(crate) fn one(form: &Form<'_>, stored: &Stored) -> Result<Bytes, ApiError> {
    match form.accepted.shape {
        Shape::Whole => Ok(bytes_in(form.kind, stored)),
        _ => one_value(form, &value_in(form.kind, stored)),
    }
}

/// One object, given as a value, in the requested form.
///
/// # Errors
/// 406 for a list form.
pub(crate) fn one_value(form: &Form<'_>, value: &Value) -> Result<Bytes, ApiError> {
    match form.accepted.shape {
        Shape::Whole => Ok(to_bytes(value)),
        Shape::Metadata => Ok(to_bytes(&metadata_only(value, "v1"))),
        Shape::MetadataList => Err(not_acceptable()),
        Shape::Table(version) => {
            let meta = json!({ "resourceVersion": object::resource_version(value) });
            Ok(to_bytes(&table::table(form, version, &meta, &[value])))
        }
    }
}

/// A list in the requested form.
///
/// # Errors
/// 406 for a single-object form.
pub(crate) fn list(form: &Form<'_>, items: &[Stored], meta: &ListMeta) -> Result<Bytes, ApiError> {
    let value = match form.accepted.shape {
        Shape::Whole => return Ok(whole_list(form.kind, items, meta)),
        Shape::Metadata => return Err(not_acceptable()),
        Shape::MetadataList => {
            let items: Vec<Value> = items.iter().map(|s| metadata_only(&parse(&s.json), "v1")).collect();
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": meta.to_value(), "items": items })
        }
        Shape::Table(version) => {
            let values: Vec<Value> = items.iter().map(|s| value_in(form.kind, s)).collect();
            let refs: Vec<&Value> = values.iter().collect();
            table::table(form, version, &meta.to_value(), &refs)
        }
    };
    Ok(to_bytes(&value))
}

fn whole_list(kind: &Kind, items: &[Stored], meta: &ListMeta) -> Bytes {
    let size: usize = items.iter().map(|s| s.json.len() + 1).sum();
    let mut text = BytesMut::with_capacity(size + 256);
    text.put_slice(header_of(&kind.list_kind, &kind.api_version()).as_bytes());
    text.put_slice(b"\"metadata\":");
    put_json(&mut text, &meta.to_value());
    text.put_slice(b",\"items\":[");
    let prefix = header_of(&kind.kind, &kind.api_version());
    for (at, stored) in items.iter().enumerate() {
        if at > 0 {
            text.put_u8(b',');
        }
        let json = bytes_in(kind, stored);
        match json.strip_prefix(prefix.as_bytes()).filter(|_| kind.is_builtin()) {
            // Items of built-in lists carry no type.
            Some(rest) => {
                text.put_u8(b'{');
                text.put_slice(rest);
            }
            None => text.put_slice(&json),
        }
    }
    text.put_slice(b"]}");
    text.freeze()
}

pub(crate) fn event(form: &Form<'_>, event_type: &str, stored: &Stored) -> Bytes {
    let body = match form.accepted.shape {
        Shape::Whole => bytes_in(form.kind, stored),
        Shape::Metadata | Shape::MetadataList => to_bytes(&metadata_only(&parse(&stored.json), "v1")),
        Shape::Table(version) => {
            let value = value_in(form.kind, stored);
            let meta = json!({ "resourceVersion": object::resource_version(&value) });
            to_bytes(&table::table(form, version, &meta, &[&value]))
        }
    };
    event_line(event_type, &body)
}

/// `{"type":…,"object":…}` and a newline.
pub(crate) fn event_line(event_type: &str, body: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(event_type.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(body);
    line.put_slice(b"}\n");
    line.freeze()
}
