//! Comparing what was seen with what was recorded.

use regex::Regex;
use serde_json::Value;

/// Stands for a field that is not there.
pub(crate) const ABSENT: &str = "<absent>";
/// Stands for any value that is there.
pub(crate) const ANY: &str = "<any>";

/// Subset match: objects by key, lists as a subsequence, `~regex` by search.
pub(crate) fn contains(actual: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => actual.as_object().is_some_and(|actual| {
            fields.iter().all(|(key, item)| match actual.get(key) {
                None => item == ABSENT,
                Some(have) => item != ABSENT && contains(have, item),
            })
        }),
        Value::Array(items) => {
            let mut rest = actual.as_array().map_or(&[][..], Vec::as_slice).iter();
            items.iter().all(|want| rest.any(|item| contains(item, want)))
        }
        Value::String(text) if text.starts_with('~') => {
            let pattern = text.get(1..).and_then(|pattern| Regex::new(pattern).ok());
            actual.as_str().is_some_and(|actual| pattern.is_some_and(|pattern| pattern.is_match(actual)))
        }
        _ => wanted == ANY || equal(actual, wanted),
    }
}

/// Equality that keeps true apart from 1 and takes 2.0 for 2.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, item)| right.get(key).is_some_and(|other| equal(item, other)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

/// `actual`, with what a placeholder in `expected` allows replaced by that placeholder.
pub(crate) fn blend(expected: &Value, actual: &Value) -> Value {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => Value::Object(
            actual
                .iter()
                .map(|(key, item)| (key.clone(), blend(expected.get(key).unwrap_or(&Value::Null), item)))
                .collect(),
        ),
        (Value::Array(expected), Value::Array(actual)) => Value::Array(
            actual
                .iter()
                .enumerate()
                .map(|(index, item)| blend(expected.get(index).unwrap_or(&Value::Null), item))
                .collect(),
        ),
        (Value::String(mark), _)
            if (mark == ANY && actual != ABSENT) || (mark.starts_with('~') && contains(actual, expected)) =>
        {
            expected.clone()
        }
        _ => actual.clone(),
    }
}

/// A unified difference of two values, texts line by line.
pub(crate) fn difference(expected: &Value, actual: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => format!("{text}\n"),
        other => serde_json::to_string_pretty(other).unwrap_or_default() + "\n",
    };
    let (expected, actual) = (text(expected), text(actual));
    similar::TextDiff::from_lines(&expected, &actual)
        .unified_diff()
        .context_radius(2)
        .to_string()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subset_match() {
        let actual = json!({"a": [1, 2, 3], "b": {"c": "hello"}});
        assert!(contains(&actual, &json!({"a": [1, 3], "b": {"c": "~^h", "d": ABSENT}})));
        assert!(!contains(&actual, &json!({"a": [3, 1]})));
        assert!(!contains(&actual, &json!({"b": {"c": ABSENT}})));
        assert!(contains(&actual, &json!({"b": ANY})));
    }

    #[test]
    fn placeholders_take_the_place_of_what_they_allow() {
        let expected = json!({"a": ANY, "b": "~^x", "c": 2, "d": [ANY]});
        let actual = json!({"a": 5, "b": "xy", "c": 2.0, "d": [1, 2]});
        assert_eq!(blend(&expected, &actual), json!({"a": ANY, "b": "~^x", "c": 2.0, "d": [ANY, 2]}));
        assert!(equal(&json!(2), &json!(2.0)));
        assert!(!equal(&json!(true), &json!(1)));
    }
}
