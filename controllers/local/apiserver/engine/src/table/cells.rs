//! Cells that take more than a path; those of pods are in `pod_cells`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use neonvm_types::jsonpath::JsonPath;
use serde_json::{Value, json};

use super::{age, count};
use crate::crd::PrinterColumn;
use crate::object::{at, is_deleting, strings, text_at};

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

fn event_time<'a>(event: &'a Value, paths: &[&str]) -> &'a str {
    paths.iter().map(|path| text_at(event, path)).find(|text| !text.is_empty()).unwrap_or("")
}

pub(super) fn event_last(event: &Value, now: Timestamp) -> Value {
    if at(event, "series").is_some() {
        return json!(age(text_at(event, "series.lastObservedTime"), now));
    }
    match event_time(event, &["lastTimestamp", "deprecatedLastTimestamp"]) {
        "" => event_first(event, now),
        last => json!(age(last, now)),
    }
}

pub(super) fn event_first(event: &Value, now: Timestamp) -> Value {
    const PATHS: &[&str] = &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"];
    json!(age(event_time(event, PATHS), now))
}

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let kind = text_at(event, &format!("{about}.kind")).to_lowercase();
    let name = text_at(event, &format!("{about}.name"));
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
    const COMPONENT: &[&str] =
        &["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"];
    let host = event_time(event, &["source.host", "deprecatedSource.host", "reportingInstance"]);
    let component = event_time(event, COMPONENT);
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

pub(super) fn event_message(event: &Value, _: Timestamp) -> Value {
    json!(event_time(event, &["message", "note"]).trim())
}

pub(super) fn event_count(event: &Value, _: Timestamp) -> Value {
    if at(event, "series").is_some() {
        return json!(number(event, "series.count"));
    }
    json!(number(event, "count").max(number(event, "deprecatedCount")).max(1))
}

pub(super) fn service_ip(service: &Value, _: Timestamp) -> Value {
    or_none(text_at(service, "spec.clusterIP"))
}

pub(super) fn service_external(service: &Value, _: Timestamp) -> Value {
    let own = strings(at(service, "spec.externalIPs")).join(",");
    match text_at(service, "spec.type") {
        "ClusterIP" | "NodePort" => or_none(&own),
        "LoadBalancer" => {
            let given = ingress_points(service);
            let both: Vec<String> = [given, own].into_iter().filter(|text| !text.is_empty()).collect();
            json!(if both.is_empty() { "<pending>".to_owned() } else { both.join(",") })
        }
        "ExternalName" => json!(text_at(service, "spec.externalName")),
        _ => json!("<unknown>"),
    }
}

/// Addresses or names that a load balancer gave.
fn ingress_points(object: &Value) -> String {
    let all = list(object, "status.loadBalancer.ingress").iter();
    let points =
        all.map(|i| if text_at(i, "ip").is_empty() { text_at(i, "hostname") } else { text_at(i, "ip") });
    joined(points.filter(|point| !point.is_empty()).map(str::to_owned).collect())
}

pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = list(service, "spec.ports")
        .iter()
        .map(|p| match number(p, "nodePort") {
            0 => format!("{}/{}", number(p, "port"), text_at(p, "protocol")),
            node => format!("{}:{node}/{}", number(p, "port"), text_at(p, "protocol")),
        })
        .collect();
    or_none(&ports.join(","))
}

pub(super) fn service_selector(service: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(service, "spec.selector")))
}

/// Access modes in short, in a fixed order.
pub(super) fn modes(modes: Option<&Value>) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = strings(modes);
    let known = SHORT.iter().filter(|(long, _)| modes.contains(long));
    known.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) fn volume_modes(volume: &Value, _: Timestamp) -> Value {
    json!(modes(at(volume, "spec.accessModes")))
}

/// The modes of the volume a claim is bound to.
pub(super) fn claim_modes(claim: &Value, _: Timestamp) -> Value {
    json!(if is_bound(claim) { modes(at(claim, "status.accessModes")) } else { String::new() })
}

fn is_bound(claim: &Value) -> bool {
    !text_at(claim, "spec.volumeName").is_empty()
}

fn storage(object: &Value, path: &str) -> Value {
    json!(at(object, path).map_or_else(|| "0".to_owned(), plain))
}

pub(super) fn volume_size(volume: &Value, _: Timestamp) -> Value {
    storage(volume, "spec.capacity.storage")
}

pub(super) fn claim_size(claim: &Value, _: Timestamp) -> Value {
    if is_bound(claim) { storage(claim, "status.capacity.storage") } else { json!("") }
}

/// The phase of a volume or claim, unless it is being deleted.
pub(super) fn phase(object: &Value, _: Timestamp) -> Value {
    json!(if is_deleting(object) { "Terminating" } else { text_at(object, "status.phase") })
}

/// The storage class, which an old annotation may hold.
pub(super) fn storage_class(object: &Value, _: Timestamp) -> Value {
    let old = object
        .get("metadata")
        .and_then(|m| m.get("annotations")?.get("volume.beta.kubernetes.io/storage-class"));
    json!(old.and_then(Value::as_str).unwrap_or_else(|| text_at(object, "spec.storageClassName")))
}

/// The name, marked if an annotation makes the class the default.
pub(super) fn class_name(object: &Value, annotations: &[&str]) -> Value {
    let own = object.get("metadata").and_then(|m| m.get("annotations"));
    let default = annotations.iter().any(|key| own.and_then(|own| own.get(key)) == Some(&json!("true")));
    json!(format!("{}{}", crate::object::name(object), if default { " (default)" } else { "" }))
}

pub(super) fn storage_class_name(object: &Value, _: Timestamp) -> Value {
    let keys =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    class_name(object, &keys)
}

pub(super) fn attributes_class(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeAttributesClassName", "<unset>")
}

pub(super) fn volume_mode(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeMode", "<unset>")
}

pub(super) fn claim(volume: &Value, _: Timestamp) -> Value {
    let of = |key: &str| text_at(volume, &format!("spec.claimRef.{key}"));
    json!(if at(volume, "spec.claimRef").is_some() {
        format!("{}/{}", of("namespace"), of("name"))
    } else {
        String::new()
    })
}

pub(super) fn expansion(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "allowVolumeExpansion") == Some(&json!(true)))
}

pub(super) fn node_selector(set: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(set, "spec.template.spec.nodeSelector")))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.selector")))
}

/// As [`selector`], but nothing is shown as nothing.
pub(super) fn deployment_selector(object: &Value, _: Timestamp) -> Value {
    json!(crate::selector::text_of(at(object, "spec.selector")))
}

fn of_containers(object: &Value, path: &str, key: &str) -> Value {
    json!(list(object, path).iter().map(|c| text_at(c, key)).collect::<Vec<_>>().join(","))
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "name")
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "image")
}

pub(super) fn deployment_ready(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")))
}
