//! The variables of a scenario, and the form in which answers are compared: this run's own values become `${name}`,
//! volatile ones a placeholder.

mod fold;
mod shape;

use anyhow::bail;
use regex::Regex;
use serde_json::{Map, Value};

/// Filled into requests, folded back out of responses.
#[derive(Debug)]
pub(crate) struct Scope {
    /// In the order in which they were set.
    values: Vec<(String, Value)>,
    patterns: fold::Patterns,
    reference: Regex,
}

impl Scope {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            values: Vec::new(),
            patterns: fold::Patterns::new()?,
            reference: Regex::new(r"\$\{([\w.]+)\}")?,
        })
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        match self.values.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> anyhow::Result<&Value> {
        match self.values.iter().find(|(known, _)| known == name) {
            Some((_, value)) => Ok(value),
            None => bail!("variable {name} was never captured"),
        }
    }

    /// A value with every `${name}` replaced; a text that is one reference takes the variable's type.
    pub(crate) fn fill(&self, value: &Value) -> anyhow::Result<Value> {
        Ok(match value {
            Value::Object(fields) => {
                let mut out = Map::new();
                for (key, item) in fields {
                    out.insert(self.fill_text(key)?, self.fill(item)?);
                }
                Value::Object(out)
            }
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?)
            }
            Value::String(text) => {
                let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
                match whole {
                    Some(name) if !name.contains("${") => self.get(name)?.clone(),
                    _ => Value::String(self.fill_text(text)?),
                }
            }
            other => other.clone(),
        })
    }

    /// JSON text with every `${name}` replaced; a string that is one reference takes the variable's type.
    pub(crate) fn fill_json(&self, text: &str) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(found) = self.reference.captures(rest) {
            let (Some(all), Some(name)) = (found.get(0), found.get(1)) else { break };
            let (before, after) =
                (rest.get(..all.start()).unwrap_or_default(), rest.get(all.end()..).unwrap_or_default());
            let value = self.get(name.as_str())?;
            match (before.strip_suffix('"'), after.strip_prefix('"')) {
                // A quotation mark before it that is not the end of an escape: the reference is the whole string.
                (Some(before), Some(after)) if !before.ends_with('\\') => {
                    out.push_str(before);
                    out.push_str(&value.to_string());
                    rest = after;
                }
                _ => {
                    out.push_str(before);
                    let quoted = match value {
                        Value::String(_) => value.to_string(),
                        other => Value::String(other.to_string()).to_string(),
                    };
                    out.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn fill_text(&self, text: &str) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(found) = self.reference.captures(rest) {
            let (Some(all), Some(name)) = (found.get(0), found.get(1)) else { break };
            out.push_str(rest.get(..all.start()).unwrap_or_default());
            match self.get(name.as_str())? {
                Value::String(text) => out.push_str(text),
                other => out.push_str(&other.to_string()),
            }
            rest = rest.get(all.end()..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }

    fn revision(&self, text: &str) -> String {
        let named = self.values.iter().find(|(_, value)| value == text);
        named.map_or_else(|| "<rv>".to_owned(), |(name, _)| format!("${{{name}}}"))
    }

    /// A text with this run's own values replaced by `${name}` or a placeholder.
    pub(crate) fn fold(&self, text: &str) -> String {
        let mut named: Vec<(&str, &str)> = self
            .values
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .filter(|(_, value)| value.chars().count() > 4 && !value.chars().all(|c| c.is_ascii_digit()))
            .collect();
        named.sort_by_key(|(_, value)| std::cmp::Reverse(value.chars().count()));
        let mut text = text.to_owned();
        for (name, value) in named {
            text = text.replace(value, &format!("${{{name}}}"));
        }
        self.patterns.fold(&text, |revision| self.revision(revision))
    }

    /// A value in the form that is compared; `managed` keeps `managedFields`.
    pub(crate) fn normal(&self, value: &Value, managed: bool) -> Value {
        match value {
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.normal(item, managed)).collect())
            }
            Value::String(text) => Value::String(self.fold(text)),
            Value::Object(fields) => self.normal_object(fields, managed),
            other => other.clone(),
        }
    }

    fn normal_object(&self, fields: &Map<String, Value>, managed: bool) -> Value {
        let fields = shape::plain(fields);
        let mut out = Map::new();
        for (key, item) in fields.iter() {
            let dropped = matches!(key.as_str(), "storageVersionHash" | "storageVersionHashes")
                || (key == "managedFields" && !managed)
                || (key == "continue" && item == "");
            if dropped {
                continue;
            }
            let mut plain = match (key.as_str(), item) {
                ("resourceVersion", Value::String(text)) if is_revision(text) => {
                    Value::String(if fields.contains_key("name") {
                        self.revision(text)
                    } else {
                        "<rv>".to_owned()
                    })
                }
                ("continue", Value::String(_)) => Value::String("<continue>".to_owned()),
                _ => self.normal(item, managed),
            };
            if matches!(key.as_str(), "causes" | "managedFields")
                && let Value::Array(items) = &mut plain
            {
                items.sort_by_cached_key(Value::to_string);
                items.dedup();
            }
            out.insert(self.fold(key), plain);
        }
        Value::Object(out)
    }
}

fn is_revision(text: &str) -> bool {
    !text.is_empty() && text != "0" && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        let mut scope = Scope::new().unwrap();
        scope.set("ns", json!("demo-x1y2z"));
        scope.set("rv1", json!("1234"));
        scope.set("n", json!(7));
        scope
    }

    #[test]
    fn references_are_filled_and_folded_back() {
        let filled = scope().fill(&json!({"a": "/n/${ns}/x", "b": "${n}", "${ns}": ["n=${n}"]})).unwrap();
        assert_eq!(filled, json!({"a": "/n/demo-x1y2z/x", "b": 7, "demo-x1y2z": ["n=7"]}));
        assert_eq!(scope().fold("in demo-x1y2z"), "in ${ns}");
        assert!(scope().fill(&json!("${nothing}")).is_err());
        let text = r#"{"b": "${n}", "a": "x ${n} ${ns}"}"#;
        assert_eq!(scope().fill_json(text).unwrap(), r#"{"b": 7, "a": "x 7 demo-x1y2z"}"#);
    }

    #[test]
    fn volatile_values_become_placeholders() {
        let scope = scope();
        let value = json!({"metadata": {"name": "a", "resourceVersion": "1234", "uid": "01234567-89ab-cdef-0123-456789abcdef",
            "managedFields": [1]}, "list": {"resourceVersion": "99", "continue": ""}, "other": {"name": "b", "resourceVersion": "98"}});
        assert_eq!(
            scope.normal(&value, false),
            json!({"metadata": {"name": "a", "resourceVersion": "${rv1}", "uid": "<uid>"},
                "list": {"resourceVersion": "<rv>"}, "other": {"name": "b", "resourceVersion": "<rv>"}})
        );
    }
}
