//! From a message to the JSON that stands for it.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::table::{self, Count, Field, Message, Type};
use super::wire::{self, MAX_DEPTH, Payload, Problem, Reader};
use crate::schema::json::{MOST_VALUES, parse_json_within, take, too_many_values};

#[derive(Clone, Copy)]
struct At<'a> {
    depth: usize,
    left: &'a Cell<usize>,
}

impl At<'_> {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    fn take(self) -> Result<(), Problem> {
        let mut left = self.left.get();
        let is_left = take(&mut left);
        self.left.set(left);
        if is_left { Ok(()) } else { Err(Problem::from(too_many_values().to_string())) }
    }
}

pub(super) fn message(bytes: &[u8], message: &Message) -> Result<Value, Problem> {
    let mut object = Map::new();
    let left = Cell::new(MOST_VALUES);
    fields(bytes, message, &mut object, At { depth: 0, left: &left })?;
    Ok(Value::Object(object))
}

/// Adds the fields of a message to an object. A field given again replaces, extends or is merged, by its count.
fn fields(
    bytes: &[u8],
    message: &Message,
    object: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), Problem> {
    if at.depth >= MAX_DEPTH {
        return Err("proto: messages are nested too deeply".into());
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        let Some(field) = message.field(number) else { continue };
        match field.count {
            Count::One | Count::Optional => single(field, payload, object, at)?,
            Count::List => list(field, payload, object, at)?,
            Count::Map => entry(field, payload, object, at)?,
        }
    }
    Ok(())
}

fn single(
    field: &Field,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), Problem> {
    if let (Type::Message(name), Payload::Bytes(bytes)) = (&field.of, payload) {
        let Some(inner) = table::message(name) else { return Ok(()) };
        if field.name.is_empty() {
            return fields(bytes, inner, object, at.deeper());
        }
        let slot = object.entry(field.name).or_insert_with(|| json!({}));
        return match slot.as_object_mut() {
            Some(map) => fields(bytes, inner, map, at.deeper()),
            None => Ok(()),
        };
    }
    let value = value(field, payload, at)?;
    if value.is_null() || (field.count == Count::One && field.of.is_scalar() && is_zero(&value)) {
        object.remove(field.name);
    } else {
        object.insert(field.name.to_owned(), value);
    }
    Ok(())
}

fn list(
    field: &Field,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), Problem> {
    let slot = object.entry(field.name).or_insert_with(|| json!([]));
    let Some(items) = slot.as_array_mut() else { return Ok(()) };
    let Payload::Bytes(bytes) = payload else {
        items.push(value(field, payload, at)?);
        return Ok(());
    };
    let mut packed = Reader::new(bytes);
    match field.of {
        Type::Integer | Type::Flag => {
            while let Some(number) = packed.next_packed()? {
                items.push(value(field, Payload::Varint(number), at)?);
            }
        }
        Type::Double => {
            while let Some(number) = packed.next_double()? {
                items.push(value(field, Payload::Fixed64(number), at)?);
            }
        }
        _ => items.push(value(field, payload, at)?),
    }
    Ok(())
}

