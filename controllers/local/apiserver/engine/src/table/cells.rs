//! Cells that take more than a path.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use neonvm_types::jsonpath::JsonPath;
use serde_json::{Value, json};

use super::{age, count};
use crate::crd::PrinterColumn;
use crate::object::{at, text_at};

pub(super) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(super) fn text_or(object: &Value, path: &str, missing: &str) -> Value {
    let text = text_at(object, path);
    json!(if text.is_empty() { missing } else { text })
}

pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A custom kind's printer column. Dates are shown as ages; the first of several hits counts, none is null.
pub(super) fn printed(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    let found = JsonPath::parse(&column.json_path).map(|path| path.find(object)).unwrap_or_default();
    let Some(first) = found.first() else { return Value::Null };
    match column.json_type.as_str() {
        "date" => first.as_str().map_or(Value::Null, |then| json!(date(then, now))),
        "string" => match first {
            Value::Null => Value::Null,
            other => json!(plain(other)),
        },
        "integer" => whole(first).map_or(Value::Null, |n| json!(n)),
        "number" if first.is_number() => (*first).clone(),
        "boolean" if first.is_boolean() => (*first).clone(),
        _ => Value::Null,
    }
}

/// How long ago a time in a custom object was.
fn date(then: &str, now: Timestamp) -> String {
    match then.parse::<Timestamp>() {
        Err(_) if !matches!(then, "" | "null") => "<invalid>".to_owned(),
        _ => age(then, now),
    }
}

/// A number without its fraction.
fn whole(number: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is meant to cut off")]
    number.as_i64().or_else(|| number.as_f64().map(|number| number.trunc() as i64))
}

pub(super) fn data_count(object: &Value, _: Timestamp) -> Value {
    json!(count(object.get("data")) + count(object.get("binaryData")))
}

pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = list(node, "status.conditions").iter().find(|c| text_at(c, "type") == "Ready");
    let mut word = match ready.map(|c| text_at(c, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(node, "spec.unschedulable") == Some(&json!(true)) {
        word.push_str(",SchedulingDisabled");
    }
    json!(word)
}

pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = node.get("metadata").and_then(|m| m.get("labels")).and_then(Value::as_object);
    let roles: BTreeSet<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => (key == "kubernetes.io/role").then(|| plain(value)),
        })
        .filter(|role| !role.is_empty())
        .collect();
    or_none(&joined(roles))
}

/// A set of texts with commas between them.
pub(super) fn joined(texts: BTreeSet<String>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(",")
}

fn address(node: &Value, kind: &str) -> Value {
    let found = list(node, "status.addresses").iter().find(|a| text_at(a, "type") == kind);
    or_none(found.map_or("", |a| text_at(a, "address")))
}

pub(super) fn node_internal(node: &Value, _: Timestamp) -> Value {
    address(node, "InternalIP")
}

pub(super) fn node_external(node: &Value, _: Timestamp) -> Value {
    address(node, "ExternalIP")
}

pub(super) fn node_os(node: &Value, _: Timestamp) -> Value {
    text_or(node, "status.nodeInfo.osImage", "<unknown>")
}

pub(super) fn node_kernel(node: &Value, _: Timestamp) -> Value {
    let (kernel, machine) =
        (text_at(node, "status.nodeInfo.kernelVersion"), text_at(node, "status.nodeInfo.architecture"));
    let kernel = if kernel.is_empty() { "<unknown>" } else { kernel };
    json!(if machine.is_empty() { kernel.to_owned() } else { format!("{kernel} ({machine})") })
}

pub(super) fn node_runtime(node: &Value, _: Timestamp) -> Value {
    text_or(node, "status.nodeInfo.containerRuntimeVersion", "<unknown>")
}

/// Labels as `a=b,c=d`, sorted.
pub(super) fn pairs(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: BTreeMap<&String, String> = pairs.map(|(key, value)| (key, plain(value))).collect();
    pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

pub(super) fn requested_duration(object: &Value, _: Timestamp) -> Value {
    let seconds = at(object, "spec.expirationSeconds").and_then(Value::as_i64);
    json!(seconds.map_or_else(|| "<none>".to_owned(), super::duration))
}

pub(super) fn request_condition(object: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| list(object, "status.conditions").iter().any(|c| text_at(c, "type") == kind);
    let decided = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text_at(object, "status.certificate").is_empty() { "" } else { ",Issued" };
    json!(format!("{decided}{failed}{issued}"))
}

pub(super) fn signer(object: &Value, _: Timestamp) -> Value {
    or_none(text_at(object, "spec.signerName"))
}
