//! Request bodies in the Kubernetes protobuf encoding (`application/vnd.kubernetes.protobuf`), read into JSON.
//!
//! A body is four magic bytes and an envelope (`runtime.Unknown`) that names the type and holds the message. Which
//! field number means what is in `proto/messages.txt`. What comes out is what a client would have sent as JSON:
//! zero values that Go leaves out are left out here too. Answers are always JSON or YAML.

mod decode;
mod table;
pub(crate) mod wire;

use serde_json::{Value, json};

use crate::schema;
use crate::status::ApiError;
use wire::{Payload, Problem, Reader};

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting of the JSON made: what a JSON body may have, as objects are stored as JSON.
const MAX_NESTING: usize = 127;
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    encoding: &'a str,
    content_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Problem> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next_field()? {
            match (number, payload) {
                (1, Payload::Bytes(bytes)) => envelope.read_type(bytes)?,
                (2, Payload::Bytes(bytes)) => envelope.raw = bytes,
                (3, Payload::Bytes(bytes)) => envelope.encoding = wire::text(bytes)?,
                (4, Payload::Bytes(bytes)) => envelope.content_type = wire::text(bytes)?,
                (1..=4, other) => return Err(other.wrong_type("Unknown")),
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), Problem> {
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next_field()? {
            match (number, payload) {
                (1, Payload::Bytes(bytes)) => self.api_version = wire::text(bytes)?,
                (2, Payload::Bytes(bytes)) => self.kind = wire::text(bytes)?,
                (1 | 2, other) => return Err(other.wrong_type("TypeMeta")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Decodes a body as a message of the type (`io.k8s.api.core.v1.Pod`). If its envelope names another kind, only
/// `apiVersion` and `kind` are decoded, and the caller refuses the object because of its kind.
///
/// # Errors
/// 400 if the body is not such a message.
pub(crate) fn decode(body: &[u8], type_name: &str) -> Result<Value, ApiError> {
    let mut parts = type_name.rsplit('.');
    let (kind, version) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let unrecognized = |why: &str| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
    };
    let refused = |why: &str| ApiError::bad_request(schema::decode::cannot_be_handled(kind, version, why));
    let Some(bytes) = body.strip_prefix(MAGIC) else {
        return Err(unrecognized(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ));
    };
    let envelope = Envelope::read(bytes).map_err(|problem| unrecognized(&problem.to_string()))?;
    if !matches!(envelope.encoding, "" | "identity") {
        return Err(unrecognized(&format!("unsupported content encoding {:?}", envelope.encoding)));
    }
    let mut object = if !envelope.kind.is_empty() && envelope.kind != kind {
        json!({})
    } else if envelope.content_type.starts_with("application/json") {
        schema::json::parse_json(envelope.raw).map_err(|problem| refused(&problem.to_string()))?.0
    } else {
        let short = type_name.strip_prefix("io.k8s.").unwrap_or(type_name);
        let message = table::message(short).ok_or_else(|| refused("the type has no protobuf form"))?;
        decode::message(envelope.raw, message).map_err(|problem| refused(&problem.to_string()))?
    };
    if !fits(&object, MAX_NESTING) {
        return Err(refused("exceeded max depth"));
    }
    if let Some(map) = object.as_object_mut() {
        for (key, value) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !value.is_empty() {
                map.insert(key.to_owned(), json!(value));
            }
        }
    }
    Ok(object)
}

/// Whether nothing is nested deeper than that.
fn fits(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, left)),
        Value::Object(map) => map.values().all(|item| fits(item, left)),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
