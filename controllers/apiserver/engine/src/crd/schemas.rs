//! The `openAPIV3Schema` of each version: it must be there, and be structural.

use serde_json::{Value, json};

use super::columns::places;
use super::structure::Checker;
use super::{at, list, text};
use crate::field::FieldError;
use crate::schema::parse;

/// Checks the schemas of all versions; one that all share is reported under `spec.validation`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut missing = false;
    for (index, version) in list(spec, "versions").iter().enumerate() {
        if !at(version, &["schema", "openAPIV3Schema"]).is_object() {
            missing = true;
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    if missing {
        return;
    }
    for (place, version) in places(spec, "schema") {
        let field = if place == "spec" { "validation" } else { "schema" };
        root(
            at(version, &["schema", "openAPIV3Schema"]),
            &format!("{place}.{field}.openAPIV3Schema"),
            errors,
        );
    }
}

fn root(document: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let schema = match parse::custom(document) {
        Ok(schema) => schema,
        Err(found) => {
            errors.extend(found.into_iter().map(|error| FieldError { field: path.to_owned(), ..error }));
            return;
        }
    };
    let kind = text(document, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), "must not be empty at the root"));
    } else if kind != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(kind), "must be object at the root"));
    }
    if at(document, &["nullable"]) == true {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    metadata(at(document, &["properties"]), path, errors);
    let mut checker = Checker { errors, path: path.to_owned(), uncorrelatable: None };
    checker.node(document, &schema, true);
}

/// Checks what a definition declares for `apiVersion`, `kind` and `metadata`.
fn metadata(properties: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (key, want) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        let Some(document) = properties.get(key) else { continue };
        let kind = text(document, "type");
        if kind != want {
            let detail = format!("must be {want}");
            errors.push(FieldError::invalid(format!("{path}.properties[{key}].type"), &json!(kind), &detail));
        }
    }
    let named = at(properties, &["metadata", "properties"]).as_object();
    if named.is_some_and(|fields| fields.keys().any(|key| !matches!(key.as_str(), "name" | "generateName"))) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}
