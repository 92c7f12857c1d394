//! What a server refuses in a schema besides that it is not structural: keywords, lists, maps, and rules.

use serde_json::{Map, Value, json};

use super::structural::{UNSUPPORTED, is_filled};
use super::{at, text, texts};
use crate::field::{FieldError, FieldReason};
use crate::schema::Schema;
use crate::schema::rules::{self, compile_error};

/// Faults, those of rules apart: rules are compiled only where the schema around them is fine.
#[derive(Default)]
pub(super) struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

impl Found {
    pub(super) fn all(self) -> Vec<FieldError> {
        self.schema.into_iter().chain(self.rules).collect()
    }
}

/// What holds at a node because of where it stands.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    /// Why there may be no default.
    no_defaults: Option<String>,
    in_metadata: bool,
    /// The nearest list or map above whose parts have no identity: transition rules cannot work below it.
    uncorrelatable: Option<String>,
}

/// Checks the schema at `path`; rules are compiled if there is the schema that was read from it.
pub(super) fn check(document: &Value, schema: Option<&Schema>, path: &str) -> Found {
    let mut found = Found::default();
    node(document, schema, path, &Place { root: true, ..Place::default() }, &mut found);
    found
}

fn node(document: &Value, schema: Option<&Schema>, path: &str, place: &Place, found: &mut Found) {
    let Some(fields) = document.as_object() else { return };
    let before = found.schema.len();
    keywords(fields, path, place, &mut found.schema);
    if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.schema.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    children(fields, schema, path, place, found);
    branches(fields, path, place, found);
    extensions(fields, path, &mut found.schema);
    list_type(fields, path, &mut found.schema);
    list_map(fields, path, &mut found.schema);
    list_items(fields, path, &mut found.schema);
    rule_texts(fields, path, &mut found.schema);
    if let Some(schema) = schema.filter(|_| found.schema.len() == before) {
        compile(fields, schema, path, place, &mut found.rules);
    }
}

fn keywords(fields: &Map<String, Value>, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let mut forbid =
        |key: &str, detail: &str| errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
    if fields.get("default").is_some_and(|value| !value.is_null())
        && let Some(reason) = &place.no_defaults
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    for key in UNSUPPORTED {
        let there = |value: &Value| is_filled(value) || key == "dependencies" && value.is_object();
        if fields.get(key).is_some_and(there) {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if fields.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_metadata && fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), &json!(kind), &TYPES));
    }
}

fn children(
    fields: &Map<String, Value>,
    schema: Option<&Schema>,
    path: &str,
    place: &Place,
    found: &mut Found,
) {
    let inner = Place { root: false, ..place.clone() };
    let properties = fields.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty());
    if let Some(values) = fields.get("additionalProperties").filter(|values| !values.is_null()) {
        let field = format!("{path}.additionalProperties");
        if properties.is_some() && values != &json!(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(field.clone(), detail));
        }
        let mut inner = inner.clone();
        if place.in_metadata {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        node(values, schema.and_then(|schema| schema.additional.as_deref()), &field, &inner, found);
    }
    let embedded = fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    let atomic =
        fields.get("x-kubernetes-map-type").and_then(Value::as_str).is_some_and(|kind| kind != "granular");
    for (name, child) in properties.into_iter().flatten() {
        let mut inner = inner.clone();
        if atomic {
            inner.uncorrelatable.get_or_insert_with(|| path.to_owned());
        }
        if (place.root || embedded) && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.in_metadata = true;
            if place.root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let known = schema.and_then(|schema| schema.properties.get(name)).map(|child| child.as_schema());
        let known = known.filter(|child| child.type_name.is_none());
        node(child, known, &format!("{path}.properties[{name}]"), &inner, found);
    }
    let Some(items) = fields.get("items") else { return };
    let mut inner = inner;
    if fields.get("x-kubernetes-list-type") != Some(&json!("map")) {
        inner.uncorrelatable.get_or_insert_with(|| path.to_owned());
    }
    let known = schema.and_then(|schema| schema.items.as_deref());
    match items {
        Value::Array(list) => list.iter().enumerate().for_each(|(index, item)| {
            node(item, known, &format!("{path}.items[{index}]"), &inner, found);
        }),
        item => node(item, known, &format!("{path}.items"), &inner, found),
    }
}

