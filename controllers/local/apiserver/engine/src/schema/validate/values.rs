//! Types, constraints, formats and combinations (`anyOf`, `oneOf`, `allOf`, `not`).

use serde_json::{Map, Value};

use super::super::{Constraints, JsonType, MAX_DEPTH, Schema};
use super::{NO_FIELD, checks, correlated};
use crate::field::{FieldError, FieldReason};
use crate::schema::json::kind_of;

/// Limits the response: a list of a million invalid items must not produce a million errors.
const MAX_ERRORS: usize = 1000;

/// Checks `value`; on an update, parts that equal the corresponding part of `old` are skipped. `at` is the path of
/// `value` in the object: fields are reported below it, messages speak of paths relative to it.
pub fn check(schema: &Schema, value: &Value, old: Option<&Value>, at: &str) -> Vec<FieldError> {
    let mut checker = Checker { name: String::new(), at, errors: Vec::new(), matched: 0 };
    checker.node(schema, value, old, 0);
    // A fault that several branches find is one fault.
    let mut errors: Vec<FieldError> = Vec::new();
    for error in checker.errors {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors
}

pub(super) struct Checker<'a> {
    pub(super) name: String,
    at: &'a str,
    pub(super) errors: Vec<FieldError>,
    /// Number of checks made; the branch of an `anyOf` with the most is the closest match.
    pub(super) matched: usize,
}

