//! A user's choices: layers over the built-in values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::describe;
use crate::{Error, Values};

/// Deepest nesting of values: those of ours have half of it.
const DEPTH: usize = 12;

/// Values that were chosen, without those that are built in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice(Map<String, Value>);

impl Choice {
    /// Lays a file over what was chosen: objects key by key, all else replaced.
    ///
    /// # Errors
    /// If it is not YAML of an object, or has a key that does not exist; the error has its path and the nearest one.
    pub fn file(&mut self, text: &str) -> Result<(), Error> {
        let read: Option<Value> =
            serde_saphyr::from_str(text).map_err(|error| Error::Yaml(error.to_string()))?;
        match read {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Object(map)) => self.lay(map),
            Some(_) => Err(Error::Yaml("it holds something else than keys and values".to_owned())),
        }
    }

    /// Lays `KEY=VALUE` over what was chosen; the key with dots, the value in YAML.
    ///
    /// # Errors
    /// If it is not of that form, or the key does not exist.
    pub fn set(&mut self, text: &str) -> Result<(), Error> {
        let Some((path, value)) = text.split_once('=') else {
            return Err(Error::invalid("--set", format!("{text:?} is not KEY=VALUE")));
        };
        let schema = describe::schema();
        let keys: Vec<&str> = path.split('.').collect();
        let mut at = &schema;
        for (index, key) in keys.iter().enumerate() {
            let trail = keys.get(..index).unwrap_or_default();
            at = describe::below(at, key).ok_or_else(|| unknown(trail, key, at))?;
        }
        let value = if describe::is_text(at) {
            Value::String(value.to_owned())
        } else {
            serde_saphyr::from_str(value).map_err(|error| Error::invalid(path, error.to_string()))?
        };
        self.put(path, value)
    }

    /// Lays a value over what was chosen.
    ///
    /// # Errors
    /// If the key does not exist.
    pub fn put(&mut self, path: &str, value: Value) -> Result<(), Error> {
        let whole = path
            .rsplit('.')
            .fold(value, |below, key| Value::Object([(key.to_owned(), below)].into_iter().collect()));
        match whole {
            Value::Object(map) => self.lay(map),
            _ => Ok(()),
        }
    }

    fn lay(&mut self, layer: Map<String, Value>) -> Result<(), Error> {
        let layer = Value::Object(layer);
        known(&layer, &describe::schema(), &mut Vec::new())?;
        let mut whole = Value::Object(std::mem::take(&mut self.0));
        merge(&mut whole, layer);
        if let Value::Object(map) = whole {
            self.0 = map;
        }
        Ok(())
    }

    /// With what is built in.
    ///
    /// # Errors
    /// If a value is of the wrong type, out of range, or does not go with another one.
    pub fn values(&self) -> Result<Values, Error> {
        let whole = Value::Object(self.0.clone());
        let values: Values = serde_path_to_error::deserialize(&whole)
            .map_err(|error| Error::invalid(error.path().to_string(), error.inner().to_string()))?;
        values.check()?;
        Ok(values)
    }

    /// What was chosen, as YAML; empty if nothing was.
    #[must_use]
    pub fn yaml(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let sorted: BTreeMap<&String, &Value> = self.0.iter().collect();
        serde_saphyr::to_string(&sorted).unwrap_or_default()
    }
}

/// Every key is one that exists.
fn known(value: &Value, schema: &Value, trail: &mut Vec<String>) -> Result<(), Error> {
    if trail.len() > DEPTH {
        return Err(Error::invalid(trail.join("."), "it is nested too deeply"));
    }
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                let Some(schema) = describe::below(schema, key) else {
                    let trail: Vec<&str> = trail.iter().map(String::as_str).collect();
                    return match describe::fields(schema) {
                        Some(_) => Err(unknown(&trail, key, schema)),
                        // It has no keys: its type is checked when it is read.
                        None => Ok(()),
                    };
                };
                trail.push(key.clone());
                known(below, schema, trail)?;
                trail.pop();
            }
        }
        Value::Array(all) => {
            let Some(schema) = describe::items(schema) else { return Ok(()) };
            for (index, below) in all.iter().enumerate() {
                trail.push(index.to_string());
                known(below, schema, trail)?;
                trail.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

fn unknown(trail: &[&str], key: &str, schema: &Value) -> Error {
    let full = |key: &str| {
        let words: Vec<&str> = trail.iter().copied().chain([key]).collect();
        words.join(".")
    };
    let names = describe::fields(schema).into_iter().flat_map(Map::keys);
    let nearest = names
        .map(|name| (strsim::levenshtein(&name.to_lowercase(), &key.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(key.len()) / 2)
        .map(|(_, name)| full(name));
    Error::Unknown { path: full(key), nearest }
}

/// Lays `change` over `target`; null takes back.
pub(crate) fn merge(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, change) => *target = change,
    }
}