/// Combinations, definitions and dependencies have no rules.
fn branches(fields: &Map<String, Value>, path: &str, place: &Place, found: &mut Found) {
    let inner = Place { root: false, ..place.clone() };
    if let Some(branch) = fields.get("not") {
        node(branch, None, &format!("{path}.not"), &inner, found);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        let all = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        for (index, branch) in all.enumerate() {
            node(branch, None, &format!("{path}.{key}[{index}]"), &inner, found);
        }
    }
    for key in ["definitions", "dependencies"] {
        for (name, branch) in fields.get(key).and_then(Value::as_object).into_iter().flatten() {
            node(branch, None, &format!("{path}.{key}[{name}]"), &inner, found);
        }
    }
}

fn extensions(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, &json!(false), "must be true or undefined"));
    }
    let Some(map_type) = fields.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    check_type(fields, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        let field = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(field, &json!(map_type), &["atomic", "granular"]));
    }
}

fn check_type(
    fields: &Map<String, Value>,
    want: &str,
    detail: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{path}.type");
    match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
        kind if kind == want => {}
        "" => errors.push(FieldError::required(field, detail)),
        kind => errors.push(FieldError::invalid(field, &json!(kind), detail)),
    }
}

fn list_type(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    const KNOWN: [&str; 3] = ["atomic", "set", "map"];
    let named = fields.get("x-kubernetes-list-type").and_then(Value::as_str);
    let field = format!("{path}.x-kubernetes-list-type");
    if let Some(list_type) = named {
        let is_array = fields.get("type") == Some(&json!("array"));
        check_type(fields, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
        if is_array && list_type == "set" {
            set_items(fields, path, errors);
        }
        if !KNOWN.contains(&list_type) {
            errors.push(FieldError::not_supported(field.clone(), &json!(list_type), &KNOWN));
        }
    }
    if fields.get("x-kubernetes-list-map-keys").is_some_and(is_filled) {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match named {
            None => errors.push(FieldError::required(field, detail)),
            Some("map") => {}
            Some(other) => errors.push(FieldError::invalid(field, &json!(other), detail)),
        }
    }
}

/// Items of a set are compared as a whole.
fn set_items(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let items = fields.get("items").unwrap_or(&Value::Null);
    let list_type = at(items, &["x-kubernetes-list-type"]);
    let (key, atomic) = match text(items, "type").as_str() {
        "array" => ("x-kubernetes-list-type", list_type.is_null() || list_type == "atomic"),
        "object" => ("x-kubernetes-map-type", at(items, &["x-kubernetes-map-type"]) == "atomic"),
        _ => return,
    };
    if !atomic {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        // The list type is shown in either case. As a pointer it is printed as JSON.
        errors.push(FieldError::invalid(format!("{path}.items.{key}"), list_type, detail));
    }
}

fn list_map(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if fields.get("x-kubernetes-list-type") != Some(&json!("map")) {
        return;
    }
    let place = format!("{path}.x-kubernetes-list-map-keys");
    let keys = fields.get("x-kubernetes-list-map-keys").cloned().unwrap_or_default();
    let names = crate::object::strings(Some(&keys));
    if names.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(place.clone(), detail));
    }
    let Some(items) = fields.get("items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &json!(kind), detail));
        return;
    }
    for (index, name) in names.iter().enumerate() {
        match at(items, &["properties", name]) {
            Value::Null => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(place.clone(), &keys, detail));
            }
            property if matches!(text(property, "type").as_str(), "array" | "object") => {
                let field = format!("{path}.items.properties[{name}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(field, &json!(kind), detail));
            }
            _ => {}
        }
        if names.iter().take(index).any(|other| other == name) {
            errors.push(FieldError::invalid(place.clone(), &keys, "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and maps, and the keys of the latter, are always there.
fn list_items(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = fields.get("x-kubernetes-list-type").and_then(Value::as_str).unwrap_or_default();
    let Some(items) = fields.get("items").filter(|items| items.is_object()) else { return };
    if !matches!(list_type, "set" | "map") {
        return;
    }
    if at(items, &["nullable"]) == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &detail));
    }
    let required = texts(items, "required");
    let keys = fields.get("x-kubernetes-list-map-keys").filter(|_| list_type == "map");
    for name in crate::object::strings(keys) {
        let property = at(items, &["properties", name]);
        let field = format!("{path}.items.properties[{name}]");
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        if property.is_null() {
            continue;
        }
        if at(property, &["default"]).is_null() && !required.iter().any(|other| other == name) {
            let detail = format!("{why} must have a default or be a required property");
            errors.push(FieldError::required(format!("{field}.default"), &detail));
        }
        if at(property, &["nullable"]) == true {
            errors.push(FieldError::forbidden(
                format!("{field}.nullable"),
                &format!("{why} cannot be nullable"),
            ));
        }
    }
}

