//! The part of kubectl's JSONPath templates that scripts use: paths of [`JsonPath`] in braces, texts, `{"\n"}`,
//! `{range .items[*]}…{end}`. Anything else is refused, not guessed.

use neonvm_types::jsonpath::JsonPath;
use serde_json::Value;

use crate::error::{Code, Error, Result};

/// Nested ranges.
const MAX_DEPTH: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Path(JsonPath),
    Range(JsonPath, Vec<Part>),
}

fn bad(text: &str, why: &str) -> Error {
    Error::new(Code::Usage, format!("cannot read the path {text:?}: {why}")).hint(
        "supported are {.a.b}, {.a[0]}, {.a[1:3]}, {.items[*].name}, {\"\\n\"} and {range .items[*]}...{end}",
    )
}

impl Expression {
    /// Reads a template; a path may stand without braces.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if !text.contains('{') {
            return Ok(Self(vec![Part::Path(path(text)?)]));
        }
        let mut rest = text;
        let parts = parts(text, &mut rest, 0)?;
        Ok(Self(parts))
    }

    /// What it selects, values of one path separated by spaces.
    pub(super) fn text(&self, value: &Value) -> String {
        let mut out = String::new();
        write(&self.0, value, &mut out);
        out
    }
}

/// Reads parts until the end, or until `{end}` inside of a range.
fn parts(text: &str, rest: &mut &str, depth: usize) -> Result<Vec<Part>> {
    if depth > MAX_DEPTH {
        return Err(bad(text, "ranges are nested too deeply"));
    }
    let mut out = Vec::new();
    while !rest.is_empty() {
        let Some((before, after)) = rest.split_once('{') else {
            out.push(Part::Text((*rest).to_owned()));
            *rest = "";
            break;
        };
        if !before.is_empty() {
            out.push(Part::Text(before.to_owned()));
        }
        let (inside, after) = closed(after).ok_or_else(|| bad(text, "a brace is not closed"))?;
        *rest = after;
        let inside = inside.trim();
        if inside == "end" {
            return if depth > 0 { Ok(out) } else { Err(bad(text, "end without range")) };
        }
        if let Some(items) = inside.strip_prefix("range ") {
            let items = path(items.trim())?;
            out.push(Part::Range(items, parts(text, rest, depth + 1)?));
        } else if inside.starts_with('"') || inside.starts_with('\'') {
            let quoted = literal(inside).ok_or_else(|| bad(text, "a string is not closed"))?;
            out.push(Part::Text(quoted));
        } else {
            out.push(Part::Path(path(inside)?));
        }
    }
    if depth > 0 { Err(bad(text, "a range without end")) } else { Ok(out) }
}

/// What stands before the closing brace, which does not count inside of a text.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open && !escaped => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '}' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn literal(quoted: &str) -> Option<String> {
    let quote = quoted.chars().next()?;
    let inside = quoted.get(1..)?.strip_suffix(quote)?;
    Some(inside.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\""))
}

fn path(text: &str) -> Result<JsonPath> {
    JsonPath::parse(text).map_err(|why| bad(text, why))
}

fn write(parts: &[Part], value: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let texts: Vec<String> = path.find(value).into_iter().map(shown).collect();
                out.push_str(&texts.join(" "));
            }
            Part::Range(items, inner) => {
                for item in items.find(value) {
                    write(inner, item, out);
                }
            }
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(expression: &str) -> String {
        let value = json!({"a": {"b": 1, "x.y": "z"}, "items": [{"n": "p"}, {"n": "q"}]});
        Expression::parse(expression).unwrap().text(&value)
    }

    #[test]
    fn what_scripts_use() {
        assert_eq!(text("{.a.b}"), "1");
        assert_eq!(text(".a.b"), "1");
        assert_eq!(text("{.a['x.y']}"), "z");
        assert_eq!(text("{.items[*].n}"), "p q");
        assert_eq!(text("{.items[-1].n}-{.items[0].n}"), "q-p");
        assert_eq!(text("{range .items[*]}{.n}{\"\\n\"}{end}"), "p\nq\n");
        assert_eq!(text("{.items[0:1].n} {.items[-1:].n}"), "p q");
        assert_eq!(text("{.nothing}"), "");
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for expression in ["{.a", "{end}", "{range .a}", "{..a}", "{.a[?(@.b)]}", "{.a[}", "{\"x}"] {
            assert_eq!(Expression::parse(expression).unwrap_err().code, Code::Usage, "{expression}");
        }
        assert!(Expression::parse(&"{range .a}".repeat(1000)).is_err());
    }
}