impl Checker<'_> {
    pub(super) fn node(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, depth: usize) {
        if depth >= MAX_DEPTH {
            self.text(&format!("{:?} is nested too deeply", self.name));
            return;
        }
        if old == Some(value) || self.errors.len() >= MAX_ERRORS {
            return;
        }
        let typed = self.json_type(schema, value);
        if value.is_null() {
            if let Some(constraints) = &schema.constraints {
                self.enumeration(constraints, value);
            }
            return;
        }
        if let Some(constraints) = &schema.constraints {
            self.combinations(constraints, value, depth);
            self.constraints(schema, constraints, value, typed);
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, old, depth),
            Value::Array(items) => {
                let Some(item_schema) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let length = self.name.len();
                    self.name.push_str(&format!("[{index}]"));
                    self.node(item_schema, item, correlated(schema, item, old), depth + 1);
                    self.name.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Schema, fields: &Map<String, Value>, old: Option<&Value>, depth: usize) {
        for key in schema.required.iter().filter(|key| !fields.contains_key(*key)) {
            let length = self.push(key);
            self.errors.push(FieldError::required(self.field(), ""));
            self.name.truncate(length);
        }
        let whole = depth == 0 && self.at.is_empty();
        if schema.embedded_resource && !whole {
            let is_empty = |key: &&str| fields.get(*key).is_none_or(|value| value == "");
            for key in ["apiVersion", "kind"].into_iter().filter(is_empty) {
                let length = self.push(key);
                self.errors.push(FieldError::required(self.field(), ""));
                self.name.truncate(length);
            }
        }
        for (key, value) in fields {
            let Some(child) = schema.child(key) else { continue };
            let length = self.push(key);
            let old = old.and_then(|old| old.get(key));
            match value {
                Value::Object(fields) if key == "metadata" && whole => {
                    self.names(child, fields, depth + 1);
                }
                value => self.node(child, value, old, depth + 1),
            }
            self.name.truncate(length);
        }
    }

    /// Of the metadata of an object, a definition can constrain the names; the rest is checked as for every kind.
    fn names(&mut self, schema: &Schema, fields: &Map<String, Value>, depth: usize) {
        for key in ["name", "generateName"] {
            if let (Some(child), Some(value)) = (schema.properties.get(key), fields.get(key)) {
                let length = self.push(key);
                self.node(child, value, None, depth + 1);
                self.name.truncate(length);
            }
        }
    }

    fn push(&mut self, key: &str) -> usize {
        let length = self.name.len();
        if length > 0 {
            self.name.push('.');
        }
        self.name.push_str(key);
        length
    }

    /// The field that errors of this node blame.
    pub(super) fn field(&self) -> String {
        match (self.at, self.name.as_str()) {
            ("", "") => NO_FIELD.to_owned(),
            ("", name) => name.to_owned(),
            (at, "") => at.to_owned(),
            (at, name) => format!("{at}.{name}"),
        }
    }

    pub(super) fn text(&mut self, message: &str) {
        let field = if self.at.is_empty() { NO_FIELD } else { self.at };
        self.errors.push(FieldError::invalid(field, &Value::String(String::new()), message));
    }

    /// `<name> in body <what>`.
    pub(super) fn complain(&mut self, reason: FieldReason, value: &Value, what: &str) {
        let detail = format!("{} in body {what}", self.name);
        self.errors.push(FieldError::with_value(reason, self.field(), value, &detail));
    }

    fn json_type(&mut self, schema: &Schema, value: &Value) -> bool {
        self.matched += 1;
        let format = schema.constraints.as_ref().and_then(|c| c.format.as_deref());
        let fits = match schema.json_type {
            JsonType::Any if !schema.int_or_string => true,
            _ if value.is_null() => schema.nullable,
            _ if schema.int_or_string => value.is_i64() || value.is_string(),
            JsonType::Any => true,
            JsonType::Object => value.is_object(),
            JsonType::Array => value.is_array(),
            // With a format, the format decides about strings, and lists pass.
            JsonType::String => value.is_string() || (format.is_some() && value.is_array()),
            // A whole number; one with a fraction of zero was written as such before.
            JsonType::Integer => value.is_i64(),
            JsonType::Number => value.is_number(),
            JsonType::Boolean => value.is_boolean(),
        };
        if !fits {
            let got = kind_of(value);
            let want = if schema.int_or_string { "integer,string" } else { schema.json_type.name() };
            let what = format!("must be of type {want}: \"{got}\"");
            self.complain(FieldReason::TypeInvalid, &Value::String(got.to_owned()), &what);
            if value.is_number() && schema.json_type == JsonType::Integer {
                let format =
                    format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
                self.text(&format!(
                    "Checked value must be of type integer {format} in {}",
                    self.name.clone()
                ));
            }
        }
        fits
    }

    fn constraints(&mut self, schema: &Schema, constraints: &Constraints, value: &Value, typed: bool) {
        self.matched += 1;
        self.enumeration(constraints, value);
        match value {
            Value::String(text) => checks::string(self, constraints, value, text),
            Value::Number(number) => checks::number(self, schema, constraints, value, number, typed),
            Value::Array(items) => checks::array(self, constraints, items),
            Value::Object(fields) => checks::object(self, constraints, fields.len()),
            _ => {}
        }
    }

    /// Null is none of the values of a list, even if the list has it.
    fn enumeration(&mut self, constraints: &Constraints, value: &Value) {
        let Some(list) = &constraints.enumeration else { return };
        if value.is_null() || !list.iter().any(|item| checks::same(item, value)) {
            let names: Vec<String> = list.iter().map(checks::enum_name).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.errors.push(FieldError::not_supported(self.field(), value, &names));
        }
    }

    fn branch(&self, schema: &Schema, value: &Value, depth: usize) -> (Vec<FieldError>, usize) {
        let mut branch = Checker { name: self.name.clone(), at: self.at, errors: Vec::new(), matched: 0 };
        branch.node(schema, value, None, depth + 1);
        (branch.errors, branch.matched)
    }

    fn combinations(&mut self, constraints: &Constraints, value: &Value, depth: usize) {
        self.any_of(constraints, value, depth);
        self.one_of(constraints, value, depth);
        let name = format!("{:?}", self.name);
        if !constraints.all_of.is_empty() {
            let mut passed = 0;
            for branch in &constraints.all_of {
                let (errors, _) = self.branch(branch, value, depth);
                passed += usize::from(errors.is_empty());
                self.errors.extend(errors);
            }
            if passed != constraints.all_of.len() {
                let none = if passed == 0 { ". None validated" } else { "" };
                self.text(&format!("{name} must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &constraints.not
            && self.branch(not, value, depth).0.is_empty()
        {
            self.text(&format!("{name} must not validate the schema (not)"));
        }
    }

    fn any_of(&mut self, constraints: &Constraints, value: &Value, depth: usize) {
        let mut nearest: Option<(Vec<FieldError>, usize)> = None;
        for branch in &constraints.any_of {
            let outcome = self.branch(branch, value, depth);
            if outcome.0.is_empty() {
                return;
            }
            if nearest.as_ref().is_none_or(|nearest| outcome.1 > nearest.1) {
                nearest = Some(outcome);
            }
        }
        if let Some((errors, _)) = nearest {
            let name = format!("{:?}", self.name);
            self.text(&format!("{name} must validate at least one schema (anyOf)"));
            self.errors.extend(errors);
        }
    }

    fn one_of(&mut self, constraints: &Constraints, value: &Value, depth: usize) {
        if constraints.one_of.is_empty() {
            return;
        }
        let mut nearest: Option<(Vec<FieldError>, usize)> = None;
        let mut passed = 0;
        for branch in &constraints.one_of {
            let outcome = self.branch(branch, value, depth);
            if outcome.0.is_empty() {
                passed += 1;
                nearest = None;
            } else if passed == 0 && nearest.as_ref().is_none_or(|nearest| outcome.1 > nearest.1) {
                nearest = Some(outcome);
            }
        }
        let found = match passed {
            1 => return,
            0 => "Found none valid".to_owned(),
            many => format!("Found {many} valid alternatives"),
        };
        let name = format!("{:?}", self.name);
        self.text(&format!("{name} must validate one and only one schema (oneOf). {found}"));
        if let Some((errors, _)) = nearest {
            self.errors.extend(errors);
        }
    }
}
