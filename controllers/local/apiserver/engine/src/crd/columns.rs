//! Printer columns, subresources and selectable fields.

use serde_json::Value;

use super::{at, list, text};
use crate::field::FieldError;
use crate::schema::{JsonType, Schema, parse};

const NOT_SIMPLE: &str = "must be a simple json path starting with .";

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
        if !value.starts_with('.') {
            errors.push(FieldError::invalid(field, &value, NOT_SIMPLE));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(field, &value, detail));
        }
    }
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
        errors.push(FieldError::invalid(format!("{path}.type"), &kind, &one_of(&TYPES)));
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format.as_str()) {
        errors.push(FieldError::invalid(format!("{path}.format"), &format, &one_of(&FORMATS)));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), &json_path, NOT_SIMPLE));
    }
}

fn selectable_fields(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let schema = parse::fragment(at(version, &["schema", "openAPIV3Schema"]));
    for (index, field) in list(version, "selectableFields").iter().enumerate() {
        let place = format!("{path}[{index}].jsonPath");
        let json_path = text(field, "jsonPath");
        let before = list(version, "selectableFields").iter().take(index);
        if before.into_iter().any(|other| text(other, "jsonPath") == json_path) {
            errors.push(FieldError::duplicate(place.clone(), &json_path));
        }
        if json_path.is_empty() {
            errors.push(FieldError::required(place, ""));
        } else if !is_scalar(&schema, &json_path) {
            let detail = "must point to a field of type string, boolean or integer";
            errors.push(FieldError::invalid(place, &json_path, detail));
        }
    }
}

/// Whether a path of names, each after a dot, leads to a text, a flag or a number.
fn is_scalar(schema: &Schema, path: &str) -> bool {
    let Some(names) = path.strip_prefix('.') else { return false };
    let found = names.split('.').try_fold(schema, |node, name| Some(node.properties.get(name)?.as_schema()));
    found.is_some_and(|node| {
        matches!(node.json_type, JsonType::String | JsonType::Boolean | JsonType::Integer)
    })
}