fn entry(
    field: &Field,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
    at: At<'_>,
) -> Result<(), Problem> {
    let Payload::Bytes(bytes) = payload else { return Err(payload.wrong_type(field.name)) };
    let (mut key, mut held) = ("", None);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => key = wire::text(bytes)?,
            (1, other) => return Err(other.wrong_type(field.name)),
            (2, payload) => held = Some(value(field, payload, at.deeper())?),
            _ => {}
        }
    }
    if held.is_none() {
        at.take()?;
    }
    let held = held.unwrap_or_else(|| match field.of {
        Type::Text | Type::Bytes => json!(""),
        Type::Flag => json!(false),
        Type::Integer | Type::Double => json!(0),
        Type::Quantity => json!("0"),
        Type::Message(_) => json!({}),
        Type::Time { .. } | Type::IntOrString | Type::Raw | Type::Union(_) => Value::Null,
    });
    let slot = object.entry(field.name).or_insert_with(|| json!({}));
    if let Some(map) = slot.as_object_mut() {
        map.insert(key.to_owned(), held);
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// One value of the field's type; `null` for a time or JSON that is not set.
fn value(field: &Field, payload: Payload<'_>, at: At<'_>) -> Result<Value, Problem> {
    at.take()?;
    Ok(match (&field.of, payload) {
        (Type::Text, Payload::Bytes(bytes)) => json!(wire::text(bytes)?),
        (Type::Flag, Payload::Varint(number)) => json!(number != 0),
        (Type::Integer, Payload::Varint(number)) => json!(number.cast_signed()),
        (Type::Double, Payload::Fixed64(bits)) => {
            let number = serde_json::Number::from_f64(f64::from_bits(bits));
            Value::Number(number.ok_or("proto: the number is not finite")?)
        }
        (Type::Bytes, Payload::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Type::Quantity, Payload::Bytes(bytes)) => quantity(bytes)?,
        (Type::Time { micro }, Payload::Bytes(bytes)) => time(bytes, *micro)?,
        (Type::IntOrString, Payload::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Raw, Payload::Bytes(bytes)) => raw(bytes, at)?,
        (Type::Message(name) | Type::Union(name), Payload::Bytes(bytes)) => {
            let Some(inner) = table::message(name) else { return Ok(Value::Null) };
            let mut object = Map::new();
            fields(bytes, inner, &mut object, at.deeper())?;
            match field.of {
                Type::Union(_) => {
                    inner.fields.iter().rev().find_map(|f| object.remove(f.name)).unwrap_or_default()
                }
                _ => Value::Object(object),
            }
        }
        (_, other) => return Err(other.wrong_type(field.name)),
    })
}

fn quantity(bytes: &[u8]) -> Result<Value, Problem> {
    let (mut reader, mut text) = (Reader::new(bytes), "0");
    while let Some((number, payload)) = reader.next_field()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) if !bytes.is_empty() => text = wire::text(bytes)?,
            (1, Payload::Bytes(_)) => text = "0",
            (1, other) => return Err(other.wrong_type("string")),
            _ => {}
        }
    }
    Ok(json!(text))
}

/// Seconds since 1970 and nanoseconds. No bytes at all are Go's zero time, which is shown as `null`.
fn time(bytes: &[u8], micro: bool) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut reader, mut seconds, mut nanos) = (Reader::new(bytes), 0_i64, 0_i64);
    while let Some((number, payload)) = reader.next_field()? {
        match (number, payload) {
            (1, Payload::Varint(value)) => seconds = value.cast_signed(),
            (2, Payload::Varint(value)) => nanos = value.cast_signed(),
            (1 | 2, other) => return Err(other.wrong_type("time")),
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos).ok().filter(|nanos| (0..1_000_000_000).contains(nanos));
    let time = nanos
        .and_then(|nanos| Timestamp::new(seconds, nanos).ok())
        .ok_or("proto: the time is out of range")?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(json!(time.strftime(format).to_string()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Problem> {
    let (mut reader, mut is_text, mut whole, mut text) = (Reader::new(bytes), false, 0_i64, "");
    while let Some((number, payload)) = reader.next_field()? {
        match (number, payload) {
            (1, Payload::Varint(value)) => is_text = value == 1,
            (2, Payload::Varint(value)) => whole = value.cast_signed(),
            (3, Payload::Bytes(bytes)) => text = wire::text(bytes)?,
            (1..=3, other) => return Err(other.wrong_type("IntOrString")),
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(whole) })
}

fn raw(bytes: &[u8], at: At<'_>) -> Result<Value, Problem> {
    let (mut reader, mut text) = (Reader::new(bytes), &b""[..]);
    while let Some((number, payload)) = reader.next_field()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => text = bytes,
            (1, other) => return Err(other.wrong_type("raw")),
            _ => {}
        }
    }
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let mut left = at.left.get();
    let parsed = parse_json_within(text, &mut left);
    at.left.set(left);
    parsed.map(|(value, _)| value).map_err(|problem| Problem::from(problem.to_string()))
}
