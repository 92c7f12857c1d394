//! The `openAPIV3Schema` of each version: it must be there, and be structural.

use serde_json::Value;

use super::columns::places;
use super::{at, list, structural};
use crate::field::FieldError;
use crate::schema::validate::values;
use crate::schema::{MAX_DEPTH, Schema, parse, prune};

/// Checks the schemas of all versions; one that all share is reported under `spec.validation`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, version) in list(spec, "versions").iter().enumerate() {
        if !at(version, &["schema", "openAPIV3Schema"]).is_object() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (place, version) in places(spec, "schema") {
        let field = if place == "spec" { "validation" } else { "schema" };
        let document = at(version, &["schema", "openAPIV3Schema"]);
        if document.is_object() {
            root(document, &format!("{place}.{field}.openAPIV3Schema"), errors);
        }
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
    let mut found = structural::check(document, path);
    if found.is_empty() {
        defaults(&schema, path, true, 0, &mut found);
        structural::Rules::check(&schema, path, &mut found);
    }
    errors.append(&mut found);
}

/// A default is validated like a value that a client sent. Values of maps have none; metadata has its own rules.
fn defaults(schema: &Schema, path: &str, root: bool, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH || schema.type_name.is_some() {
        return;
    }
    if let Some(default) = &schema.default {
        let place = format!("{path}.default");
        if !prune::prune(&mut default.clone(), schema).is_empty() {
            errors.push(FieldError::invalid(place.clone(), default, "must not have unknown fields"));
        }
        errors.extend(values::check(schema, default, None, &place));
    }
    if let Some(items) = &schema.items {
        defaults(items, &format!("{path}.items"), false, depth + 1, errors);
    }
    for (name, child) in &schema.properties {
        let of_object = matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        if !(of_object && (root || schema.embedded_resource)) {
            defaults(child, &format!("{path}.properties[{name}]"), false, depth + 1, errors);
        }
    }
}
