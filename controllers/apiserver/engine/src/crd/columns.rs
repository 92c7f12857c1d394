//! Printer columns, subresources and selectable fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{at, list, text};
use crate::field::{FieldError, FieldReason};
use crate::schema::{JsonType, Schema, parse};

/// Checks the fields of every version other than its schema.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    for (place, version) in places(spec, "subresources") {
        subresources(at(version, &["subresources"]), &format!("{place}.subresources"), errors);
    }
    for (place, version) in places(spec, "additionalPrinterColumns") {
        for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
            printer_column(column, &format!("{place}.additionalPrinterColumns[{index}]"), errors);
        }
    }
    for (place, version) in places(spec, "selectableFields") {
        selectable_fields(version, &format!("{place}.selectableFields"), errors);
    }
}

/// Where the values under `key` are reported: once at `spec` if all versions agree, else at each version.
pub(super) fn places<'a>(spec: &'a Value, key: &str) -> Vec<(String, &'a Value)> {
    let versions = list(spec, "versions");
    let mut values = versions.iter().map(|version| at(version, &[key]));
    let first = values.next().unwrap_or(&Value::Null);
    if values.all(|value| value == first) {
        return versions.first().map(|version| ("spec".to_owned(), version)).into_iter().collect();
    }
    versions.iter().enumerate().map(|(index, version)| (format!("spec.versions[{index}]"), version)).collect()
}

fn subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = at(subresources, &["scale"]);
    if !scale.is_object() {
        return;
    }
    let places = [
        ("specReplicasPath", true, [".spec."].as_slice(), "should be a json path under .spec"),
        ("statusReplicasPath", true, [".status."].as_slice(), "should be a json path under .status"),
        (
            "labelSelectorPath",
            false,
            [".spec.", ".status."].as_slice(),
            "should be a json path under either .spec or .status",
        ),
    ];
    for (key, required, roots, detail) in places {
        let field = format!("{path}.scale.{key}");
        let value = text(scale, key);
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(field, ""));
            }
            continue;
        }
        if !is_simple_path(&value) {
            errors.push(FieldError::invalid(field, &json!(value), "must be a simple json path"));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(field, &json!(value), detail));
        }
    }
}

/// `.a.b`, without array notation.
fn is_simple_path(path: &str) -> bool {
    path.strip_prefix('.').is_some_and(|rest| {
        rest.split('.')
            .all(|name| !name.is_empty() && !name.contains(['[', ']', '*', '?', '@', '{', '}', ' ']))
    })
}

fn printer_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let one_of = |names: &[&str]| format!("must be one of {}", names.join(","));
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let kind = text(column, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), &one_of(&TYPES)));
    } else if !TYPES.contains(&kind.as_str()) {
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(kind), &one_of(&TYPES)));
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format.as_str()) {
        errors.push(FieldError::invalid(format!("{path}.format"), &json!(format), &one_of(&FORMATS)));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if !is_json_path(&json_path) {
        let detail = "must be a valid json path";
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), &json!(json_path), detail));
    }
}

/// A path with array notation and filters: brackets and quotes close.
fn is_json_path(path: &str) -> bool {
    if !path.starts_with(['.', '[']) {
        return false;
    }
    let (mut depth, mut quote) = (0_i32, None);
    for c in path.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0 && quote.is_none()
}

fn selectable_fields(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const MOST: u64 = 8;
    let fields = list(version, "selectableFields");
    if fields.is_empty() {
        return;
    }
    let schema = parse::fragment(at(version, &["schema", "openAPIV3Schema"]));
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{path}[{index}].jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let value = json!(json_path);
        if !is_simple_path(&json_path) {
            errors.push(FieldError::invalid(place, &value, "is an invalid path: must be a simple json path"));
            continue;
        }
        if json_path.starts_with(".metadata.") || json_path == ".metadata" {
            errors.push(FieldError::invalid(place, &value, "must not point to fields in metadata"));
            continue;
        }
        match leaf(&schema, &json_path) {
            None => errors.push(FieldError::invalid(
                place.clone(),
                &value,
                "is an invalid path: does not refer to a valid field",
            )),
            Some(JsonType::String | JsonType::Boolean | JsonType::Integer) => {}
            Some(_) => errors.push(FieldError::invalid(
                place.clone(),
                &value,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            )),
        }
        if !seen.insert(json_path) {
            errors.push(FieldError::with_value(FieldReason::Duplicate, place, &value, ""));
        }
    }
    if u64::try_from(fields.len()).is_ok_and(|count| count > MOST) {
        errors.push(FieldError::too_many(path, fields.len(), MOST));
    }
}

fn leaf(schema: &Schema, path: &str) -> Option<JsonType> {
    let mut names = path.trim_start_matches('.').split('.');
    let first = schema.properties.get(names.next()?)?;
    let found = names.try_fold(first, |node, name| node.properties.get(name))?;
    Some(found.json_type)
}
