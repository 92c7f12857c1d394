//! Label selectors inside of objects.

use serde_json::Value;

use super::{items, meta, name};
use crate::field::FieldError;
use crate::object::text_at;

pub(super) fn validate(selector: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(selector) = selector else { return };
    meta::validate_labels(selector.get("matchLabels"), &format!("{path}.matchLabels"), errors);
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        validate_item(term, &format!("{path}.matchExpressions[{index}]"), errors);
    }
}

pub(super) fn validate_item(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let operator = text_at(term, "operator");
    if !matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist") {
        errors.push(FieldError::invalid(
            format!("{path}.operator"),
            &operator,
            "not a valid selector operator",
        ));
    }
    validate_requirement(term, path, false, errors);
}

/// A requirement at `path`, whose operator may be one that is not known here; of fields, keys and values can be anything.
pub(crate) fn validate_requirement(term: &Value, path: &str, of_field: bool, errors: &mut Vec<FieldError>) {
    let (operator, values) = (text_at(term, "operator"), items(term, "values"));
    let field = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(field.clone(), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        _ => {}
    }
    if of_field {
        super::required(term, &format!("{path}."), "key", errors);
        return;
    }
    name::check(text_at(term, "key"), &format!("{path}.key"), name::qualified, errors);
    for (index, value) in values.iter().enumerate() {
        for fault in name::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), value, &fault));
        }
    }
}
