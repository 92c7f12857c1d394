//! Endpoint slices.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{address, items, name, number, part};
use crate::field::FieldError;
use crate::object::text_at;

/// Endpoints, the older form of slices.
pub(super) fn validate_subsets(object: &Value, errors: &mut Vec<FieldError>) {
    for (index, subset) in items(object, "subsets").iter().enumerate() {
        let path = format!("subsets[{index}]");
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(subset, list).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(path.clone(), detail));
        }
        for list in lists {
            for (index, address) in items(subset, list).iter().enumerate() {
                validate_address(address, &format!("{path}.{list}[{index}]"), errors);
            }
        }
        let ports = items(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &format!("{path}.ports[{index}]"), errors);
        }
    }
}

fn validate_address(address: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (text, field) = (text_at(address, "ip"), format!("{path}.ip"));
    let parsed = address::check(text, &field, errors);
    for (key, rule) in [("hostname", name::label as Rule), ("nodeName", name::subdomain)] {
        let own = address.get(key).and_then(Value::as_str).filter(|own| key == "nodeName" || !own.is_empty());
        for fault in own.map(rule).unwrap_or_default() {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(own), &fault));
        }
    }
    match parsed {
        Some(parsed) => address::check_special(parsed, &field, errors),
        None => errors.push(FieldError::invalid(field, &json!(text), "must be a valid IP address")),
    }
}

fn validate_port(port: &Value, named: bool, path: &str, errors: &mut Vec<FieldError>) {
    let own = text_at(port, "name");
    if named && own.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    for fault in if own.is_empty() { Vec::new() } else { name::label(own) } {
        errors.push(FieldError::invalid(format!("{path}.name"), &json!(own), &fault));
    }
    part::check_port(number(port, "port").unwrap_or(0), format!("{path}.port"), errors);
    super::one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
    part::check_app_protocol(port, path, errors);
}

type Rule = fn(&str) -> Vec<String>;

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let kind = text_at(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("addressType", &json!(kind), &kinds));
    }
    validate_ports(items(object, "ports"), errors);
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
    for (index, given) in addresses.iter().enumerate() {
        let (field, text) = (format!("{path}[{index}]"), given.as_str().unwrap_or_default());
        if kind == "FQDN" {
            for fault in name::subdomain(text) {
                errors.push(FieldError::invalid(field.clone(), given, &fault));
            }
            continue;
        }
        let Some(parsed) = address::check(text, &field, errors) else { continue };
        match (kind, parsed) {
            ("IPv4", IpAddr::V6(_)) => {
                errors.push(FieldError::invalid(path, given, "must be an IPv4 address"));
            }
            ("IPv6", IpAddr::V4(_)) => {
                errors.push(FieldError::invalid(path, given, "must be an IPv6 address"));
            }
            _ => {}
        }
        address::check_special(parsed, &field, errors);
    }
}

fn validate_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("ports[{index}]");
        let text = text_at(port, "name");
        if !text.is_empty() {
            name::check(text, &format!("{path}.name"), name::label, errors);
        }
        if names.contains(&text) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(text)));
        }
        names.push(text);
        super::one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
        part::check_app_protocol(port, &path, errors);
    }
}
