//! The `openAPIV3Schema` of each version: it must be there, and be structural.

use serde_json::{Value, json};

use super::columns::places;
use super::{at, list, openapi, structural};
use crate::field::{FieldError, FieldReason};
use crate::schema::validate::values;
use crate::schema::{MAX_DEPTH, Schema, parse, prune};

/// Checks the schemas of all versions; one that all share is reported under `spec.validation`.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, version) in list(spec, "versions").iter().enumerate() {
        if !at(version, &["schema", "openAPIV3Schema"]).is_object() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let shared = places(spec, "subresources");
    for (place, version) in places(spec, "schema") {
        let field = if place == "spec" { "validation" } else { "schema" };
        let document = at(version, &["schema", "openAPIV3Schema"]);
        // What versions have in common is no longer at the version.
        let holders: Vec<&Value> = match shared.as_slice() {
            [(own, holder)] if own == "spec" => vec![*holder],
            _ if place == "spec" => list(spec, "versions").iter().collect(),
            _ => vec![version],
        };
        let status = holders.iter().any(|holder| at(holder, &["subresources", "status"]).is_object());
        root(document, status, &format!("{place}.{field}.openAPIV3Schema"), errors);
    }
}

fn root(document: &Value, has_status: bool, path: &str, errors: &mut Vec<FieldError>) {
    if !document.is_object() {
        return;
    }
    let schema = match parse::custom(document) {
        Ok(schema) => schema,
        Err(found) => {
            errors.extend(found.into_iter().map(|error| FieldError { field: path.to_owned(), ..error }));
            return;
        }
    };
    let before = errors.len();
    if has_status {
        status_root(document, path, errors);
    }
    if at(document, &["nullable"]) == true {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unreadable = structural::unreadable(document);
    let mut found = Vec::new();
    if unreadable.is_none() {
        found = structural::check(document, path);
        if found.is_empty() {
            defaults(&schema, path, true, 0, &mut found);
        }
    }
    // Rules are compiled only in a schema that is fine otherwise.
    let known = (unreadable.is_none() && found.is_empty()).then_some(&*schema);
    errors.append(&mut found);
    errors.extend(openapi::check(document, known, path).all());
    if let Some(why) = unreadable.filter(|_| errors.len() == before) {
        errors.push(FieldError::invalid(path, &json!(""), &why));
    }
}

/// With a status of its own, an object is checked in two parts, so that its root holds little.
fn status_root(document: &Value, path: &str, errors: &mut Vec<FieldError>) {
    /// Keywords in the order of the type, and whether they may stand at the root.
    const KEYWORDS: [(&str, bool); 42] = [
        ("id", false),
        ("$schema", false),
        ("$ref", false),
        ("description", true),
        ("type", true),
        ("nullable", false),
        ("format", true),
        ("title", true),
        ("default", false),
        ("maximum", true),
        ("exclusiveMaximum", true),
        ("minimum", true),
        ("exclusiveMinimum", true),
        ("maxLength", true),
        ("minLength", true),
        ("pattern", true),
        ("maxItems", true),
        ("minItems", true),
        ("uniqueItems", true),
        ("multipleOf", true),
        ("enum", false),
        ("maxProperties", false),
        ("minProperties", false),
        ("required", true),
        ("items", true),
        ("allOf", false),
        ("oneOf", false),
        ("anyOf", false),
        ("not", false),
        ("properties", true),
        ("additionalProperties", false),
        ("patternProperties", false),
        ("dependencies", false),
        ("additionalItems", false),
        ("definitions", false),
        ("externalDocs", true),
        ("example", true),
        ("x-kubernetes-embedded-resource", false),
        ("x-kubernetes-int-or-string", false),
        ("x-kubernetes-list-map-keys", false),
        ("x-kubernetes-list-type", false),
        ("x-kubernetes-map-type", false),
    ];
    for (key, allowed) in KEYWORDS {
        let value = at(document, &[key]);
        if !structural::is_filled(value) || value == false {
            continue;
        }
        if key == "type" && value != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                          enabled";
            errors.push(FieldError::invalid(format!("{path}.type"), value, detail));
            return;
        }
        if !allowed {
            let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                          MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
                          ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of \
                          the schema if the status subresource is enabled";
            let message = format!("Invalid value: {}: {detail}", super::go::schema(document));
            errors.push(FieldError { reason: FieldReason::Invalid, field: path.to_owned(), message });
            return;
        }
    }
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
        errors.extend(super::embedded::validate(schema, default, &place));
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
