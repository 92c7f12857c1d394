//! Whether a schema is structural: every value has one type, combinations only constrain what is declared, and rules can be
//! compiled.

use serde_json::{Map, Value, json};

use super::{at, text};
use crate::field::FieldError;
use crate::object::strings;
use crate::schema::rules::{MOST_OF_ALL, MOST_OF_RULE, is_transition, judge, most_of, segments};
use crate::schema::{Rule, Schema, compile_pattern};

const UNSUPPORTED: &str = "id $schema $ref patternProperties dependencies additionalItems definitions \
    uniqueItems";
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Whether a keyword is there at all: not empty, not null, not false.
fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
    }
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key) == Some(&Value::Bool(true))
}

fn properties(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// The branches of a node, except the customary spelling of `x-kubernetes-int-or-string`.
fn branches<'a>(fields: &'a Map<String, Value>, path: &str) -> Vec<(String, &'a Value)> {
    let customary = json!([{ "type": "integer" }, { "type": "string" }]);
    let keys = ["allOf", "anyOf", "oneOf"].into_iter();
    let lists = keys.filter(|key| fields.get(*key) != Some(&customary)).flat_map(|key| {
        let all = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        all.enumerate().map(move |(index, branch)| (format!("{path}.{key}[{index}]"), branch))
    });
    lists.chain(fields.get("not").map(|branch| (format!("{path}.not"), branch))).collect()
}

pub(super) fn check(document: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(document, path, true, &mut errors);
    errors
}

fn node(document: &Value, path: &str, is_root: bool, errors: &mut Vec<FieldError>) {
    let Some(fields) = document.as_object() else { return };
    keywords(fields, path, errors);
    kind(fields, path, is_root, errors);
    if let Some(values) = fields.get("additionalProperties").filter(|values| !values.is_null()) {
        let field = format!("{path}.additionalProperties");
        if is_root {
            errors.push(FieldError::forbidden(field.clone(), "must not be used at the root"));
        }
        if properties(fields).next().is_some() && values != &json!(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        node(values, &field, false, errors);
    }
    list_type(fields, path, errors);
    extensions(fields, path, errors);
    if is_root {
        of_object(fields, path, errors);
    }
    for (path, branch) in branches(fields, path) {
        nested(branch, &path, errors);
    }
    for (name, child) in properties(fields) {
        node(child, &format!("{path}.properties[{name}]"), false, errors);
    }
    match fields.get("items") {
        Some(Value::Array(_)) => {
            let detail = "items must be a schema object and not an array";
            errors.push(FieldError::forbidden(format!("{path}.items"), detail));
        }
        Some(items) => node(items, &format!("{path}.items"), false, errors),
        None => {}
    }
}

fn keywords(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for key in UNSUPPORTED.split(' ').filter(|key| fields.get(*key).is_some_and(is_filled)) {
        let detail = match key {
            "uniqueItems" => {
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic".to_owned()
            }
            key => format!("{key} is not supported"),
        };
        errors.push(FieldError::forbidden(format!("{path}.{key}"), &detail));
    }
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, &false, "must be true or undefined"));
    }
    let pattern = fields.get("pattern").and_then(Value::as_str).unwrap_or_default();
    if let Err(why) = compile_pattern(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &pattern, &detail));
    }
}

fn kind(fields: &Map<String, Value>, path: &str, is_root: bool, errors: &mut Vec<FieldError>) {
    let (kind, field) =
        (fields.get("type").and_then(Value::as_str).unwrap_or_default(), format!("{path}.type"));
    let open = flag(fields, "x-kubernetes-int-or-string")
        || flag(fields, "x-kubernetes-preserve-unknown-fields") && !is_root;
    match kind {
        "" if open || fields.contains_key("$ref") => {}
        "" => errors.push(FieldError::required(field, "must not be empty")),
        other if !TYPES.contains(&other) => {
            errors.push(FieldError::not_supported(field, &other, &TYPES));
        }
        other if is_root && other != "object" => {
            errors.push(FieldError::invalid(field, &other, "must be object at the root"));
        }
        "array" if !fields.contains_key("items") => {
            errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
        }
        _ => {}
    }
}

