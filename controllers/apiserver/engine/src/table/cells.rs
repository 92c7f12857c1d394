//! Cells that take more than a path.

use jiff::Timestamp;
use neonvm_types::jsonpath::JsonPath;
use serde_json::{Value, json};

use super::{age, count};
use crate::crd::PrinterColumn;
use crate::object::{at, meta_text, strings, text_at};

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
        "date" => first.as_str().map_or(Value::Null, |then| json!(age(then, now))),
        "string" => match first {
            Value::Null => Value::Null,
            other => json!(plain(other)),
        },
        "integer" => first.as_i64().map_or(Value::Null, |n| json!(n)),
        "number" if first.is_number() => (*first).clone(),
        "boolean" if first.is_boolean() => (*first).clone(),
        _ => Value::Null,
    }
}

pub(super) fn data_count(object: &Value, _: Timestamp) -> Value {
    json!(count(object.get("data")) + count(object.get("binaryData")))
}

pub(super) fn pod_ready(pod: &Value, _: Timestamp) -> Value {
    let statuses = list(pod, "status.containerStatuses");
    let ready = statuses.iter().filter(|s| s.get("ready") == Some(&json!(true))).count();
    json!(format!("{ready}/{}", list(pod, "spec.containers").len()))
}

/// The pod status that kubectl shows: the phase, unless a container's state or a deletion is more specific.
pub(super) fn pod_status(pod: &Value, _: Timestamp) -> Value {
    let mut word = text_at(pod, "status.reason").to_owned();
    if word.is_empty() {
        text_at(pod, "status.phase").clone_into(&mut word);
    }
    for status in list(pod, "status.containerStatuses").iter().rev() {
        let waiting = text_at(status, "state.waiting.reason");
        let ended = text_at(status, "state.terminated.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut word);
        } else if !ended.is_empty() {
            ended.clone_into(&mut word);
        } else if let Some(state) = at(status, "state.terminated") {
            word = match number(state, "signal") {
                0 => format!("ExitCode:{}", number(state, "exitCode")),
                signal => format!("Signal:{signal}"),
            };
        }
    }
    if !meta_text(pod, "deletionTimestamp").is_empty() {
        word = if text_at(pod, "status.reason") == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
    }
    json!(word)
}

pub(super) fn pod_restarts(pod: &Value, now: Timestamp) -> Value {
    let statuses = list(pod, "status.containerStatuses");
    let restarts: i64 = statuses.iter().map(|s| number(s, "restartCount")).sum();
    let last = statuses.iter().map(|s| text_at(s, "lastState.terminated.finishedAt")).max().unwrap_or("");
    if restarts == 0 || last.is_empty() {
        return json!(restarts.to_string());
    }
    json!(format!("{restarts} ({} ago)", age(last, now)))
}

pub(super) fn pod_ip(pod: &Value, _: Timestamp) -> Value {
    let first = list(pod, "status.podIPs").first().map_or("", |ip| text_at(ip, "ip"));
    or_none(if first.is_empty() { text_at(pod, "status.podIP") } else { first })
}

pub(super) fn pod_node(pod: &Value, _: Timestamp) -> Value {
    or_none(text_at(pod, "spec.nodeName"))
}

pub(super) fn pod_nominated(pod: &Value, _: Timestamp) -> Value {
    or_none(text_at(pod, "status.nominatedNodeName"))
}

pub(super) fn pod_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let met = |gate: &&Value| {
        let wanted = text_at(gate, "conditionType");
        list(pod, "status.conditions")
            .iter()
            .any(|c| text_at(c, "type") == wanted && text_at(c, "status") == "True")
    };
    json!(format!("{}/{}", gates.iter().filter(met).count(), gates.len()))
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
    let mut roles: Vec<String> = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.push(role.to_owned());
        } else if key == "kubernetes.io/role" {
            roles.push(plain(value));
        }
    }
    roles.sort();
    or_none(&roles.join(","))
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
    json!(match (kernel, machine) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, machine) => format!("{kernel} ({machine})"),
    })
}

pub(super) fn node_runtime(node: &Value, _: Timestamp) -> Value {
    text_or(node, "status.nodeInfo.containerRuntimeVersion", "<unknown>")
}

pub(super) fn service_ip(service: &Value, _: Timestamp) -> Value {
    or_none(text_at(service, "spec.clusterIP"))
}

pub(super) fn service_external(service: &Value, _: Timestamp) -> Value {
    let mut addresses = strings(at(service, "spec.externalIPs")).join(",");
    if text_at(service, "spec.type") == "ExternalName" {
        text_at(service, "spec.externalName").clone_into(&mut addresses);
    }
    if text_at(service, "spec.type") == "LoadBalancer" {
        let ingress = list(service, "status.loadBalancer.ingress");
        let all: Vec<&str> = ingress.iter().map(|i| text_at(i, "ip")).collect();
        addresses = if all.is_empty() && addresses.is_empty() { "<pending>".into() } else { all.join(",") };
    }
    or_none(&addresses)
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

pub(super) fn pairs(map: Option<&Value>) -> String {
    let pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    pairs.join(",")
}

pub(super) fn service_selector(service: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(service, "spec.selector")))
}

