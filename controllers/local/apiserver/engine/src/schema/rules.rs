//! Expression rules (`x-kubernetes-validations`), written in CEL.
//!
//! A rule sees `self`, the value of its node, and, on an update, `oldSelf`. A rule that names `oldSelf` is a transition
//! rule: it only runs where there is an old value to compare with. Old values are found through objects, maps and lists
//! of type `map`; below other lists there are none. Values that did not change are not checked again.
//!
//! Before a rule runs, an upper bound of its work is computed from the expression and the sizes of the values; rules
//! above [`RULE_BUDGET`], and objects whose rules together exceed [`OBJECT_BUDGET`], are refused, so that no definition
//! can make the server spin.
//!
//! Crate `kube-cel` 0.8 was measured instead of these checks. It is for `cel` 0.13, which lacks `type(x)`, loops with two
//! variables and characters beyond ASCII in `size`, and panics at `-(min)`; its quantities overflow i128.

use serde_json::Value;

use super::validate::{NO_FIELD, correlated, lists};
use super::{MAX_DEPTH, Rule, Schema};
use crate::field::{FieldError, FieldReason};

mod check;
mod convert;
mod cost;
mod library;
pub(crate) mod program;
mod quantities;
mod types;

pub(crate) use check::most_of;
pub use cost::{OBJECT_BUDGET, RULE_BUDGET};
pub(crate) use types::{MOST_OF_ALL, MOST_OF_RULE, is_transition, segments};
pub use types::{condition_error, judge};

/// Whether any node has a rule. The answer is kept at the node.
pub fn has_rules(schema: &Schema) -> bool {
    rules_below(schema, 0)
}

fn rules_below(schema: &Schema, depth: usize) -> bool {
    // Named types are built-in ones; they have no rules and may refer to themselves.
    let Some(schema) = Some(schema).filter(|schema| depth < MAX_DEPTH && schema.type_name.is_none()) else {
        return false;
    };
    *schema.rules_below.get_or_init(|| {
        let own = schema.constraints.as_ref().is_some_and(|constraints| !constraints.rules.is_empty());
        own || schema
            .properties
            .values()
            .chain(&schema.items)
            .chain(&schema.additional)
            .any(|child| rules_below(child, depth + 1))
    })
}

/// Evaluates a condition, such as a webhook's, over named values.
///
/// # Errors
/// When it does not compile, is too expensive for these values, fails, or yields no boolean.
pub fn condition(source: &str, variables: &[(&str, Value)]) -> Result<bool, String> {
    program::condition(source, variables)
}

/// The rules that do not hold for `object`, or cannot be evaluated. `old` is the stored object, on an update.
pub fn check(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { path: String::new(), errors: Vec::new(), budget: OBJECT_BUDGET };
    walk.node(schema, object, old, 0);
    walk.errors
}

struct Walk {
    path: String,
    errors: Vec<FieldError>,
    budget: u64,
}

impl Walk {
    fn node(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, depth: usize) {
        if !rules_below(schema, depth) || old == Some(value) || self.budget == 0 {
            return;
        }
        if let Some(constraints) =
            schema.constraints.as_ref().filter(|c| !c.rules.is_empty() && !value.is_null())
        {
            let mut inputs =
                program::Inputs::new(schema, value, old.filter(|old| !old.is_null()), depth == 0);
            for rule in &constraints.rules {
                self.rule(schema, value, rule, &mut inputs);
            }
        }
        let length = self.path.len();
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let Some(child) = schema.child(key) else { continue };
                    lists::push(&mut self.path, schema, key);
                    self.node(child, value, old.and_then(|old| old.get(key)), depth + 1);
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(item_schema) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.node(item_schema, item, correlated(schema, item, old), depth + 1);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, schema: &Schema, value: &Value, rule: &Rule, inputs: &mut program::Inputs<'_>) {
        let compiled = rule.compiled.get_or_init(|| program::Program::new(rule));
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(message) => {
                self.errors.push(self.invalid(value, message));
                return;
            }
        };
        if compiled.needs_old() && !rule.optional_old_self && !inputs.has_old() {
            return;
        }
        let cost = compiled.cost(inputs);
        if cost > RULE_BUDGET || cost > self.budget {
            self.budget = 0;
            let text = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.errors.push(self.invalid(value, text));
            return;
        }
        self.budget -= cost;
        match compiled.holds(inputs, rule.optional_old_self) {
            Ok(true) => {}
            Ok(false) => {
                let detail =
                    compiled.message(inputs, rule.optional_old_self).unwrap_or_else(|| fixed_message(rule));
                self.errors.push(self.refusal(schema, value, rule, &detail));
            }
            Err(error) => {
                let text = format!("{error} evaluating rule: {}", fixed_message(rule));
                self.errors.push(self.invalid(value, &text));
            }
        }
    }

    fn refusal(&self, schema: &Schema, value: &Value, rule: &Rule, detail: &str) -> FieldError {
        let mut field = self.path.clone();
        if let Some(path) = &rule.field_path {
            types::append_field_path(&mut field, schema, path);
        }
        let field = if field.is_empty() { NO_FIELD.to_owned() } else { field };
        match rule.reason.as_deref() {
            Some("FieldValueRequired") => FieldError::required(field, detail),
            Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
            Some("FieldValueDuplicate") if is_composite(value) => {
                FieldError::bare(FieldReason::Duplicate, field, "")
            }
            Some("FieldValueDuplicate") => FieldError::duplicate(field, value),
            _ => invalid_at(field, value, detail),
        }
    }

    fn invalid(&self, value: &Value, detail: &str) -> FieldError {
        let field = if self.path.is_empty() { NO_FIELD } else { &self.path };
        invalid_at(field.to_owned(), value, detail)
    }
}

/// Objects and lists are not repeated in messages about them.
fn invalid_at(field: String, value: &Value, detail: &str) -> FieldError {
    if is_composite(value) {
        FieldError::bare(FieldReason::Invalid, field, detail)
    } else {
        FieldError::invalid(field, value, detail)
    }
}

fn is_composite(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn fixed_message(rule: &Rule) -> String {
    match rule.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => message.to_owned(),
        None => format!("failed rule: {}", rule.rule.trim()),
    }
}

#[cfg(test)]
mod tests;
