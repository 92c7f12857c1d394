//! Services and disruption budgets.

use serde_json::{Map, Value, json};

use super::{items, set};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// Seconds that a client stays with a pod, where affinity is requested.
const AFFINITY_SECONDS: i64 = 10_800;

pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    let text = |spec: &Map<String, Value>, key: &str| {
        spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let timeout =
        spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP")?.get("timeoutSeconds"));
    match text(spec, "sessionAffinity").as_str() {
        "ClientIP" if timeout.is_none_or(Value::is_null) => {
            let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
            spec.insert("sessionAffinityConfig".to_owned(), config);
        }
        "" | "None" => {
            spec.remove("sessionAffinityConfig");
        }
        _ => {}
    }
    let kind = text(spec, "type");
    if kind == "ExternalName" {
        return;
    }
    let reachable = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || reachable {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    set(spec, "internalTrafficPolicy", json!("Cluster"));
}

pub(crate) fn default_families(spec: &mut Map<String, Value>) {
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", json!("SingleStack"));
}

/// A port leads to the port of the same number.
pub(super) fn default_target(port: &mut Map<String, Value>) {
    let none = |target: &Value| target == &json!(0) || target == &json!("");
    if port.get("targetPort").is_none_or(none)
        && let Some(number) = port.get("port").cloned()
    {
        port.insert("targetPort".to_owned(), number);
    }
}

/// Addresses that a load balancer gave are virtual ones.
pub(super) fn default_points(service: &mut Map<String, Value>) {
    if service.get("spec").and_then(|spec| spec.get("type")) != Some(&json!("LoadBalancer")) {
        return;
    }
    let status =
        service.get_mut("status").and_then(|status| status.get_mut("loadBalancer")?.get_mut("ingress"));
    for point in status.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(point) = point.as_object_mut().filter(|point| point.contains_key("ip")) {
            set(point, "ipMode", json!("VIP"));
        }
    }
}

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let kind = text_at(object, "spec.type");
    let ports = items(object, "spec.ports");
    if ports.is_empty() && text_at(object, "spec.clusterIP") != "None" && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text_at(object, "spec.externalName").is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    }
    validate_ports(ports, errors);
    for (index, address) in items(object, "spec.clusterIPs").iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        if text != "None" && text.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), address, detail));
        }
    }
}

fn validate_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let (mut names, mut used) = (Vec::new(), Vec::new());
    for (index, port) in ports.iter().enumerate() {
        let (path, name) = (format!("spec.ports[{index}]"), text_at(port, "name"));
        if !name.is_empty() {
            if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name));
            }
            names.push(name);
        } else if ports.len() > 1 {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let place = (port.get("protocol"), port.get("port"));
        if used.contains(&place) {
            errors.push(FieldError::duplicate(path, port));
        }
        used.push(place);
    }
}

/// The address stays for the life of a service, unless it becomes or was an external name.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let external = |object: &Value| text_at(object, "spec.type") == "ExternalName";
    if external(object) || external(live) {
        return;
    }
    let (new, old) = (items(object, "spec.clusterIPs"), items(live, "spec.clusterIPs"));
    if let Some(first) = new.first().filter(|first| old.first().is_some_and(|old| old != *first)) {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", first, "may not change once set"));
    }
}

pub(super) fn validate_budget(object: &Value, errors: &mut Vec<FieldError>) {
    let (least, most) = (at(object, "spec.minAvailable"), at(object, "spec.maxUnavailable"));
    if least.is_some() && most.is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", at(object, "spec").unwrap_or(&Value::Null), detail));
    }
    for (path, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        let share = value.and_then(Value::as_str);
        if share.is_some_and(|share| percent(share).is_none()) {
            let detail = "a valid percent string must be a number from 0 to 100 followed by '%'";
            errors.push(FieldError::invalid(path, value.unwrap_or(&Value::Null), detail));
        }
    }
}

fn percent(share: &str) -> Option<u8> {
    share.strip_suffix('%')?.parse().ok().filter(|percent| *percent <= 100)
}
