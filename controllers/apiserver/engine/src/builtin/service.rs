//! Services and disruption budgets.

pub(crate) mod kept;

use serde_json::{Map, Value, json};

use super::workload::{validate_count, validate_share};
use super::{items, number, one_of, part, set};
use crate::field::{FieldError, FieldReason};
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
    let headless = text_at(object, "spec.clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        validate_external(object, errors);
    }
    validate_ports(ports, errors);
    super::meta::validate_labels(at(object, "spec.selector"), "spec.selector", errors);
    one_of(object, "", "spec.sessionAffinity", &["ClientIP", "None"], errors);
    kept::validate_addresses(object, errors);
    validate_addresses(object, errors);
    one_of(object, "", "spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    let mut used = Vec::new();
    let mut nodes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let place = (port.get("protocol"), number(port, "nodePort").unwrap_or(0));
        if place.1 != 0 && nodes.contains(&place) {
            let field = format!("spec.ports[{index}].nodePort");
            errors.push(FieldError::duplicate(field, &json!(place.1)));
        }
        nodes.push(place);
        if kind == "ClusterIP" && number(port, "nodePort").unwrap_or(0) != 0 {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(format!("spec.ports[{index}].nodePort"), why));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let place = (port.get("protocol"), port.get("port"));
        if used.contains(&place) {
            // Shown as the server's internal type, with what the check is about only.
            let (protocol, number) = (place.0.unwrap_or(&Value::Null), place.1.unwrap_or(&Value::Null));
            let value = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            errors.push(FieldError {
                reason: FieldReason::Duplicate,
                field: format!("spec.ports[{index}]"),
                message: format!("Duplicate value: {value}"),
            });
        }
        used.push(place);
    }
    validate_traffic(object, errors);
}

fn validate_external(object: &Value, errors: &mut Vec<FieldError>) {
    let name = text_at(object, "spec.externalName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
        return;
    }
    for fault in super::name::subdomain(name.trim_end_matches('.')) {
        errors.push(FieldError::invalid("spec.externalName", &json!(name), &fault));
    }
}

fn validate_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (path, name) = (format!("spec.ports[{index}]"), text_at(port, "name"));
        if !name.is_empty() {
            super::name::check(name, &format!("{path}.name"), super::name::label, errors);
            if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
            }
            names.push(name);
        } else if ports.len() > 1 {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        part::check_port(number(port, "port").unwrap_or(0), format!("{path}.port"), errors);
        one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
        validate_target(port, &path, errors);
        part::check_app_protocol(port, &path, errors);
    }
}

/// Addresses outside of the cluster.
fn validate_addresses(object: &Value, errors: &mut Vec<FieldError>) {
    for (index, address) in items(object, "spec.externalIPs").iter().enumerate() {
        let (field, text) = (format!("spec.externalIPs[{index}]"), address.as_str().unwrap_or_default());
        if let Some(parsed) = super::address::check(text, &field, errors) {
            super::address::check_special(parsed, &field, errors);
        }
    }
}

/// Where traffic goes, of those that come from outside and from inside.
fn validate_traffic(object: &Value, errors: &mut Vec<FieldError>) {
    let policies = ["Cluster", "Local"];
    let is_reached = kept::is_reached(object);
    let (path, policy) = ("spec.externalTrafficPolicy", text_at(object, "spec.externalTrafficPolicy"));
    if !policy.is_empty() && !is_reached {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(path, &json!(policy), detail));
    } else if !policy.is_empty() {
        one_of(object, "", path, &policies, errors);
    }
    one_of(object, "", "spec.internalTrafficPolicy", &policies, errors);
}

fn validate_target(port: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.targetPort");
    match port.get("targetPort") {
        Some(Value::Number(target)) => part::check_port(target.as_i64().unwrap_or(0), field, errors),
        Some(Value::String(target)) => {
            super::name::check(target, &field, super::name::port, errors);
        }
        _ => part::check_port(0, field, errors),
    }
}

/// Addresses and families stay for the life of a service, unless it becomes or was an external name.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let external = |object: &Value| text_at(object, "spec.type") == "ExternalName";
    let headless = |object: &Value| text_at(object, "spec.clusterIP") == "None";
    if !external(object) && !external(live) {
        if !(headless(object) && headless(live)) {
            unchanged_list("spec.clusterIPs", object, live, errors);
        }
        if !headless(object) && !headless(live) {
            unchanged_list("spec.ipFamilies", object, live, errors);
        }
    }
    let class = "spec.loadBalancerClass";
    let balances = |object: &Value| text_at(object, "spec.type") == "LoadBalancer";
    let shown = at(object, class).unwrap_or(&Value::Null);
    if balances(object) && balances(live) && at(object, class) != at(live, class) {
        errors.push(FieldError::invalid(class, shown, "may not change once set"));
    }
}

/// Refuses another first value of a list, or as many others as before.
fn unchanged_list(path: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (items(object, path), items(live, path));
    let compared = if new.len() == old.len() { old.len() } else { 1 };
    for (index, _) in new.iter().zip(old).take(compared).enumerate().filter(|(_, (new, old))| new != old) {
        let index = if path == "spec.ipFamilies" { 0 } else { index };
        errors.push(FieldError::invalid(format!("{path}[{index}]"), &json!(new), "may not change once set"));
    }
}

pub(super) fn validate_budget(object: &Value, errors: &mut Vec<FieldError>) {
    let (least, most) = (at(object, "spec.minAvailable"), at(object, "spec.maxUnavailable"));
    if least.is_some() && most.is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", at(object, "spec").unwrap_or(&Value::Null), detail));
    }
    for (path, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        if let Some(value) = value {
            validate_count(value, path, errors);
            validate_share(value, path, errors);
        }
    }
    super::placement::validate_selector(at(object, "spec.selector"), "spec.selector", errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    one_of(object, "", "spec.unhealthyPodEvictionPolicy", &policies, errors);
}

pub(super) fn default_api_service(object: &mut Value) {
    let service = object.get_mut("spec").and_then(|spec| spec.get_mut("service")?.as_object_mut());
    if let Some(service) = service {
        set(service, "port", json!(443));
    }
}

pub(super) fn validate_api_service(object: &Value, errors: &mut Vec<FieldError>) {
    let text = |path: &str| text_at(object, path);
    let (name, wanted) =
        (crate::object::name(object), format!("{}.{}", text("spec.version"), text("spec.group")));
    if name != wanted && !text("spec.group").is_empty() {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(FieldError::invalid("metadata.name", &json!(name), &detail));
    }
    for (path, most) in [("spec.groupPriorityMinimum", 20_000), ("spec.versionPriority", 1000)] {
        let value = number(object, path).unwrap_or(0);
        if !(1..=most).contains(&value) {
            let detail = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(path, &json!(value), &detail));
        }
    }
    if !text("spec.caBundle").is_empty() && at(object, "spec.insecureSkipTLSVerify") == Some(&json!(true)) {
        let detail = "may not be true if caBundle is present";
        errors.push(FieldError::invalid("spec.insecureSkipTLSVerify", &json!(true), detail));
    }
}