/// Extensions that only some types have.
fn extensions(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let map_type = fields.get("x-kubernetes-map-type").and_then(Value::as_str);
    let embedded = flag(fields, "x-kubernetes-embedded-resource");
    let wanted = [
        (fields.contains_key("x-kubernetes-list-type"), "array", "x-kubernetes-list-type is specified"),
        (map_type.is_some(), "object", "x-kubernetes-map-type is specified"),
        (embedded, "object", "x-kubernetes-embedded-resource is true"),
    ];
    let is_wrong = |given: bool, wanted: &str| given && !kind.is_empty() && kind != wanted;
    for (_, wanted, what) in wanted.into_iter().filter(|(given, wanted, _)| is_wrong(*given, wanted)) {
        let detail = format!("must be {wanted} if {what}");
        errors.push(FieldError::invalid(format!("{path}.type"), &kind, &detail));
    }
    const KNOWN: [&str; 2] = ["atomic", "granular"];
    if let Some(given) = map_type.filter(|given| !KNOWN.contains(given)) {
        errors.push(FieldError::not_supported(format!("{path}.x-kubernetes-map-type"), &given, &KNOWN));
    }
    let open = flag(fields, "x-kubernetes-preserve-unknown-fields") || properties(fields).next().is_some();
    if embedded && !open {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

/// What every object has is not for a definition to describe, but for its names.
fn of_object(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (name, child) in properties(fields) {
        let path = format!("{path}.properties[{name}]");
        let kind = text(child, "type");
        if matches!(name.as_str(), "apiVersion" | "kind") && !kind.is_empty() && kind != "string" {
            errors.push(FieldError::invalid(format!("{path}.type"), &kind, "must be string"));
        }
        if name == "metadata" {
            if !at(child, &["default"]).is_null() {
                errors.push(FieldError::forbidden(
                    format!("{path}.default"),
                    "must not be set in top-level metadata",
                ));
            }
            let described = at(child, &["properties"]).as_object().into_iter().flatten();
            if described.into_iter().any(|(name, _)| name != "name" && name != "generateName") {
                let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                              specified";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
    }
}

/// A branch of a combination, and what stands in it: it declares nothing.
fn nested(branch: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const DECLARING: &str = "description title x-kubernetes-int-or-string type additionalProperties default \
        nullable x-kubernetes-list-type x-kubernetes-map-type x-kubernetes-preserve-unknown-fields \
        x-kubernetes-validations";
    let Some(fields) = branch.as_object() else { return };
    keywords(fields, path, errors);
    for key in DECLARING.split(' ').filter(|key| fields.get(*key).is_some_and(is_filled)) {
        errors.push(FieldError::forbidden(format!("{path}.{key}"), "must be empty to be structural"));
    }
    for (path, branch) in branches(fields, path) {
        nested(branch, &path, errors);
    }
    if let Some(items) = fields.get("items") {
        nested(items, &format!("{path}.items"), errors);
    }
    for (name, child) in properties(fields) {
        nested(child, &format!("{path}.properties[{name}]"), errors);
    }
}

/// The type of a list, and the keys of one that is a map.
fn list_type(fields: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    const KNOWN: [&str; 3] = ["atomic", "set", "map"];
    let Some(list_type) = fields.get("x-kubernetes-list-type").and_then(Value::as_str) else {
        if fields.contains_key("x-kubernetes-list-map-keys") {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(format!("{path}.x-kubernetes-list-type"), detail));
        }
        return;
    };
    if !KNOWN.contains(&list_type) {
        let field = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(field, &list_type, &KNOWN));
    }
    let items = fields.get("items").unwrap_or(&Value::Null);
    let kind = text(items, "type");
    if list_type == "set" && kind == "object" && text(items, "x-kubernetes-map-type") != "atomic" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let field = format!("{path}.items.x-kubernetes-map-type");
        errors.push(FieldError::invalid(field, at(items, &["x-kubernetes-map-type"]), detail));
    }
    if list_type != "map" {
        return;
    }
    if !kind.is_empty() && kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &kind, detail));
        return;
    }
    let field = format!("{path}.x-kubernetes-list-map-keys");
    let keys = strings(fields.get("x-kubernetes-list-map-keys"));
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.clone(), detail));
    }
    if keys.iter().enumerate().any(|(at, key)| keys.iter().take(at).any(|other| other == key)) {
        errors.push(FieldError::invalid(field.clone(), &keys, "must not contain duplicate entries"));
    }
    let required = strings(items.get("required"));
    for key in &keys {
        let property = at(items, &["properties", key]);
        if property.is_null() {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid(field.clone(), &keys, detail));
        } else if matches!(text(property, "type").as_str(), "array" | "object") {
            let field = format!("{path}.items.properties[{key}].type");
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(field, &text(property, "type"), detail));
        } else if at(property, &["default"]).is_null() && !required.contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            let field = format!("{path}.items.properties[{key}].default");
            errors.push(FieldError::required(field, detail));
        }
    }
}

/// The rules of a schema that is structural: their types, and what they cost together.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Cost of each expression on all values that one request can have, by its path.
    costs: Vec<(u64, String)>,
}

/// Where in a schema rules stand.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    is_root: bool,
    /// The path of the nearest list above whose items have no identity: rules that compare with what was before cannot work
    /// below it.
    list: Option<&'a str>,
    /// How many values there can be, if that is limited.
    count: Option<u64>,
}

