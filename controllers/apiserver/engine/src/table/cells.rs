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

/// The first few of a list, and how many more there are of `count`.
pub(super) fn shortened(all: &[String], most: usize, count: usize) -> String {
    let shown = all.iter().take(most).cloned().collect::<Vec<_>>().join(",");
    if count > most { format!("{shown} + {} more...", count - most) } else { shown }
}

fn quota_of(object: &Value, limits: bool) -> Value {
    let hard = at(object, "status.hard").and_then(Value::as_object);
    let hard: BTreeMap<&String, &Value> = hard.into_iter().flatten().collect();
    let terms: Vec<String> = hard
        .into_iter()
        .filter(|(key, _)| key.starts_with("limits.") == limits)
        .map(|(key, hard)| {
            let used =
                at(object, "status.used").and_then(|u| u.get(key)).map_or_else(|| "0".to_owned(), plain);
            format!("{key}: {used}/{}", plain(hard))
        })
        .collect();
    json!(terms.join(", "))
}

pub(super) fn quota(object: &Value, _: Timestamp) -> Value {
    quota_of(object, false)
}

pub(super) fn quota_limits(object: &Value, _: Timestamp) -> Value {
    quota_of(object, true)
}

pub(super) fn role(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", text_at(object, "roleRef.kind"), text_at(object, "roleRef.name")))
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

fn subjects(object: &Value, kind: &str) -> Value {
    let of_kind = list(object, "subjects").iter().filter(|s| text_at(s, "kind") == kind);
    let names: Vec<String> = of_kind
        .map(|s| match (kind, text_at(s, "namespace")) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", text_at(s, "name")),
            _ => text_at(s, "name").to_owned(),
        })
        .collect();
    json!(names.join(", "))
}

pub(super) fn users(object: &Value, _: Timestamp) -> Value {
    subjects(object, "User")
}

pub(super) fn groups(object: &Value, _: Timestamp) -> Value {
    subjects(object, "Group")
}

pub(super) fn accounts(object: &Value, _: Timestamp) -> Value {
    subjects(object, "ServiceAccount")
}

pub(super) fn global_default(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "globalDefault") == Some(&json!(true)))
}

pub(super) fn signer(object: &Value, _: Timestamp) -> Value {
    or_none(text_at(object, "spec.signerName"))
}
