//! Printer columns, subresources and selectable fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{at, list, text};
use crate::field::{FieldError, FieldReason};
use crate::schema::{JsonType, Schema, parse};

const NOT_SIMPLE: &str = "must be a simple json path starting with .";

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
    let shared = places(spec, "schema").first().is_some_and(|(place, _)| place == "spec");
    for (place, version) in places(spec, "selectableFields") {
        let has_schema = at(version, &["schema"]).is_object() && shared == (place == "spec");
        selectable_fields(version, has_schema, &format!("{place}.selectableFields"), errors);
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
            errors.push(FieldError::invalid(field, &json!(value), NOT_SIMPLE));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(field, &json!(value), detail));
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
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(kind), &one_of(&TYPES)));
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format.as_str()) {
        errors.push(FieldError::invalid(format!("{path}.format"), &json!(format), &one_of(&FORMATS)));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), &json!(json_path), NOT_SIMPLE));
    }
}

/// Fields that a client may select by, at most eight different ones.
fn selectable_fields(version: &Value, has_schema: bool, path: &str, errors: &mut Vec<FieldError>) {
    const MOST: usize = 8;
    let fields = list(version, "selectableFields");
    if fields.is_empty() {
        return;
    }
    if !has_schema {
        let detail = if path.starts_with("spec.versions") {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        } else {
            "may only be set when validations.schema is included"
        };
        errors.push(FieldError::invalid(path, &json!(""), detail));
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
        let kind = match leaf(&schema, &json_path) {
            Ok(kind) => kind,
            Err(why) => {
                errors.push(FieldError::invalid(place, &value, &format!("is an invalid path: {why}")));
                continue;
            }
        };
        if json_path.starts_with(".metadata.") || json_path == ".metadata" {
            errors.push(FieldError::invalid(place.clone(), &value, "must not point to fields in metadata"));
        }
        if !matches!(kind, JsonType::String | JsonType::Boolean | JsonType::Integer) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(place.clone(), &value, detail));
        }
        if !seen.insert(json_path) {
            errors.push(FieldError::with_value(FieldReason::Duplicate, place, &value, ""));
        }
    }
    if seen.len() > MOST {
        errors.push(FieldError::too_many(path, seen.len(), MOST as u64));
    }
}

/// The type of the field at a path of names, each after a dot.
fn leaf(schema: &Schema, path: &str) -> Result<JsonType, String> {
    const NOWHERE: &str = "does not refer to a valid field";
    let mut rest = path;
    let mut node = schema;
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".to_owned());
        }
        let Some(after) = rest.strip_prefix('.') else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", rest.get(..end).unwrap_or(rest)));
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let end = after.find(['.', '[', ']']).map_or(after.len(), |end| end.max(1));
        let (name, left) = after.split_at_checked(end).ok_or(NOWHERE)?;
        rest = left;
        let next =
            if node.properties.is_empty() { node.additional.as_ref() } else { node.properties.get(name) };
        node = next.ok_or(NOWHERE)?.as_schema();
    }
    Ok(node.json_type)
}
