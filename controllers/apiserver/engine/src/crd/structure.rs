//! One node of a structural schema: what may stand in it, and what must.

use serde_json::{Map, Value, json};

use super::{at, nested, text, texts};
use crate::field::FieldError;
use crate::schema::rules::{self, compile_error};
use crate::schema::validate::values;
use crate::schema::{ListType, Schema, prune};

/// Walks a schema document together with what was read from it.
pub(super) struct Checker<'a> {
    pub(super) errors: &'a mut Vec<FieldError>,
    pub(super) path: String,
    /// The nearest list above whose items have no identity: transition rules cannot work below it.
    pub(super) uncorrelatable: Option<String>,
}

/// Keywords that are no part of structural schemas.
const UNSUPPORTED: [&str; 6] =
    ["definitions", "dependencies", "id", "additionalItems", "patternProperties", "$ref"];

impl Checker<'_> {
    pub(super) fn node(&mut self, document: &Value, schema: &Schema, is_root: bool) {
        let Some(fields) = document.as_object() else { return };
        self.keywords(fields);
        self.types(fields);
        self.list_and_map_types(fields);
        self.default(schema, is_root);
        self.rules(schema, is_root);
        nested::check(self.errors, &self.path, fields);
        self.children(fields, schema);
    }

    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn keywords(&mut self, fields: &Map<String, Value>) {
        for key in UNSUPPORTED.into_iter().filter(|key| fields.contains_key(*key)) {
            let detail = format!("{key} is not supported");
            self.errors.push(FieldError::forbidden(self.at(key), &detail));
        }
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(self.at("uniqueItems"), detail));
        }
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
            && let Err(why) = crate::schema::compile_pattern(pattern)
        {
            let detail = format!("must be a valid regular expression, but isn't: {why}");
            self.errors.push(FieldError::invalid(self.at("pattern"), &json!(pattern), &detail));
        }
        match fields.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                let detail = "additionalProperties cannot be set to false";
                self.errors.push(FieldError::forbidden(self.at("additionalProperties"), detail));
            }
            Some(other) if !other.is_null() && has_entries(fields.get("properties")) => {
                let detail = "additionalProperties and properties are mutual exclusive";
                self.errors.push(FieldError::forbidden(self.at("additionalProperties"), detail));
            }
            _ => {}
        }
        if fields.get("items").is_some_and(Value::is_array) {
            let detail = "items must be a schema object and not an array";
            self.errors.push(FieldError::forbidden(self.at("items"), detail));
        }
    }

    fn types(&mut self, fields: &Map<String, Value>) {
        const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
        let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "null" => {
                let detail = "type cannot be set to null, use nullable as an alternative";
                self.errors.push(FieldError::forbidden(self.at("type"), detail));
            }
            "" => {}
            kind if !TYPES.contains(&kind) => {
                self.errors.push(FieldError::not_supported(self.at("type"), &json!(kind), &TYPES));
            }
            "array" if !fields.contains_key("items") => {
                self.errors.push(FieldError::required(self.at("items"), "must be specified"));
            }
            _ => {}
        }
        if flag("x-kubernetes-int-or-string") && !kind.is_empty() {
            let detail = "must be empty if x-kubernetes-int-or-string is true";
            self.errors.push(FieldError::forbidden(self.at("type"), detail));
        }
        let preserve = flag("x-kubernetes-preserve-unknown-fields");
        if flag("x-kubernetes-embedded-resource") {
            if kind != "object" {
                let detail = "must be object if x-kubernetes-embedded-resource is true";
                self.errors.push(FieldError::invalid(self.at("type"), &json!(kind), detail));
            }
            if !preserve && !has_entries(fields.get("properties")) {
                let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
                self.errors.push(FieldError::required(self.at("properties"), detail));
            }
        }
        if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let detail = "must be true or undefined";
            let field = self.at("x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(field, &json!(false), detail));
        }
    }

    fn list_and_map_types(&mut self, fields: &Map<String, Value>) {
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
        let named = |key: &str| fields.get(key).and_then(Value::as_str);
        if let Some(map_type) = named("x-kubernetes-map-type") {
            let field = self.at("x-kubernetes-map-type");
            if !matches!(map_type, "atomic" | "granular") {
                self.errors.push(FieldError::not_supported(field, &json!(map_type), &["atomic", "granular"]));
            }
            if kind != "object" {
                let detail = "must be object if x-kubernetes-map-type is specified";
                self.errors.push(FieldError::invalid(self.at("type"), &json!(kind), detail));
            }
        }
        let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
        let list_type = named("x-kubernetes-list-type");
        if let Some(list_type) = list_type {
            if kind != "array" {
                let detail = "must be array if x-kubernetes-list-type is specified";
                self.errors.push(FieldError::invalid(self.at("type"), &json!(kind), detail));
            }
            if !matches!(list_type, "atomic" | "map" | "set") {
                let field = self.at("x-kubernetes-list-type");
                let known = ["atomic", "map", "set"];
                self.errors.push(FieldError::not_supported(field, &json!(list_type), &known));
            }
        }
        match list_type {
            Some("map") => self.list_map(fields, &keys),
            _ if keys.is_empty() => {}
            None => {
                let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
                self.errors.push(FieldError::required(self.at("x-kubernetes-list-type"), detail));
            }
            Some(other) => {
                let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
                self.errors.push(FieldError::invalid(
                    self.at("x-kubernetes-list-type"),
                    &json!(other),
                    detail,
                ));
            }
        }
    }

    fn list_map(&mut self, fields: &Map<String, Value>, keys: &[&str]) {
        let place = self.at("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(place, detail));
            return;
        }
        let Some(items) = fields.get("items") else { return };
        let kind = text(items, "type");
        if kind != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(self.at("items.type"), &json!(kind), detail));
        }
        if at(items, &["nullable"]) == true {
            let detail = "cannot be nullable when x-kubernetes-list-type is map";
            self.errors.push(FieldError::forbidden(self.at("items.nullable"), detail));
        }
        let required = texts(items, "required");
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().take(index).any(|other| other == key) {
                self.errors.push(FieldError::duplicate(format!("{place}[{index}]"), &json!(key)));
            }
            let Some(property) = at(items, &["properties"]).get(key) else {
                let detail = "entries must all be names of item properties";
                self.errors.push(FieldError::invalid(format!("{place}[{index}]"), &json!(key), detail));
                continue;
            };
            let kind = text(property, "type");
            let place = format!("{}.items.properties[{key}]", self.path);
            if matches!(kind.as_str(), "object" | "array") {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.errors.push(FieldError::invalid(format!("{place}.type"), &json!(kind), detail));
            }
            if at(property, &["default"]).is_null() && !required.iter().any(|name| name == key) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(format!("{place}.default"), detail));
            }
        }
    }

    /// A default is validated like a value that a client sent.
    fn default(&mut self, schema: &Schema, is_root: bool) {
        let Some(default) = &schema.default else { return };
        let place = self.at("default");
        if is_root {
            self.errors.push(FieldError::forbidden(place, "must not be set at the root"));
            return;
        }
        let mut known = default.clone();
        if !prune::prune(&mut known, schema).is_empty() {
            self.errors.push(FieldError::invalid(place, default, "must not have unknown fields"));
            return;
        }
        self.errors.extend(values::check(schema, default, None, &place));
    }

    fn rules(&mut self, schema: &Schema, is_root: bool) {
        const REASONS: [&str; 4] =
            ["FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate"];
        let Some(constraints) = &schema.constraints else { return };
        for (index, rule) in constraints.rules.iter().enumerate() {
            let place = format!("{}.x-kubernetes-validations[{index}]", self.path);
            if rule.rule.trim().is_empty() {
                self.errors.push(FieldError::required(format!("{place}.rule"), "rule is not specified"));
                continue;
            }
            if let Some(message) = &rule.message
                && (message.trim().is_empty() || message.contains(['\n', '\r']))
            {
                let detail = if message.trim().is_empty() {
                    "message must be non-empty if specified"
                } else {
                    "message must not contain line breaks"
                };
                self.errors.push(FieldError::invalid(format!("{place}.message"), &json!(message), detail));
            }
            if let Some(reason) = &rule.reason
                && !REASONS.contains(&reason.as_str())
            {
                self.errors.push(FieldError::not_supported(
                    format!("{place}.reason"),
                    &json!(reason),
                    &REASONS,
                ));
            }
            if let Some(path) = &rule.field_path
                && !rules::field_path_exists(schema, path)
            {
                let detail = "fieldPath must be a valid path: does not refer to a valid field";
                self.errors.push(FieldError::invalid(format!("{place}.fieldPath"), &json!(path), detail));
            }
            if let Some(why) = compile_error(rule, schema, is_root) {
                self.errors.push(FieldError::invalid(format!("{place}.rule"), &json!(rule.rule), &why));
            } else if let Some(list) = self.uncorrelatable.as_deref().filter(|_| rules::is_transition(rule)) {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.errors.push(FieldError::invalid(format!("{place}.rule"), &json!(rule.rule), &detail));
            }
        }
    }

    fn children(&mut self, fields: &Map<String, Value>, schema: &Schema) {
        let length = self.path.len();
        let properties = fields.get("properties").and_then(Value::as_object);
        for (name, document) in properties.into_iter().flatten() {
            self.path.push_str(&format!(".properties[{name}]"));
            let child = schema.properties.get(name);
            if let Some(child) = child.filter(|child| child.type_name.is_none()) {
                self.child(document, child, "must not be empty for specified object fields");
            }
            self.path.truncate(length);
        }
        if let (Some(document), Some(child)) = (fields.get("additionalProperties"), &schema.additional)
            && document.is_object()
        {
            self.path.push_str(".additionalProperties");
            self.child(document, child, "must not be empty for specified object fields");
            self.path.truncate(length);
        }
        if let (Some(document), Some(child)) = (fields.get("items"), &schema.items)
            && document.is_object()
        {
            let before = self.uncorrelatable.clone();
            if !matches!(schema.list_type, ListType::Map(_)) && before.is_none() {
                self.uncorrelatable = Some(self.path.clone());
            }
            self.path.push_str(".items");
            self.child(document, child, "must not be empty for specified array items");
            self.path.truncate(length);
            self.uncorrelatable = before;
        }
    }

    fn child(&mut self, document: &Value, schema: &Schema, untyped: &str) {
        let open = schema.int_or_string || schema.preserve_unknown;
        if text(document, "type").is_empty() && !open {
            self.errors.push(FieldError::required(self.at("type"), untyped));
        }
        self.node(document, schema, false);
    }
}

fn has_entries(value: Option<&Value>) -> bool {
    value.and_then(Value::as_object).is_some_and(|fields| !fields.is_empty())
}
