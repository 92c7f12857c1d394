//! Whether a schema is structural: every value has one type, and combinations only constrain what is declared.

use serde_json::{Map, Value, json};

use super::text;
use crate::field::FieldError;
use crate::schema::compile_pattern;

/// Where a node stands in a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Keywords of JSON Schema that no structural schema has.
pub(super) const UNSUPPORTED: [&str; 6] =
    ["id", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// The first part of a schema that structural schemas have no place for at all, worded as a refusal.
pub(super) fn unreadable(document: &Value) -> Option<String> {
    let fields = document.as_object()?;
    let filled = |key: &&str| fields.get(*key).is_some_and(is_filled);
    if let Some(key) = ["id", "$schema"].into_iter().chain(UNSUPPORTED).find(filled) {
        return Some(format!("OpenAPIV3Schema '{}' is not supported", key.trim_start_matches("$s")));
    }
    if fields.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let below = fields.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let below =
        below.chain(["items", "additionalProperties", "not"].iter().filter_map(|key| fields.get(*key)));
    let branches =
        ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| fields.get(*key)?.as_array()).flatten();
    below.chain(branches).find_map(unreadable)
}

/// Whether a keyword is there at all: not empty, not null.
pub(super) fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Checks the schema at `path`, and its root by the rules for roots.
pub(super) fn check(document: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut walk = Walk { errors: &mut errors };
    walk.node(document, path, Level::Root);
    walk.complete(document, document, path, path);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key) == Some(&Value::Bool(true))
}

