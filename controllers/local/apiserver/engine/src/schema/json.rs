//! Reading JSON bodies as an API server does: duplicate keys are noticed, and size and nesting are
//! limited.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::status::ApiError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonProblem {
    pub message: String,
    /// It has more than [`MOST_VALUES`].
    pub is_too_large: bool,
}

/// Most values (objects, lists, texts, numbers, …) of a document, those of YAML included: each takes memory and time that its few bytes do
/// not show. 3 MiB of what clients send have a tenth.
pub(crate) const MOST_VALUES: usize = 250_000;

impl From<JsonProblem> for ApiError {
    fn from(problem: JsonProblem) -> Self {
        match problem.is_too_large {
            true => Self::plain(413, "RequestEntityTooLarge", problem.message),
            false => Self::bad_request(problem.message),
        }
    }
}

/// Most objects of a list: rules about lists compare each item with each other.
const MOST_ITEMS: usize = 4096;

/// # Errors
/// 413 if a list has too many objects.
pub(crate) fn check_lists(value: &Value) -> Result<(), ApiError> {
    match value {
        Value::Array(items) if items.len() > MOST_ITEMS && items.iter().any(Value::is_object) => {
            let message = format!("Request entity is too large: limit is {MOST_ITEMS} objects in a list");
            Err(ApiError::plain(413, "RequestEntityTooLarge", message))
        }
        Value::Array(items) => items.iter().try_for_each(check_lists),
        Value::Object(fields) => fields.values().try_for_each(check_lists),
        _ => Ok(()),
    }
}

/// The type of a value, as messages name it.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Takes one from the values that a document may still have; whether there was one.
pub(crate) fn take(left: &mut usize) -> bool {
    left.checked_sub(1).map(|rest| *left = rest).is_some()
}

pub(crate) fn too_many_values() -> JsonProblem {
    let message = format!("Request entity is too large: limit is {MOST_VALUES} values");
    JsonProblem { message, is_too_large: true }
}

impl std::fmt::Display for JsonProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for JsonProblem {}

/// Reads a document and lists the paths of keys given more than once (the last one counts), at most 100 of them.
///
/// # Errors
/// If it is not JSON, nested deeper than 127 levels, or has more than [`MOST_VALUES`].
pub fn parse_json(body: &[u8]) -> Result<(Value, Vec<String>), JsonProblem> {
    parse_json_within(body, &mut { MOST_VALUES })
}

/// As [`parse_json`], for a part of a document that may still have so many values.
pub(crate) fn parse_json_within(body: &[u8], left: &mut usize) -> Result<(Value, Vec<String>), JsonProblem> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Tree { duplicates: &mut duplicates, left }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| problem(&error))?;
    Ok((value, duplicates))
}

const MAX_DUPLICATES: usize = 100;

struct Tree<'a> {
    duplicates: &'a mut Vec<String>,
    left: &'a mut usize,
}

/// The text of the error that ends the reading of a document with too many values.
const TOO_MANY: &str = "too many values";

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if !take(self.left) {
            return Err(D::Error::custom(TOO_MANY));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let before = self.duplicates.len();
            let seed = Tree { duplicates: &mut *self.duplicates, left: &mut *self.left };
            let Some(item) = access.next_element_seed(seed)? else {
                return Ok(Value::Array(items));
            };
            let prefix = format_args!("[{}]", items.len()).to_string();
            prepend(self.duplicates, before, &prefix);
            items.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let before = self.duplicates.len();
            let seed = Tree { duplicates: &mut *self.duplicates, left: &mut *self.left };
            let value = access.next_value_seed(seed)?;
            prepend(self.duplicates, before, &key);
            if fields.contains_key(&key) && self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(key.clone());
            }
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

fn prepend(paths: &mut [String], from: usize, prefix: &str) {
    for path in paths.iter_mut().skip(from) {
        let dot = if path.starts_with('[') { "" } else { "." };
        *path = format!("{prefix}{dot}{path}");
    }
}

fn problem(error: &serde_json::Error) -> JsonProblem {
    let text = error.to_string();
    if text.starts_with(TOO_MANY) {
        return too_many_values();
    }
    let message = if text.starts_with("recursion limit") { "exceeded max depth".to_owned() } else { text };
    JsonProblem { message, is_too_large: false }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::arbitrary_json;
    use super::parse_json;

    #[test]
    fn duplicates_are_listed_and_the_last_counts() {
        let body = br#"{"data":{"a":"1","a":"2"},"list":[{},{"x":{"y":1,"y":2}}],"immutable":false,"immutable":true}"#;
        let (value, duplicates) = parse_json(body).unwrap();
        assert_eq!(value["data"], json!({"a": "2"}));
        assert_eq!(value["immutable"], true);
        assert_eq!(duplicates, ["data.a", "list[1].x.y", "immutable"]);
    }

    #[test]
    fn problems_name_their_place() {
        let message = |body: &str| parse_json(body.as_bytes()).unwrap_err().message;
        assert_eq!(message("{\"a\" 1}"), "expected `:` at line 1 column 6");
        assert_eq!(message(&"[".repeat(5000)), "exceeded max depth");
    }

    #[test]
    fn values_are_counted_while_they_are_read() {
        let list = |count: usize| format!("[{}]", vec!["[]"; count].join(","));
        assert!(parse_json(list(super::MOST_VALUES - 1).as_bytes()).is_ok());
        for body in
            [list(super::MOST_VALUES), list(1 << 20), format!("{{\"a\":{}}}", list(super::MOST_VALUES - 1))]
        {
            let problem = parse_json(body.as_bytes()).unwrap_err();
            assert!(problem.is_too_large && problem.message.contains("limit is 250000 values"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(value in arbitrary_json()) {
            let body = serde_json::to_vec(&value).unwrap();
            let (read, duplicates) = parse_json(&body).unwrap();
            prop_assert_eq!(read, serde_json::from_slice::<serde_json::Value>(&body).unwrap());
            prop_assert!(duplicates.is_empty());
        }

        #[test]
        fn never_panics_and_accepts_the_same_texts(text in "[\\[\\]{}:,\" a0-9.\\\\enul-]{0,40}") {
            let ours = parse_json(text.as_bytes()).map(|(value, _)| value).ok();
            prop_assert_eq!(ours, serde_json::from_str::<serde_json::Value>(&text).ok());
        }
    }
}
