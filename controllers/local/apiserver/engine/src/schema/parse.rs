//! Reads the `openAPIV3Schema` of a custom resource definition.
//!
//! Whether a definition is a *good* one is the business of `crate::crd`; this reader takes the fields that it supports
//! and leaves out the others, so that definitions stored earlier always yield a schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Constraints, JsonType, ListType, MAX_DEPTH, Rule, Schema, SchemaRef, builtin, json_type};
use crate::field::FieldError;

/// The schema of a custom kind. At the root and in embedded resources, `apiVersion`, `kind` and `metadata` get the schema
/// common to all kinds; the document's constraints on `metadata.name` and `metadata.generateName` are kept.
///
/// # Errors
/// When the document is nested deeper than [`MAX_DEPTH`].
pub fn custom(document: &Value) -> Result<SchemaRef, Vec<FieldError>> {
    if too_deep(document, MAX_DEPTH) {
        let detail = format!("must not be nested deeper than {MAX_DEPTH} levels");
        return Err(vec![FieldError::forbidden("openAPIV3Schema", &detail)]);
    }
    let mut root = node(document);
    add_object_fields(&mut root);
    Ok(SchemaRef::new(root))
}

/// The schema of a fragment, with nothing added; deeper parts than [`MAX_DEPTH`] accept anything.
pub fn fragment(document: &Value) -> SchemaRef {
    if too_deep(document, MAX_DEPTH) { SchemaRef::new(Schema::any()) } else { SchemaRef::new(node(document)) }
}

fn too_deep(value: &Value, budget: usize) -> bool {
    let Some(rest) = budget.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| too_deep(item, rest)),
        Value::Object(fields) => fields.values().any(|field| too_deep(field, rest)),
        _ => false,
    }
}

fn node(document: &Value) -> Schema {
    let Some(fields) = document.as_object() else { return Schema::any() };
    let flag = |key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or_default();
    let mut schema = Schema::typed(text(fields, "type").map_or(JsonType::Any, |name| json_type(&name)));
    schema.nullable = flag("nullable");
    schema.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
    schema.embedded_resource = flag("x-kubernetes-embedded-resource");
    schema.int_or_string = flag("x-kubernetes-int-or-string");
    schema.map_atomic = text(fields, "x-kubernetes-map-type").as_deref() == Some("atomic");
    schema.description = text(fields, "description").unwrap_or_default();
    schema.default = fields.get("default").filter(|value| !value.is_null()).cloned();
    schema.required = strings(fields, "required");
    schema.properties = properties(fields);
    schema.items = fields.get("items").map(|items| SchemaRef::new(node(items)));
    schema.additional = match fields.get("additionalProperties") {
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(SchemaRef::new(Schema::any())),
        Some(values) => Some(SchemaRef::new(node(values))),
    };
    schema.list_type = match text(fields, "x-kubernetes-list-type").as_deref() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(fields, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    };
    schema.constraints = constraints(fields).map(Box::new);
    if schema.embedded_resource {
        add_object_fields(&mut schema);
    }
    schema
}

fn properties(fields: &Map<String, Value>) -> BTreeMap<String, SchemaRef> {
    let Some(properties) = fields.get("properties").and_then(Value::as_object) else {
        return BTreeMap::new();
    };
    properties.iter().map(|(name, document)| (name.clone(), SchemaRef::new(node(document)))).collect()
}

fn add_object_fields(schema: &mut Schema) {
    for key in ["apiVersion", "kind"] {
        schema
            .properties
            .entry(key.to_owned())
            .or_insert_with(|| SchemaRef::new(Schema::typed(JsonType::String)));
    }
    let own = schema.properties.get("metadata").cloned();
    let mut meta = Schema::clone(&builtin::object_meta());
    if let Some(own) = own {
        for key in ["name", "generateName"] {
            if let Some(constrained) = own.properties.get(key) {
                meta.properties.insert(key.to_owned(), constrained.clone());
            }
        }
        // No longer the built-in type: rules and constraints may stand in it.
        meta.type_name = None;
        meta.constraints.clone_from(&own.constraints);
        meta.required.clone_from(&own.required);
    }
    schema.properties.insert("metadata".to_owned(), SchemaRef::new(meta));
}

fn constraints(fields: &Map<String, Value>) -> Option<Constraints> {
    const KEYS: &str = "format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength \
        maxLength pattern enum minItems maxItems uniqueItems minProperties maxProperties allOf anyOf oneOf \
        not x-kubernetes-validations";
    if !KEYS.split(' ').any(|key| fields.contains_key(key)) {
        return None;
    }
    let flag = |key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or_default();
    let number = |key: &str| fields.get(key).and_then(Value::as_f64);
    let count = |key: &str| fields.get(key).and_then(Value::as_u64);
    let branches = |key: &str| -> Vec<SchemaRef> {
        let list = fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|branch| SchemaRef::new(node(branch))).collect()
    };
    Some(Constraints {
        format: text(fields, "format").filter(|format| !format.is_empty()),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: text(fields, "pattern").filter(|pattern| !pattern.is_empty()),
        enumeration: fields.get("enum").and_then(Value::as_array).filter(|list| !list.is_empty()).cloned(),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: branches("allOf"),
        any_of: branches("anyOf"),
        one_of: branches("oneOf"),
        not: fields.get("not").map(|branch| SchemaRef::new(node(branch))),
        rules: rules(fields),
        ..Constraints::default()
    })
}

fn rules(fields: &Map<String, Value>) -> Vec<Rule> {
    let list = fields.get("x-kubernetes-validations").and_then(Value::as_array);
    let list = list.map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(Value::as_object)
        .map(|rule| {
            let filled = |key: &str| text(rule, key).filter(|value| !value.is_empty());
            Rule {
                rule: text(rule, "rule").unwrap_or_default(),
                message: filled("message"),
                message_expression: filled("messageExpression"),
                reason: filled("reason"),
                field_path: filled("fieldPath"),
                optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
                ..Rule::default()
            }
        })
        .collect()
}

fn text(fields: &Map<String, Value>, key: &str) -> Option<String> {
    fields.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn strings(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