fn kind_of(fields: &Map<String, Value>) -> &str {
    fields.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn properties(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn branches<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

struct Walk<'a> {
    errors: &'a mut Vec<FieldError>,
}

impl Walk<'_> {
    fn required(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::required(field, detail));
    }

    fn forbidden(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::forbidden(field, detail));
    }

    fn invalid(&mut self, field: String, value: &Value, detail: &str) {
        self.errors.push(FieldError::invalid(field, value, detail));
    }

    fn node(&mut self, document: &Value, path: &str, level: Level) {
        let Some(fields) = document.as_object() else { return };
        if kind_of(fields) == "array" && !fields.contains_key("items") {
            self.required(format!("{path}.items"), "must be specified");
        }
        if let Some(items) = fields.get("items") {
            self.node(items, &format!("{path}.items"), Level::Item);
        }
        for (name, child) in properties(fields) {
            self.node(child, &format!("{path}.properties[{name}]"), Level::Field);
        }
        if let Some(values) = fields.get("additionalProperties").filter(|values| !values.is_null()) {
            if level == Level::Root {
                self.forbidden(format!("{path}.additionalProperties"), "must not be used at the root");
            }
            self.node(values, &format!("{path}.additionalProperties"), Level::Field);
        }
        self.extensions(fields, path);
        self.combinations(fields, path);
        self.kind(fields, path, level);
        self.object(fields, path, level);
    }

    fn extensions(&mut self, fields: &Map<String, Value>, path: &str) {
        if !flag(fields, "x-kubernetes-int-or-string") {
            return;
        }
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(fields, key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.invalid(format!("{path}.{key}"), &json!(true), detail);
            }
        }
    }

    fn kind(&mut self, fields: &Map<String, Value>, path: &str, level: Level) {
        let (kind, place) = (kind_of(fields), format!("{path}.type"));
        let embedded = flag(fields, "x-kubernetes-embedded-resource");
        let open = flag(fields, "x-kubernetes-int-or-string")
            || flag(fields, "x-kubernetes-preserve-unknown-fields");
        if embedded && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match kind {
                "" => self.required(place.clone(), detail),
                kind => self.invalid(place.clone(), &json!(kind), detail),
            }
        } else if kind.is_empty() && !open {
            self.required(
                place.clone(),
                match level {
                    Level::Root => "must not be empty at the root",
                    Level::Item => "must not be empty for specified array items",
                    Level::Field => "must not be empty for specified object fields",
                },
            );
        }
        if embedded && fields.get("additionalProperties").is_some_and(|values| !values.is_null()) {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(format!("{path}.additionalProperties"), detail);
        }
        if level == Level::Root && !matches!(kind, "" | "object") {
            self.invalid(place, &json!(kind), "must be object at the root");
        }
    }

    /// What the root and embedded objects may declare of the fields that all objects have.
    fn object(&mut self, fields: &Map<String, Value>, path: &str, level: Level) {
        let embedded = flag(fields, "x-kubernetes-embedded-resource");
        let of = |key: &str| fields.get("properties").and_then(|properties| properties.get(key));
        for (key, want) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
            let Some(child) = of(key).filter(|_| level == Level::Root || embedded) else { continue };
            let kind = text(child, "type");
            if kind != want {
                let field = format!("{path}.properties[{key}].type");
                self.invalid(field, &json!(kind), &format!("must be {want}"));
            }
        }
        if level == Level::Root && of("metadata").is_some_and(has_more_than_names) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbidden(format!("{path}.properties[metadata]"), detail);
        }
        let open = flag(fields, "x-kubernetes-preserve-unknown-fields");
        if embedded && !open && properties(fields).next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.required(format!("{path}.properties"), detail);
        }
    }

    /// Branches of a node, except the customary spelling of `x-kubernetes-int-or-string`.
    fn combinations(&mut self, fields: &Map<String, Value>, path: &str) {
        let skip_any = is_int_or_string(fields);
        let skip_first =
            branches(fields, "allOf").first().and_then(Value::as_object).is_some_and(is_int_or_string);
        self.values(fields, path, skip_any, skip_first);
    }

    fn values(&mut self, fields: &Map<String, Value>, path: &str, skip_any: bool, skip_first: bool) {
        for key in ["anyOf", "allOf", "oneOf"] {
            for (index, branch) in
                branches(fields, key).iter().enumerate().filter(|_| key != "anyOf" || !skip_any)
            {
                let skip = key == "allOf" && index == 0 && skip_first;
                self.nested(branch, &format!("{path}.{key}[{index}]"), skip);
            }
        }
        if let Some(branch) = fields.get("not") {
            self.nested(branch, &format!("{path}.not"), false);
        }
        let pattern = fields.get("pattern").and_then(Value::as_str).unwrap_or_default();
        if let Err(why) = compile_pattern(pattern) {
            let detail = format!("must be a valid regular expression, but isn't: {why}");
            self.invalid(format!("{path}.pattern"), &json!(pattern), &detail);
        }
    }

    /// A branch, and what stands in it: it must not declare anything.
    fn nested(&mut self, branch: &Value, path: &str, skip_any: bool) {
        let Some(fields) = branch.as_object() else { return };
        self.values(fields, path, skip_any, false);
        if let Some(items) = fields.get("items") {
            self.nested(items, &format!("{path}.items"), false);
        }
        for (name, child) in properties(fields) {
            self.nested(child, &format!("{path}.properties[{name}]"), false);
        }
        const EMPTY: [&str; 5] =
            ["type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations"];
        for key in EMPTY.into_iter().filter(|key| fields.get(*key).is_some_and(is_filled)) {
            self.forbidden(format!("{path}.{key}"), "must be empty to be structural");
        }
        const UNDEFINED: [&str; 4] =
            ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"];
        for key in UNDEFINED.into_iter().filter(|key| fields.get(*key).is_some_and(|value| !value.is_null()))
        {
            self.forbidden(format!("{path}.{key}"), "must be undefined to be structural");
        }
        const FALSE: [&str; 4] = [
            "nullable",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ];
        for key in FALSE.into_iter().filter(|key| flag(fields, key)) {
            self.forbidden(format!("{path}.{key}"), "must be false to be structural");
        }
        if properties(fields).any(|(name, _)| name == "metadata") {
            let detail = "must not be specified in a nested context";
            self.forbidden(format!("{path}.properties[metadata]"), detail);
        }
    }

    /// What the branches at the root constrain must be declared: `values` at `at` is such a branch or the root itself,
    /// `schema` at `path` what is declared there. A real server does not look at branches further inside.
    fn complete(&mut self, values: &Value, schema: &Value, path: &str, at: &str) {
        let Some(fields) = values.as_object() else { return };
        if let Some(branch) = fields.get("not") {
            self.complete_branch(branch, schema, path, &format!("{at}.not"));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, branch) in branches(fields, key).iter().enumerate() {
                self.complete_branch(branch, schema, path, &format!("{at}.{key}[{index}]"));
            }
        }
    }

    fn complete_branch(&mut self, branch: &Value, schema: &Value, path: &str, at: &str) {
        self.complete(branch, schema, path, at);
        if let Some(items) = branch.get("items") {
            let (path, at) = (format!("{path}.items"), format!("{at}.items"));
            match schema.get("items") {
                Some(declared) => self.complete_branch(items, declared, &path, &at),
                None => self.required(path, &format!("because it is defined in {at}")),
            }
        }
        for (name, child) in branch.as_object().into_iter().flat_map(properties) {
            let (path, at) = (format!("{path}.properties[{name}]"), format!("{at}.properties[{name}]"));
            match schema.get("properties").and_then(|properties| properties.get(name)) {
                Some(declared) => self.complete_branch(child, declared, &path, &at),
                None => self.required(path, &format!("because it is defined in {at}")),
            }
        }
    }
}

/// `anyOf: [{type: integer}, {type: string}]`
fn is_int_or_string(fields: &Map<String, Value>) -> bool {
    fields.get("anyOf") == Some(&json!([{ "type": "integer" }, { "type": "string" }]))
}

/// Whether the schema of an object's metadata has more than its two names.
fn has_more_than_names(metadata: &Value) -> bool {
    let fields = metadata.as_object().into_iter().flatten();
    fields.filter(|(_, value)| is_filled(value)).any(|(key, value)| match key.as_str() {
        "type" | "default" => false,
        "properties" => value
            .as_object()
            .is_some_and(|all| all.keys().any(|key| !matches!(key.as_str(), "name" | "generateName"))),
        _ => value != &json!(false),
    })
}
