//! Paths into a JSON value: `a.b[0]`, `a["x.y/z"]`, `a[name=x].b`, `a[*].b`.

use std::sync::LazyLock;

use anyhow::bail;
use regex::Regex;
use serde_json::Value;

use crate::value::ABSENT;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Key(String),
    Index(usize),
    All,
    Item { field: String, value: String },
}

/// The expression is a literal; a test would see it fail.
static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"^\.?(?:\["(?P<quoted>[^"]+)"\]|\[(?P<index>\d+)\]|(?P<all>\[\*\])"#,
        r"|\[(?P<field>[^\]=]+)=(?P<value>[^\]]*)\]|(?P<key>[^.\[\]]+))"
    ))
    .ok()
});

fn tokens(path: &str) -> anyhow::Result<Vec<Token>> {
    let mut out = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let Some(found) = TOKEN.as_ref().and_then(|token| token.captures(rest)) else {
            bail!("bad path {path:?}")
        };
        let group = |name: &str| found.name(name).map(|m| m.as_str().to_owned());
        out.push(if let Some(key) = group("quoted").or_else(|| group("key")) {
            Token::Key(key)
        } else if let Some(index) = group("index") {
            Token::Index(index.parse()?)
        } else if let Some((field, value)) = group("field").zip(group("value")) {
            Token::Item { field, value }
        } else {
            Token::All
        });
        rest = found.get(0).and_then(|m| rest.get(m.end()..)).unwrap_or_default();
    }
    Ok(out)
}

fn absent() -> Value {
    Value::String(ABSENT.to_owned())
}

/// The value at a path, or the marker of absence.
pub(crate) fn lookup(value: &Value, path: &str) -> anyhow::Result<Value> {
    Ok(find(value, &tokens(path)?))
}

fn find(value: &Value, tokens: &[Token]) -> Value {
    let Some((token, rest)) = tokens.split_first() else { return value.clone() };
    let below = match token {
        Token::Key(key) => value.get(key.as_str()),
        Token::Index(index) => value.as_array().and_then(|items| items.get(*index)),
        Token::All => {
            let Some(items) = value.as_array() else { return absent() };
            return Value::Array(items.iter().map(|item| find(item, rest)).collect());
        }
        Token::Item { field, value: wanted } => {
            value.as_array().and_then(|items| items.iter().find(|item| is(item, field, wanted)))
        }
    };
    below.map_or_else(absent, |below| find(below, rest))
}

fn is(item: &Value, field: &str, wanted: &str) -> bool {
    lookup(item, field).is_ok_and(|have| shown(&have) == wanted)
}

/// A scalar as a path writes it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Drops what a path names, where it exists; `[*]` goes into every item of a list.
pub(crate) fn remove(value: &mut Value, path: &str) -> anyhow::Result<()> {
    let tokens = tokens(path)?;
    drop_at(value, &tokens);
    Ok(())
}

fn drop_at(value: &mut Value, tokens: &[Token]) {
    let Some((token, rest)) = tokens.split_first() else { return };
    if let ([], Token::Key(key), Value::Object(fields)) = (rest, token, &mut *value) {
        fields.remove(key);
        return;
    }
    match token {
        Token::Key(key) => {
            if let Some(below) = value.get_mut(key.as_str()) {
                drop_at(below, rest);
            }
        }
        Token::Index(index) => {
            if let Some(below) = value.get_mut(*index) {
                drop_at(below, rest);
            }
        }
        Token::All => value.as_array_mut().into_iter().flatten().for_each(|item| drop_at(item, rest)),
        Token::Item { field, value: wanted } => {
            let items = value.as_array_mut().into_iter().flatten();
            let mut found = items.filter(|item| is(item, field, wanted));
            if let Some(item) = found.next() {
                drop_at(item, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_a_path_is_followed() {
        let value =
            json!({"a": [{"name": "x", "b": 1}, {"name": "y"}], "l": {"x.y/z": true}, "p": [{"port": 80}]});
        let at = |path: &str| lookup(&value, path).unwrap();
        assert_eq!(at("a[0].b"), json!(1));
        assert_eq!(at("a[name=y].name"), json!("y"));
        assert_eq!(at("p[port=80].port"), json!(80));
        assert_eq!(lookup(&json!([{"m": {"n": "x"}, "v": 1}]), "[m.n=x].v").unwrap(), json!(1));
        assert_eq!(at("a[*].b"), json!([1, ABSENT]));
        assert_eq!(at("l[\"x.y/z\"]"), json!(true));
        assert_eq!(at("a[7].b"), json!(ABSENT));
        assert!(lookup(&value, "a[").is_err());
    }

    #[test]
    fn removal_goes_into_every_item() {
        let mut value = json!({"a": [{"b": 1, "c": 2}, {"b": 3}], "d": {"e": 1}});
        remove(&mut value, "a[*].b").unwrap();
        remove(&mut value, "d.e").unwrap();
        remove(&mut value, "nothing.here").unwrap();
        assert_eq!(value, json!({"a": [{"c": 2}, {}], "d": {}}));
    }
}
