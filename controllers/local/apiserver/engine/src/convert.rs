//! Between versions that share a table: custom versions (conversion `None`), the two event groups, the two autoscalers.

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::object;
use crate::schema;
use crate::store::Stored;

/// Whether a custom object was stored under another schema than today's: fields that are gone are then hidden, and
/// defaults that came later show up, at every reading.
pub(crate) fn is_outdated(kind: &Kind, stored: &Stored) -> bool {
    kind.custom.is_some() && stored.revision < kind.since
}

pub(crate) fn fit(value: &mut Value, kind: &Kind) {
    schema::prune::prune(value, kind.schema());
    schema::default::apply_defaults(value, kind.schema());
}

pub(crate) fn convert(value: &mut Value, kind: &Kind) {
    let wanted = kind.api_version();
    let from = value.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
    match (from.as_str(), wanted.as_str()) {
        ("v1", "events.k8s.io/v1") if kind.kind == "Event" => event_to_new(value),
        ("events.k8s.io/v1", "v1") if kind.kind == "Event" => event_to_core(value),
        ("autoscaling/v2", "autoscaling/v1") => crate::convert_hpa::to_v1(value),
        ("autoscaling/v1", "autoscaling/v2") => crate::convert_hpa::to_v2(value),
        _ => {}
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), json!(wanted));
    }
    if kind.custom.is_some() {
        fit(value, kind);
    }
}

pub(crate) fn to_storage(value: &mut Value, kind: &Kind) {
    let from = value.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
    match (from.as_str(), kind.storage.as_str()) {
        (a, b) if a == b => return,
        ("events.k8s.io/v1", "v1") => event_to_core(value),
        ("autoscaling/v1", "autoscaling/v2") => crate::convert_hpa::to_v2(value),
        _ => {}
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), json!(kind.storage));
    }
}

fn rename(value: &mut Value, from: &str, to: &str) {
    if let Some(map) = value.as_object_mut()
        && let Some(item) = map.remove(from)
    {
        map.insert(to.to_owned(), item);
    }
}

const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn event_to_new(value: &mut Value) {
    for (core, new) in EVENT_FIELDS {
        rename(value, core, new);
    }
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, item| {
            !matches!(key.as_str(), "reportingController" | "reportingInstance") || *item != ""
        });
    }
}

fn event_to_core(value: &mut Value) {
    for (core, new) in EVENT_FIELDS {
        rename(value, new, core);
    }
    if object::at(value, "source").is_none()
        && let Some(map) = value.as_object_mut()
    {
        map.insert("source".into(), json!({}));
    }
}
