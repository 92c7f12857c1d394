//! The constraints of strings, numbers, lists and objects.

use serde_json::{Number, Value, json};

use super::super::{Constraints, JsonType, Schema, formats, pattern};
use super::values::Checker;
use crate::field::{FieldError, FieldReason};

/// Longest string that patterns and formats are run on, in bytes; request bodies are limited well below.
const MAX_TEXT: usize = 4 << 20;

/// Lists longer than this are not searched for duplicates (`uniqueItems`, which definitions may not use).
const MAX_UNIQUE: usize = 1000;

pub(super) fn string(checker: &mut Checker<'_>, constraints: &Constraints, value: &Value, text: &str) {
    checker.matched += 1;
    length_and_pattern(checker, constraints, value, text);
    if text.len() > MAX_TEXT {
        return;
    }
    if let Some(format) = &constraints.format {
        checker.matched += 1;
        if !formats::matches(format, text) {
            let what = format!("must be of type {format}: {text:?}");
            checker.complain(FieldReason::TypeInvalid, value, &what);
        }
    }
}

/// The first of these that is not kept.
fn length_and_pattern(checker: &mut Checker<'_>, constraints: &Constraints, value: &Value, text: &str) {
    if constraints.min_length.is_some() || constraints.max_length.is_some() {
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(max) = constraints.max_length.filter(|max| length > *max) {
            checker.errors.push(FieldError::too_long(checker.field(), max));
            return;
        }
        if let Some(min) = constraints.min_length.filter(|min| length < *min) {
            let what = format!("should be at least {min} chars long");
            checker.complain(FieldReason::Invalid, value, &what);
            return;
        }
    }
    if let Some(source) = constraints.pattern.as_ref().filter(|_| text.len() <= MAX_TEXT) {
        let compiled = constraints.pattern_cache.get_or_init(|| pattern::compile(source).ok());
        if compiled.as_ref().is_some_and(|regex| !regex.is_match(text)) {
            checker.complain(FieldReason::Invalid, value, &format!("should match '{source}'"));
        }
    }
}

pub(super) fn number(
    checker: &mut Checker<'_>,
    schema: &Schema,
    constraints: &Constraints,
    value: &Value,
    number: &Number,
    typed: bool,
) {
    checker.matched += 1;
    if typed && let Some((kind, format)) = out_of_format(schema, constraints, number) {
        let name = checker.name.clone();
        checker.text(&format!("Checked value must be of type {kind} with format {format} in {name}"));
    }
    let Some(amount) = number.as_f64() else { return };
    if let Some(of) = constraints.multiple_of
        && !is_multiple(number, amount, of)
    {
        let what = format!("should be a multiple of {of}");
        checker.complain(FieldReason::Invalid, value, &what);
    }
    if let Some(max) = constraints.maximum {
        let exclusive = constraints.exclusive_maximum;
        if amount > max || (exclusive && amount >= max) {
            let relation = if exclusive { "less than" } else { "less than or equal to" };
            let what = format!("should be {relation} {max}");
            checker.complain(FieldReason::Invalid, value, &what);
        }
    }
    if let Some(min) = constraints.minimum {
        let exclusive = constraints.exclusive_minimum;
        if amount < min || (exclusive && amount <= min) {
            let relation = if exclusive { "greater than" } else { "greater than or equal to" };
            let what = format!("should be {relation} {min}");
            checker.complain(FieldReason::Invalid, value, &what);
        }
    }
}

/// Type and format of a number that the format has no room for.
fn out_of_format<'a>(
    schema: &Schema,
    constraints: &'a Constraints,
    number: &Number,
) -> Option<(&'static str, &'a str)> {
    let format = constraints.format.as_deref()?;
    let whole = number.as_i64();
    match (schema.json_type, format) {
        (JsonType::Integer, "int32") if whole.is_none_or(|whole| i32::try_from(whole).is_err()) => {
            Some(("integer", format))
        }
        (JsonType::Integer, "uint32") if whole.is_none_or(|whole| u32::try_from(whole).is_err()) => {
            Some(("integer", format))
        }
        (JsonType::Integer, "uint64") if number.as_u64().is_none() => Some(("integer", format)),
        (JsonType::Integer, "int64") if whole.is_none() => Some(("integer", format)),
        (JsonType::Number, "float" | "float32")
            if number.as_f64().is_some_and(|float| float.abs() > f64::from(f32::MAX)) =>
        {
            Some(("number", format))
        }
        _ => None,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "whole and below 9e15 when it is cast")]
fn is_multiple(number: &Number, amount: f64, of: f64) -> bool {
    if of <= 0.0 {
        return true;
    }
    if let Some(whole) = number.as_i64()
        && of.fract() == 0.0
        && of < 9.0e15
    {
        return whole % (of as i64) == 0;
    }
    (amount / of).fract() == 0.0
}

pub(super) fn array(checker: &mut Checker<'_>, constraints: &Constraints, items: &[Value]) {
    checker.matched += 1;
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    if let Some(min) = constraints.min_items.filter(|min| count < *min) {
        checker.complain(FieldReason::Invalid, &json!(count), &format!("should have at least {min} items"));
    }
    if let Some(max) = constraints.max_items.filter(|max| count > *max) {
        checker.errors.push(FieldError::too_many(checker.field(), items.len(), max));
    }
    if constraints.unique_items
        && items.len() <= MAX_UNIQUE
        && items.iter().enumerate().any(|(at, item)| items.iter().skip(at + 1).any(|other| same(item, other)))
    {
        checker.complain(FieldReason::Invalid, &json!(""), "shouldn't contain duplicates");
    }
}

pub(super) fn object(checker: &mut Checker<'_>, constraints: &Constraints, size: usize) {
    checker.matched += 1;
    let count = u64::try_from(size).unwrap_or(u64::MAX);
    if let Some(min) = constraints.min_properties.filter(|min| count < *min) {
        checker.complain(
            FieldReason::Invalid,
            &json!(count),
            &format!("should have at least {min} properties"),
        );
    }
    if let Some(max) = constraints.max_properties.filter(|max| count > *max) {
        checker.errors.push(FieldError::too_many(checker.field(), size, max));
    }
}

/// JSON equality in which `1` equals `1.0`.
#[allow(clippy::float_cmp, reason = "equality of JSON numbers is exact")]
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || (x.as_f64() == y.as_f64() && (x.is_f64() || y.is_f64()))
        }
        _ => a == b,
    }
}

/// How a permitted value is listed.
pub(super) fn enum_name(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
