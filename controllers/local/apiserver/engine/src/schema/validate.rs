//! Validation of custom resources against their structural schema, worded as a Kubernetes API server words it.
//!
//! Checks that a server makes in this order: the schema itself ([`values`]), list sets and maps ([`lists`]), expression
//! rules ([`super::rules`]). [`custom`] does all of them.

use serde_json::Value;

use super::{ListType, Schema, rules};
use crate::field::{FieldError, FieldReason};

mod checks;
pub mod lists;
pub mod values;

#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The whole object, pruned and defaulted.
    pub object: &'a Value,
    /// The stored object, on an update. Parts that did not change are not refused for what they were before.
    pub old: Option<&'a Value>,
    /// Only `status` is written: the schema is checked for it alone, everything else for the whole object.
    pub status_only: bool,
}

pub fn custom(schema: &Schema, subject: Subject<'_>) -> Vec<FieldError> {
    custom_with(schema, subject, Vec::new())
}

/// As [`custom`], after `earlier` errors of the same object, which take part in the question whether expression rules can be
/// run.
pub fn custom_with(schema: &Schema, subject: Subject<'_>, earlier: Vec<FieldError>) -> Vec<FieldError> {
    let mut errors = earlier;
    if subject.status_only {
        if let (Some(part), Some(value)) = (schema.properties.get("status"), subject.object.get("status")) {
            errors.extend(values::check(
                part,
                value,
                subject.old.and_then(|old| old.get("status")),
                "status",
            ));
        }
    } else {
        errors.extend(values::check(schema, subject.object, subject.old, ""));
    }
    let was_good = subject.old.is_none_or(|old| lists::check(schema, old).is_empty());
    if was_good {
        errors.extend(lists::check(schema, subject.object));
    }
    if rules::has_rules(schema) {
        if errors.iter().any(blocks_rules) {
            errors.push(FieldError::invalid(NO_FIELD, &Value::Null, NOT_CHECKED));
        } else {
            errors.extend(rules::check(schema, subject.object, subject.old));
        }
    }
    errors
}

/// How a path that names no field is printed.
pub(crate) const NO_FIELD: &str = "<nil>";

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Expressions cannot be trusted with values of the wrong shape or size.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        FieldReason::NotSupported
            | FieldReason::Required
            | FieldReason::TooLong
            | FieldReason::TooMany
            | FieldReason::TypeInvalid
    )
}

/// The item of `old` that `item` was before: by the keys of a list map, otherwise none.
pub(crate) fn correlated<'a>(schema: &Schema, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list_type else { return None };
    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
    old?.as_array()?.iter().find(same)
}

#[cfg(test)]
mod tests;
