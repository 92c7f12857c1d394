//! What a change of a service's type does to fields that depend on it, and the addresses of a service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::builtin::{address, items, number, one_of};
use crate::field::FieldError;
use crate::object::{at, drop_key, text_at};

/// Removes from the spec of a service what its new type does not use, if the change left it as the server had filled it
/// in.
pub(crate) fn drop_unused(new: &mut Value, old: &Value) {
    name_address(new, old);
    let kind = |service: &Value| text_at(service, "spec.type").to_owned();
    let (now, before) = (kind(new), kind(old));
    let same = |key: &str, new: &Value| at(new, &format!("spec.{key}")) == at(old, &format!("spec.{key}"));
    let mut unused: Vec<&str> = Vec::new();
    if now == "ExternalName" && before != now {
        if same("clusterIP", new) && same("clusterIPs", new) {
            unused.extend(["clusterIP", "clusterIPs"]);
        }
        unused.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|key| same(key, new)));
    }
    let checked = |service: &Value| {
        kind(service) == "LoadBalancer" && text_at(service, "spec.externalTrafficPolicy") == "Local"
    };
    if checked(old) && !checked(new) && same("healthCheckNodePort", new) {
        unused.push("healthCheckNodePort");
    }
    if before == "LoadBalancer" && now != before {
        let keys = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
        unused.extend(keys.into_iter().filter(|key| same(key, new)));
    }
    if is_reached(old) && !is_reached(new) && same("externalTrafficPolicy", new) {
        unused.push("externalTrafficPolicy");
    }
    let has_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let free_ports = has_ports(&before) && !has_ports(&now) && node_ports(new) == node_ports(old);
    let Some(spec) = new.get_mut("spec") else { return };
    for key in unused {
        drop_key(spec, key);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if free_ports {
            drop_key(port, "nodePort");
        }
    }
}

/// Another address of a service is also the first one of its list, if the list was left as it was.
fn name_address(new: &mut Value, old: &Value) {
    let (now, before) = (text_at(new, "spec.clusterIP"), text_at(old, "spec.clusterIP"));
    if now.is_empty() || now == before || items(new, "spec.clusterIPs") != items(old, "spec.clusterIPs") {
        return;
    }
    let now = json!(now);
    let first = new.pointer_mut("/spec/clusterIPs/0");
    first.into_iter().for_each(|first| *first = now.clone());
}

/// Whether clients outside of the cluster reach the service.
pub(super) fn is_reached(service: &Value) -> bool {
    match text_at(service, "spec.type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !items(service, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    let ports = items(service, "spec.ports").iter().filter_map(|port| number(port, "nodePort"));
    ports.filter(|port| *port != 0).collect()
}

/// The addresses of a service in the cluster, and their families.
pub(in crate::builtin) fn validate_addresses(object: &Value, errors: &mut Vec<FieldError>) {
    const LIST: &str = "spec.clusterIPs";
    if text_at(object, "spec.type") == "ExternalName" {
        return;
    }
    let (single, all) = (text_at(object, "spec.clusterIP"), items(object, LIST));
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(LIST, &json!(all), detail));
    match all.first() {
        // The list of a new service is filled in later.
        None => {}
        Some(_) if single.is_empty() => refuse("must be empty when `clusterIP` is not specified"),
        Some(first) if first != single => refuse("first value must match `clusterIP`"),
        Some(_) => {}
    }
    let families = items(object, "spec.ipFamilies");
    validate_families(families, errors);
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(object, "", "spec.ipFamilyPolicy", &policies, errors);
    let Some(parsed) = parse(all, LIST, errors) else { return };
    let has_both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if all.len() > 1 && !has_both {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(LIST, &json!(all), detail));
    }
    for (index, (address, family)) in parsed.iter().zip(families).enumerate() {
        let wanted = family.as_str().unwrap_or_default();
        if matches!((wanted, address), ("IPv4", IpAddr::V6(_)) | ("IPv6", IpAddr::V4(_))) {
            let detail = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            let shown = all.get(index).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(format!("{LIST}[{index}]"), shown, &detail));
        }
    }
}

fn validate_families(families: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !["IPv4", "IPv6"].iter().any(|known| family == known) {
            errors.push(FieldError::not_supported(field.clone(), family, &["IPv4", "IPv6"]));
        }
        if seen.contains(&family) {
            errors.push(FieldError::duplicate(field, family));
        }
        seen.push(family);
    }
}

/// The addresses, if they are ones; `None` stands for no address and is alone.
fn parse(all: &[Value], list: &str, errors: &mut Vec<FieldError>) -> Option<Vec<IpAddr>> {
    let before = errors.len();
    let mut parsed = Vec::new();
    for (index, address) in all.iter().enumerate() {
        if index == 0 && address == "None" {
            if all.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(list, &json!(all), detail));
            }
            continue;
        }
        let text = address.as_str().unwrap_or_default();
        parsed.extend(address::check(text, &format!("{list}[{index}]"), errors));
    }
    let fine = errors.len() == before;
    if all.len() > 2 {
        errors.push(FieldError::invalid(list, &json!(all), "may only hold up to 2 values"));
    }
    fine.then_some(parsed)
}
