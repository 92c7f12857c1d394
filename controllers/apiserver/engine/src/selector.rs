//! Label and field selectors in their query-string form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;

use crate::status::ApiError;

/// One label requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A parsed label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// Labels of an object without parsing the rest of it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    metadata: HeadMeta<'a>,
}

#[derive(Default, Deserialize)]
struct HeadMeta<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

impl LabelSelector {
    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels of the object in `json` match.
    pub fn matches_json(&self, json: &[u8]) -> bool {
        self.is_empty()
            || serde_json::from_slice::<Head<'_>>(json)
                .is_ok_and(|head| self.matches_with(|key| head.metadata.labels.get(key).map(AsRef::as_ref)))
    }

    /// Whether the labels of `object` match.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = crate::object::meta(object).get("labels");
        self.matches_with(|key| labels.and_then(|map| map.get(key)).and_then(Value::as_str))
    }

    fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::Greater(key, bound) => number(label(key)).is_some_and(|n| n > *bound),
            Requirement::Less(key, bound) => number(label(key)).is_some_and(|n| n < *bound),
        })
    }

    /// The selector of a `metav1.LabelSelector` value (`matchLabels`, `matchExpressions`). `null` matches nothing
    /// in Kubernetes; callers decide that before.
    pub fn from_object(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            requirements.push(Requirement::In(key.clone(), vec![value.as_str().unwrap_or("").to_owned()]));
        }
        for item in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = item.get("key").and_then(Value::as_str).unwrap_or("").to_owned();
            let values: Vec<String> =
                crate::object::strings(item.get("values")).into_iter().map(str::to_owned).collect();
            requirements.push(match item.get("operator").and_then(Value::as_str).unwrap_or("") {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                _ => Requirement::Missing(key),
            });
        }
        Self { requirements }
    }

    /// Parses `a=b,c!=d,e in (f,g),h,!i,j>1`.
    ///
    /// # Errors
    /// 400 with the wording of the real server's parser.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser { rest: text, at: 0 };
        let mut requirements = Vec::new();
        parser.space();
        while !parser.rest.is_empty() {
            requirements.push(parser.requirement().map_err(unreadable)?);
            parser.space();
            if parser.rest.is_empty() {
                break;
            }
            if !parser.eat(",") {
                return Err(unreadable(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    parser.token()
                )));
            }
            parser.space();
            if parser.rest.is_empty() {
                return Err(unreadable("found '', expected: identifier after ','"));
            }
        }
        Ok(Self { requirements })
    }
}

fn unreadable(why: impl Display) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {why}"))
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

struct Parser<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                self.at += token.len();
                true
            }
            None => false,
        }
    }

    /// The next token as the error texts show it.
    fn token(&self) -> &'a str {
        let end = self.rest.find(|c: char| ",()=!<> \t".contains(c)).unwrap_or(self.rest.len());
        let end = if end == 0 { self.rest.chars().next().map_or(0, char::len_utf8) } else { end };
        self.rest.get(..end).unwrap_or("")
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| ",()=!<> \t\r\n".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.eat("!");
        self.space();
        let key = self.word();
        if key.is_empty() {
            let expected = if negated { "identifier" } else { "!, identifier, or 'end of string'" };
            return Err(format!("found '{}', expected: {expected}", self.token()));
        }
        check_key(key)?;
        let key = key.to_owned();
        self.space();
        if negated {
            return Ok(Requirement::Missing(key));
        }
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(Requirement::Exists(key));
        }
        self.operator(key)
    }

    fn operator(&mut self, key: String) -> Result<Requirement, String> {
        if self.eat("!=") {
            return Ok(Requirement::NotIn(key, vec![self.value()?]));
        }
        if self.eat("==") || self.eat("=") {
            return Ok(Requirement::In(key, vec![self.value()?]));
        }
        if self.eat(">") {
            return self.bound().map(|n| Requirement::Greater(key, n));
        }
        if self.eat("<") {
            return self.bound().map(|n| Requirement::Less(key, n));
        }
        let shown = self.token();
        match self.word() {
            "in" => self.set().map(|values| Requirement::In(key, values)),
            "notin" => self.set().map(|values| Requirement::NotIn(key, values)),
            _ => Err(format!("found '{shown}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn value(&mut self) -> Result<String, String> {
        self.space();
        let value = self.word();
        check_value(value)?;
        Ok(value.to_owned())
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        self.space();
        if !self.eat("(") {
            return Err(format!("found '{}' expected: '('", self.token()));
        }
        self.space();
        if self.eat(")") {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned());
        }
        if self.rest.is_empty() || self.rest.starts_with(['(', '=', '!', '<', '>']) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.token()));
        }
        let mut values = self.values()?;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// What stands between the parentheses, and the closing one. Nothing before, between or after commas is an
    /// empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            self.space();
            if self.eat(",") {
                if values.is_empty() {
                    values.push(String::new());
                }
                self.space();
                if self.eat(")") {
                    values.push(String::new());
                    return Ok(values);
                }
                if self.rest.starts_with(',') {
                    values.push(String::new());
                }
                continue;
            }
            let value = self.value()?;
            if value.is_empty() {
                return Err(format!("found '{}', expected: ',', or identifier", self.token()));
            }
            values.push(value);
            self.space();
            if self.eat(")") {
                return Ok(values);
            }
            if !self.rest.starts_with(',') {
                return Err(format!("found '{}', expected: ',' or ')'", self.token()));
            }
        }
    }
}

