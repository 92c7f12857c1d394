//! Network policies.

use serde_json::{Value, json};

use super::{address, items, name, number, placement};
use crate::field::FieldError;
use crate::object::text_at;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

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
    let whole = address::check_range(text, &field, errors);
    for (index, except) in items(block, "except").iter().enumerate() {
        let field = format!("{path}.except[{index}]");
        let text = except.as_str().unwrap_or_default();
        let Some(part) = address::check_range(text, &field, errors) else { continue };
        if whole.is_some_and(|whole| !whole.contains(&part.addr()) || whole.prefix_len() >= part.prefix_len())
        {
            errors.push(FieldError::invalid(field, except, "must be a strict subset of `cidr`"));
        }
    }
}