pub(super) fn pod_selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.podSelector")))
}

fn event_time<'a>(event: &'a Value, paths: &[&str]) -> &'a str {
    paths.iter().map(|path| text_at(event, path)).find(|text| !text.is_empty()).unwrap_or("")
}

pub(super) fn event_last(event: &Value, now: Timestamp) -> Value {
    const PATHS: &[&str] =
        &["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp", "eventTime"];
    json!(age(event_time(event, PATHS), now))
}

pub(super) fn event_first(event: &Value, now: Timestamp) -> Value {
    const PATHS: &[&str] = &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"];
    json!(age(event_time(event, PATHS), now))
}

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let kind = text_at(event, &format!("{about}.kind")).to_lowercase();
    json!(format!("{kind}/{}", text_at(event, &format!("{about}.name"))))
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
    let found =
        ["series.count", "count", "deprecatedCount"].iter().map(|path| number(event, path)).find(|n| *n > 0);
    json!(found.unwrap_or(1).to_string())
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        for address in list(subset, "addresses") {
            for port in list(subset, "ports") {
                all.push(format!("{}:{}", text_at(address, "ip"), number(port, "port")));
            }
        }
    }
    shortened(&all)
}

fn shortened(all: &[String]) -> Value {
    match all.len() {
        0..=3 => or_none(&all.join(",")),
        many => json!(format!(
            "{} + {} more...",
            all.iter().take(3).cloned().collect::<Vec<_>>().join(","),
            many - 3
        )),
    }
}

pub(super) fn access_modes(object: &Value, _: Timestamp) -> Value {
    let modes = at(object, "status.accessModes").or_else(|| at(object, "spec.accessModes"));
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    json!(strings(modes).into_iter().map(short).collect::<Vec<_>>().join(","))
}

pub(super) fn attributes_class(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeAttributesClassName", "<unset>")
}

pub(super) fn volume_mode(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeMode", "<unset>")
}

pub(super) fn claim(object: &Value, _: Timestamp) -> Value {
    let name = text_at(object, "spec.claimRef.name");
    json!(if name.is_empty() {
        String::new()
    } else {
        format!("{}/{name}", text_at(object, "spec.claimRef.namespace"))
    })
}

fn quota_of(object: &Value, limits: bool) -> Value {
    let hard = at(object, "status.hard").and_then(Value::as_object);
    let terms: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("limits") == limits)
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

pub(super) fn expansion(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "allowVolumeExpansion") == Some(&json!(true)))
}

pub(super) fn global_default(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "globalDefault") == Some(&json!(true)))
}

pub(super) fn ingress_class(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.ingressClassName", "<none>")
}

pub(super) fn ingress_hosts(object: &Value, _: Timestamp) -> Value {
    let hosts: Vec<String> = list(object, "spec.rules")
        .iter()
        .map(|rule| text_at(rule, "host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    if hosts.is_empty() { json!("*") } else { shortened(&hosts) }
}

pub(super) fn ingress_address(object: &Value, _: Timestamp) -> Value {
    let all = list(object, "status.loadBalancer.ingress").iter();
    let shown =
        all.map(|i| if text_at(i, "ip").is_empty() { text_at(i, "hostname") } else { text_at(i, "ip") });
    json!(shown.collect::<Vec<_>>().join(","))
}

pub(super) fn ingress_ports(object: &Value, _: Timestamp) -> Value {
    json!(if list(object, "spec.tls").is_empty() { "80" } else { "80, 443" })
}

pub(super) fn parameters(object: &Value, _: Timestamp) -> Value {
    let of = |key: &str| text_at(object, &format!("spec.parameters.{key}"));
    or_none(&if of("kind").is_empty() { String::new() } else { format!("{}/{}", of("kind"), of("name")) })
}

pub(super) fn slice_ports(object: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = list(object, "ports").iter().map(|p| number(p, "port").to_string()).collect();
    if ports.is_empty() { json!("<unset>") } else { shortened(&ports) }
}

pub(super) fn slice_endpoints(object: &Value, _: Timestamp) -> Value {
    let all: Vec<String> = list(object, "endpoints")
        .iter()
        .flat_map(|e| strings(e.get("addresses")))
        .map(str::to_owned)
        .collect();
    if all.is_empty() { json!("<unset>") } else { shortened(&all) }
}

pub(super) fn api_service(object: &Value, _: Timestamp) -> Value {
    let name = text_at(object, "spec.service.name");
    json!(if name.is_empty() {
        "Local".to_owned()
    } else {
        format!("{}/{name}", text_at(object, "spec.service.namespace"))
    })
}

pub(super) fn api_available(object: &Value, _: Timestamp) -> Value {
    let condition = list(object, "status.conditions").iter().find(|c| text_at(c, "type") == "Available");
    json!(match condition {
        Some(c) if text_at(c, "status") == "True" => "True".to_owned(),
        Some(c) => format!("{} ({})", text_at(c, "status"), text_at(c, "reason")),
        None => "Unknown".to_owned(),
    })
}
