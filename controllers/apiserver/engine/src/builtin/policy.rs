//! Network policies, and addresses as several kinds have them.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{items, name, number, placement};
use crate::field::FieldError;
use crate::object::text_at;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    placement::validate_selector(object.pointer("/spec/podSelector"), "spec.podSelector", errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(object, &format!("spec.{list}")).iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            for (index, port) in items(rule, "ports").iter().enumerate() {
                validate_port(port, &format!("{path}.ports[{index}]"), errors);
            }
            for (index, peer) in items(rule, peers).iter().enumerate() {
                validate_peer(peer, &format!("{path}.{peers}[{index}]"), errors);
            }
        }
    }
    let (types, known) = (items(object, "spec.policyTypes"), ["Ingress", "Egress"]);
    if types.len() > known.len() {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid("spec.policyTypes", &json!(types), detail));
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        if !kind.as_str().is_some_and(|kind| known.contains(&kind)) {
            errors.push(FieldError::not_supported(format!("spec.policyTypes[{index}]"), kind, &known));
        }
    }
}

fn validate_port(port: &Value, path: &str, errors: &mut Vec<FieldError>) {
    super::one_of(port, &format!("{path}."), "protocol", &PROTOCOLS, errors);
    let (own, last) = (format!("{path}.port"), format!("{path}.endPort"));
    let end = number(port, "endPort");
    match (port.get("port"), end) {
        (Some(Value::Number(first)), end) => {
            let first = first.as_i64().unwrap_or(0);
            super::part::check_port(first, own, errors);
            if let Some(end) = end {
                if end < first {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(last.clone(), &json!(first), detail));
                }
                super::part::check_port(end, last, errors);
            }
        }
        (Some(named), end) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(last, &json!(end), detail));
            }
            for fault in name::port(named.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(own.clone(), named, &fault));
            }
        }
        (None, Some(end)) => {
            let detail = "may not be specified when `port` is not specified";
            errors.push(FieldError::invalid(last, &json!(end), detail));
        }
        (None, None) => {}
    }
}

fn validate_peer(peer: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["podSelector", "namespaceSelector", "ipBlock"];
    let count = kinds.iter().filter(|kind| peer.get(**kind).is_some()).count();
    for kind in kinds.iter().take(2) {
        placement::validate_selector(peer.get(*kind), &format!("{path}.{kind}"), errors);
    }
    if let Some(block) = peer.get("ipBlock") {
        validate_block(block, &format!("{path}.ipBlock"), errors);
        if count > 1 {
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
    }
    if count == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    }
}

fn validate_block(block: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (text, field) = (text_at(block, "cidr"), format!("{path}.cidr"));
    if text.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let whole = cidr(text);
    if whole.is_none() {
        errors.push(FieldError::invalid(field, &json!(text), CIDR));
    }
    for (index, except) in items(block, "except").iter().enumerate() {
        let field = format!("{path}.except[{index}]");
        let Some(part) = cidr(except.as_str().unwrap_or_default()) else {
            errors.push(FieldError::invalid(field, except, CIDR));
            continue;
        };
        if whole.is_some_and(|whole| !whole.contains(&part.addr()) || whole.prefix_len() >= part.prefix_len())
        {
            errors.push(FieldError::invalid(field, except, "must be a strict subset of `cidr`"));
        }
    }
}

fn cidr(text: &str) -> Option<ipnet::IpNet> {
    text.parse().ok()
}

/// Refuses what is no range of addresses.
pub(super) fn check_cidr(text: &str, field: &str, errors: &mut Vec<FieldError>) {
    if cidr(text).is_none() {
        errors.push(FieldError::invalid(field, &json!(text), CIDR));
    }
}

/// Refuses an address that leads to no other host.
pub(super) fn check_special(address: IpAddr, field: &str, errors: &mut Vec<FieldError>) {
    let value = json!(address.to_string());
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, &value, detail));
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        refuse("may not be unspecified (0.0.0.0 or ::)");
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// `endpoints` and `ports` of an endpoint slice.
pub(super) fn validate_slice(object: &Value, errors: &mut Vec<FieldError>) {
    let kind = text_at(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("addressType", &json!(kind), &kinds));
    }
    validate_slice_ports(items(object, "ports"), errors);
    for (index, endpoint) in items(object, "endpoints").iter().enumerate() {
        let path = format!("endpoints[{index}]");
        validate_addresses(items(endpoint, "addresses"), kind, &format!("{path}.addresses"), errors);
        for (key, rule) in
            [("nodeName", name::subdomain as fn(&str) -> Vec<String>), ("hostname", name::label)]
        {
            let Some(text) = endpoint.get(key).and_then(Value::as_str) else { continue };
            for fault in rule(text) {
                errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(text), &fault));
            }
        }
    }
}

fn validate_addresses(addresses: &[Value], kind: &str, path: &str, errors: &mut Vec<FieldError>) {
    if addresses.is_empty() {
        errors.push(FieldError::required(path, "must contain at least 1 address"));
    }
    for (index, address) in addresses.iter().enumerate() {
        let (field, text) = (format!("{path}[{index}]"), address.as_str().unwrap_or_default());
        if kind == "FQDN" {
            for fault in name::subdomain(text) {
                errors.push(FieldError::invalid(field.clone(), address, &fault));
            }
            continue;
        }
        let Ok(parsed) = text.parse::<IpAddr>() else {
            errors.push(FieldError::invalid(field, address, super::network::ADDRESS));
            continue;
        };
        match (kind, parsed) {
            ("IPv4", IpAddr::V6(_)) => {
                errors.push(FieldError::invalid(path, address, "must be an IPv4 address"));
            }
            ("IPv6", IpAddr::V4(_)) => {
                errors.push(FieldError::invalid(path, address, "must be an IPv6 address"));
            }
            _ => {}
        }
        check_special(parsed, &field, errors);
    }
}

fn validate_slice_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("ports[{index}]");
        let text = text_at(port, "name");
        if !text.is_empty() {
            for fault in name::label(text) {
                errors.push(FieldError::invalid(format!("{path}.name"), &json!(text), &fault));
            }
        }
        if names.contains(&text) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(text)));
        }
        names.push(text);
        super::one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            for fault in name::qualified(protocol) {
                errors.push(FieldError::invalid(format!("{path}.appProtocol"), &json!(protocol), &fault));
            }
        }
    }
}