impl Rules {
    /// Checks all rules of a schema at `path`.
    pub(super) fn check(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
        let mut rules = Self::default();
        rules.node(schema, Place { path, is_root: true, list: None, count: Some(1) }, errors);
        rules.costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        let total = rules.costs.iter().fold(0, |sum: u64, (cost, _)| sum.saturating_add(*cost));
        if total > MOST_OF_ALL {
            for (_, field) in rules.costs.iter().take(4) {
                let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                errors.push(FieldError::forbidden(field.clone(), detail));
            }
            let detail = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget";
            errors.push(FieldError::forbidden(path, detail));
        }
    }

    fn node(&mut self, schema: &Schema, place: Place<'_>, errors: &mut Vec<FieldError>) {
        if schema.type_name.is_some() {
            return;
        }
        let path = place.path;
        for (index, rule) in schema.constraints.iter().flat_map(|constraints| &constraints.rules).enumerate()
        {
            self.rule(
                rule,
                schema,
                Place { path: &format!("{path}.x-kubernetes-validations[{index}]"), ..place },
                errors,
            );
        }
        let many =
            |limit: Option<u64>| place.count.zip(limit).map(|(count, limit)| count.saturating_mul(limit));
        let limits = schema.constraints.as_deref();
        for (name, child) in &schema.properties {
            let path = &format!("{path}.properties[{name}]");
            self.node(child, Place { path, is_root: false, ..place }, errors);
        }
        if let Some(child) = &schema.additional {
            let count = many(limits.and_then(|limits| limits.max_properties));
            let path = &format!("{path}.additionalProperties");
            self.node(child, Place { path, is_root: false, count, ..place }, errors);
        }
        if let Some(child) = &schema.items {
            let is_map = matches!(schema.list_type, crate::schema::ListType::Map(_));
            let list = place.list.or((!is_map).then_some(path));
            let count = many(limits.and_then(|limits| limits.max_items));
            self.node(child, Place { path: &format!("{path}.items"), is_root: false, list, count }, errors);
        }
    }

    fn rule(&mut self, rule: &Rule, schema: &Schema, place: Place<'_>, errors: &mut Vec<FieldError>) {
        let field = format!("{}.rule", place.path);
        if rule.rule.trim().is_empty() {
            errors.push(FieldError::required(field, "rule is not specified"));
            return;
        }
        attributes(rule, schema, place.path, errors);
        self.expression(&rule.rule, (rule, "bool"), schema, (&field, place), errors);
        if let Some(source) = rule.message_expression.as_deref() {
            let field = format!("{}.messageExpression", place.path);
            if source.trim().is_empty() {
                errors.push(FieldError::required(field, "messageExpression must be non-empty if specified"));
            } else {
                self.expression(source, (rule, "string"), schema, (&field, place), errors);
            }
        }
        if let Some(list) = place.list.filter(|_| is_transition(rule)) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(field, &rule.rule, &detail));
        }
    }

    fn expression(
        &mut self,
        source: &str,
        (rule, yields): (&Rule, &str),
        schema: &Schema,
        (field, place): (&str, Place<'_>),
        errors: &mut Vec<FieldError>,
    ) {
        let once = match judge(source, rule, schema, place.is_root, yields) {
            Ok(once) => once,
            Err(why) => return errors.push(FieldError::invalid(field, &source, &why)),
        };
        let cost = once.saturating_mul(place.count.unwrap_or_else(|| most_of(schema)));
        if cost > MOST_OF_RULE {
            let detail = format!(
                "estimated rule cost exceeds budget by factor of {}x (try simplifying the rule, or adding maxItems, \
                 maxProperties, and maxLength where arrays, maps, and strings are declared)",
                cost / MOST_OF_RULE
            );
            errors.push(FieldError::forbidden(field, &detail));
        }
        self.costs.push((cost, field.to_owned()));
    }
}

fn attributes(rule: &Rule, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    match rule.message.as_deref() {
        Some(message) if message.trim().is_empty() => {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(format!("{path}.message"), &message, detail));
        }
        Some(message) if breaks(message) => {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(format!("{path}.message"), &message, detail));
        }
        None if breaks(&rule.rule) && rule.message_expression.is_none() => {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(format!("{path}.message"), detail));
        }
        _ => {}
    }
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(FieldError::not_supported(format!("{path}.reason"), &reason, &REASONS));
    }
    if let Some(given) = rule.field_path.as_deref() {
        let steps = segments(given).unwrap_or_default();
        let found = steps.iter().try_fold(schema, |node, name| node.child(name).map(|child| &**child));
        if steps.is_empty() || found.is_none() {
            errors.push(FieldError::invalid(format!("{path}.fieldPath"), &given, "must be a valid path"));
        }
    }
    if rule.optional_old_self && !rule.rule.contains("oldSelf") {
        let detail = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), &true, detail));
    }
}