const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label_word(text: &str) -> bool {
    let inner = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    inner && ends(text.chars().next()) && ends(text.chars().next_back())
}

fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    if !is_label_word(name) {
        return Err(format!("<nil>: Invalid value: {key:?}: {NAME_RULE}"));
    }
    if name.len() > 63 {
        return Err(format!("<nil>: Invalid value: {key:?}: name part must be no more than 63 bytes"));
    }
    Ok(())
}

fn check_value(value: &str) -> Result<(), String> {
    if value.len() > 63 {
        return Err(format!("values[0]: Invalid value: {value:?}: must be no more than 63 bytes"));
    }
    if !value.is_empty() && !is_label_word(value) {
        return Err(format!("values[0]: Invalid value: {value:?}: {VALUE_RULE}"));
    }
    Ok(())
}

/// The label selector of an object – `metav1.LabelSelector`, or the plain map of older kinds – in its query-string form.
pub(crate) fn text_of(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let labels = if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
        selector.get("matchLabels")
    } else {
        Some(selector)
    };
    let mut terms: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    for item in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = crate::object::text_at(item, "key");
        let values = crate::object::strings(item.get("values")).join(",");
        terms.push(match crate::object::text_at(item, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    terms.join(",")
}

/// A parsed field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Path, wanted value, whether it must be equal (otherwise: differ).
    pub terms: Vec<(String, String, bool)>,
}

impl FieldSelector {
    /// Parses `a=b,c!=d` with `\,`, `\=` and `\\` as escapes.
    ///
    /// # Errors
    /// 400 with the wording of the real server's parser.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let (path, value, equal) = split_term(part).ok_or_else(|| {
                ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            terms.push((path.to_owned(), unescape(value, text)?, equal));
        }
        Ok(Self { terms })
    }

    /// The value a term fixes `path` to.
    pub fn fixed(&self, path: &str) -> Option<&str> {
        self.terms.iter().find(|(p, _, equal)| p == path && *equal).map(|(_, value, _)| value.as_str())
    }

    /// Whether `field(path)` satisfies all terms.
    pub fn matches(&self, field: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|(path, wanted, equal)| (field(path) == *wanted) == *equal)
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(from..));
    parts
}

fn split_term(part: &str) -> Option<(&str, &str, bool)> {
    let at = part.find(['=', '!'])?;
    let (path, rest) = part.split_at(at);
    let (value, equal) = if let Some(value) = rest.strip_prefix("!=") {
        (value, false)
    } else {
        (rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?, true)
    };
    Some((path, value, equal))
}

fn unescape(value: &str, whole: &str) -> Result<String, ApiError> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => text.push(next),
                other => {
                    let shown = other.map(String::from).unwrap_or_default();
                    return Err(ApiError::bad_request(format!(
                        "invalid field selector: invalid escape sequence: \\{shown}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{whole}'; can't understand '{value}'"
                )));
            }
            other => text.push(other),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::LabelSelector;

    #[track_caller]
    fn refused(text: &str, why: &str) {
        let error = LabelSelector::parse(text).unwrap_err();
        assert_eq!(error.message, format!("unable to parse requirement: {why}"));
    }

    #[test]
    fn faults_of_sets_are_worded_as_by_a_real_server() {
        refused("a in (", "found '', expected: ',', ')' or identifier");
        refused("a in x", "found 'x' expected: '('");
        refused("a in (x", "found '', expected: ',' or ')'");
        refused("a in (x y)", "found 'y', expected: ',' or ')'");
        refused("a in (x,", "found '', expected: ',', or identifier");
        refused(
            "a in ()",
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        );
    }

    #[test]
    fn sets_match_their_values() {
        let object = |value: &str| json!({ "metadata": { "labels": { "a": value } } });
        for (text, hits, misses) in [
            ("a in (x, y)", vec!["x", "y"], vec!["", "z"]),
            ("a in (,x)", vec!["", "x"], vec!["y"]),
            ("a in (x,)", vec!["", "x"], vec!["y"]),
            ("a in (x,,y)", vec!["", "x", "y"], vec!["z"]),
            ("a notin (x),a", vec!["y", ""], vec!["x"]),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert!(hits.iter().all(|value| selector.matches(&object(value))), "{text}");
            assert!(!misses.iter().any(|value| selector.matches(&object(value))), "{text}");
        }
    }
}
