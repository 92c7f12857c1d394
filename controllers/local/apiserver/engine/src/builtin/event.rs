//! Events of both groups, and Leases.

use serde_json::Value;

use super::{name, number, required};
use crate::field::FieldError;
use crate::object::{at, namespace, text_at};

/// The names of fields in the newer group, whose objects are checked as core ones.
fn fields(new: bool) -> [&'static str; 3] {
    if new {
        ["regarding", "note", "reportingController"]
    } else {
        ["involvedObject", "message", "reportingComponent"]
    }
}

fn is_set(object: &Value, field: &str) -> bool {
    at(object, field).is_some_and(|time| !time.is_null())
}

/// What holds for events of both groups; `new` is the form of the event.
fn validate_both(object: &Value, new: bool, errors: &mut Vec<FieldError>) {
    let [about, note, controller] = fields(new);
    let own = namespace(object);
    let about = text_at(object, &format!("{about}.namespace"));
    let timed = is_set(object, "eventTime");
    let fits = match (about, timed) {
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (about, false) => about == own,
        (_, true) => true,
    };
    if !fits {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &about, detail));
    }
    if !timed {
        return;
    }
    required(object, "", controller, errors);
    let reporter = text_at(object, controller);
    name::check(reporter, controller, name::qualified, errors);
    for field in ["reportingInstance", "action", "reason"] {
        required(object, "", field, errors);
        check_length(text_at(object, field), field, 128, errors);
    }
    check_length(text_at(object, note), "message", 1024, errors);
}

fn check_length(text: &str, field: &str, most: usize, errors: &mut Vec<FieldError>) {
    if text.len() > most {
        errors.push(FieldError::invalid(field, "", &format!("can have at most {most} characters")));
    }
}

pub(super) fn validate_core(object: &Value, errors: &mut Vec<FieldError>) {
    validate_both(object, false, errors);
}

pub(super) fn validate_new(object: &Value, errors: &mut Vec<FieldError>) {
    validate_both(object, true, errors);
    validate_series(object, errors);
    if !is_set(object, "eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text_at(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", &format!("has invalid value: {kind}")));
    }
    let source = at(object, "deprecatedSource").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    for (field, given) in [
        ("firstTimestamp", is_set(object, "deprecatedFirstTimestamp")),
        ("lastTimestamp", is_set(object, "deprecatedLastTimestamp")),
        ("count", number(object, "deprecatedCount").unwrap_or(0) != 0),
        ("source", source),
    ] {
        if given {
            errors.push(FieldError::invalid(field, "", "needs to be unset"));
        }
    }
}

fn validate_series(object: &Value, errors: &mut Vec<FieldError>) {
    if at(object, "series").is_none() {
        return;
    }
    if number(object, "series.count").unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if !is_set(object, "series.lastObservedTime") {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

/// Fields of an event that do not change, by the names of the core group and of events.k8s.io.
const FIXED: [(&str, &str); 14] = [
    ("involvedObject", "regarding"),
    ("reason", "reason"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// A change through the core group may touch everything, one through events.k8s.io only metadata and series.
pub(super) fn validate_update(object: &Value, live: &Value, new: bool, errors: &mut Vec<FieldError>) {
    validate_both(object, new, errors);
    if !new {
        return;
    }
    if at(object, "series") != at(live, "series") {
        validate_series(object, errors);
    }
    for (shown, field) in FIXED {
        if at(object, field) != at(live, field) {
            let value = at(object, field).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(shown, value, super::IMMUTABLE));
        }
    }
}
