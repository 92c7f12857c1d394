//! Label and field selectors in their query-string form.

use std::borrow::Cow;
use std::collections::BTreeMap;

use neonvm_types::selector::{self, Requirement};
use serde::Deserialize;
use serde_json::Value;

use crate::head::metadata;
use crate::status::ApiError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
struct Labels<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

impl LabelSelector {
    #[cfg(test)]
    pub(crate) fn of(requirements: Vec<Requirement>) -> Self {
        Self { requirements }
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What must hold, in the order in which it was written.
    pub(crate) fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches_json(&self, json: &[u8]) -> bool {
        self.is_empty()
            || metadata::<Labels<'_>>(json)
                .is_ok_and(|own| self.matches_with(|key| own.labels.get(key).map(AsRef::as_ref)))
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = crate::object::meta(object).get("labels");
        self.matches_with(|key| labels.and_then(|map| map.get(key)).and_then(Value::as_str))
    }

    fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(&label))
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
        Ok(Self { requirements: selector::parse_request(text).map_err(ApiError::bad_request)? })
    }
}

/// The label selector of an object – `metav1.LabelSelector`, or the plain map of older kinds – in its query-string
/// form, sorted by label.
pub(crate) fn text_of(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let labels = if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
        selector.get("matchLabels")
    } else {
        Some(selector)
    };
    let mut terms: Vec<(&str, String)> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or(""))))
        .collect();
    for item in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = crate::object::text_at(item, "key");
        let mut values = crate::object::strings(item.get("values"));
        values.sort_unstable();
        let values = values.join(",");
        let term = match crate::object::text_at(item, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

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
        let mut parts = split_terms(text);
        parts.sort_unstable();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (path, value, equal) = split_term(part).ok_or_else(|| {
                ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            let value = unescape(value)?;
            // Nothing equal to nothing selects everything; a field without a name differs from nothing never.
            if !(path.is_empty() && value.is_empty()) {
                terms.push((path.to_owned(), value, equal));
            }
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

/// Splits at the first operator: `!=`, `==` or `=`.
fn split_term(part: &str) -> Option<(&str, &str, bool)> {
    let (path, rest) = part.split_at(part.find('=')?);
    if let Some(path) = path.strip_suffix('!') {
        return Some((path, rest.strip_prefix('=')?, false));
    }
    Some((path, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?, true))
}

fn unescape(value: &str) -> Result<String, ApiError> {
    let refused = |what: String| ApiError::bad_request(format!("invalid field selector: {what}"));
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => text.push(next),
                other => {
                    let shown = other.map(String::from).unwrap_or_default();
                    return Err(refused(format!("invalid escape sequence: \\{shown}")));
                }
            },
            ',' | '=' => return Err(refused(format!("unescaped character in value: {}", u32::from(c)))),
            other => text.push(other),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{FieldSelector, LabelSelector, text_of};

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
    #[test]
    fn faults_of_field_selectors_are_worded_as_by_a_real_server() {
        for (text, why) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().message, why, "{text}");
        }
        let terms = |text: &str| FieldSelector::parse(text).unwrap().terms;
        assert_eq!(
            terms("b!=2,a==1\\,x,"),
            [("a".into(), "1,x".into(), true), ("b".into(), "2".into(), false)]
        );
        assert_eq!(terms("a!b=c"), [("a!b".into(), "c".into(), true)]);
        assert_eq!(terms("="), []);
    }

    #[test]
    fn selectors_are_shown_sorted_by_label() {
        let selector = json!({ "matchLabels": { "z": "1", "b": "2" }, "matchExpressions": [
            { "key": "c", "operator": "In", "values": ["y", "x"] }, { "key": "a", "operator": "DoesNotExist" } ] });
        assert_eq!(text_of(Some(&selector)), "!a,b=2,c in (x,y),z=1");
        assert_eq!(text_of(Some(&json!({ "b": "2", "a": "1" }))), "a=1,b=2");
    }
}