fn rule_list(fields: &Map<String, Value>) -> &[Value] {
    fields.get("x-kubernetes-validations").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Checks of rules that need no compilation.
fn rule_texts(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let broken = |text: &str| text.contains(['\n', '\r']);
    let document = Value::Object(fields.clone());
    for (index, rule) in rule_list(fields).iter().enumerate() {
        let place = format!("{path}.x-kubernetes-validations[{index}]");
        let of = |key: &str| text(rule, key);
        let (expression, message) = (of("rule"), of("message"));
        let field = format!("{place}.message");
        if expression.trim().is_empty() {
            errors.push(FieldError::required(format!("{place}.rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(field, &json!(message), "must be non-empty if specified"));
        } else if broken(message.trim()) {
            errors.push(FieldError::invalid(field, &json!(message), "must not contain line breaks"));
        } else if broken(expression.trim()) && message.trim().is_empty() {
            errors
                .push(FieldError::required(field, "message must be specified if rule contains line breaks"));
        }
        if !of("messageExpression").is_empty() && of("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(format!("{place}.messageExpression"), detail));
        }
        let reason = at(rule, &["reason"]);
        if reason.as_str().is_some_and(|reason| !REASONS.contains(&reason)) {
            errors.push(FieldError::not_supported(format!("{place}.reason"), reason, &REASONS));
        }
        let (field, target) = (format!("{place}.fieldPath"), of("fieldPath"));
        if target.is_empty() {
            continue;
        }
        let mut refuse =
            |detail: &str| errors.push(FieldError::invalid(field.clone(), &json!(target), detail));
        if target.trim().is_empty() {
            refuse("must be non-empty if specified");
        }
        if broken(&target) {
            refuse("must not contain line breaks");
        }
        if !rules::field_path_exists(&crate::schema::parse::fragment(&document), &target) {
            refuse("must be a valid path");
        }
    }
}

fn compile(
    fields: &Map<String, Value>,
    schema: &Schema,
    path: &str,
    place: &Place,
    errors: &mut Vec<FieldError>,
) {
    let Some(constraints) = &schema.constraints else { return };
    for (index, (rule, document)) in constraints.rules.iter().zip(rule_list(fields)).enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        let field = format!("{path}.rule");
        if let Some(why) = compile_error(rule, schema, place.root) {
            let message = format!("Invalid value: {}: {why}", super::go::rule(document));
            errors.push(FieldError { reason: FieldReason::Invalid, field, message });
        } else if !rules::is_transition(rule) {
            let optional = at(document, &["optionalOldSelf"]);
            if !optional.is_null() {
                let detail = "may not be set if oldSelf is not used in rule";
                errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), optional, detail));
            }
        } else if let Some(list) = &place.uncorrelatable {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(field, &json!(rule.rule), &detail));
        }
    }
}
