//! Ingresses and their classes.

use serde_json::{Value, json};

use super::name::{self, Rule, check};
use super::{items, number, part};
use crate::field::FieldError;
use crate::object::{at, text_at};

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let (rules, backend) = (items(object, "spec.rules"), at(object, "spec.defaultBackend"));
    if rules.is_empty() && backend.is_none() {
        let shown = at(object, "spec.rules").unwrap_or(&Value::Null);
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", shown, detail));
    }
    if let Some(backend) = backend {
        validate_backend(backend, "spec.defaultBackend", errors);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, &format!("spec.rules[{index}]"), errors);
    }
    for (index, entry) in items(object, "spec.tls").iter().enumerate() {
        for (at, host) in items(entry, "hosts").iter().enumerate() {
            let field = format!("spec.tls[{index}].hosts[{at}]");
            check_host(host.as_str().unwrap_or_default(), &field, errors);
        }
        let secret = text_at(entry, "secretName");
        if !secret.is_empty() {
            check(secret, &format!("spec.tls[{index}].secretName"), name::subdomain, errors);
        }
    }
    if let Some(class) = at(object, "spec.ingressClassName").and_then(Value::as_str) {
        check(class, "spec.ingressClassName", name::subdomain, errors);
    }
}

/// What holds for a new Ingress only: an older annotation names the same class.
pub(super) fn validate_class_note(object: &Value, errors: &mut Vec<FieldError>) {
    const NOTE: &str = "kubernetes.io/ingress.class";
    let noted = crate::object::meta(object).get("annotations").and_then(|notes| notes.get(NOTE));
    let class = at(object, "spec.ingressClassName");
    if let Some(noted) = noted.filter(|noted| class.is_some_and(|class| class != *noted)) {
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(format!("annotations.{NOTE}"), noted, detail));
    }
}

/// A host, or all hosts below a domain.
fn check_host(host: &str, field: &str, errors: &mut Vec<FieldError>) {
    let rule: Rule = if host.contains('*') { name::wildcard } else { name::subdomain };
    check(host, field, rule, errors);
}

fn validate_rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let host = text_at(rule, "host");
    if !host.is_empty() {
        let field = format!("{path}.host");
        if host.parse::<std::net::IpAddr>().is_ok() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(field.clone(), &json!(host), detail));
        }
        check_host(host, &field, errors);
    }
    let Some(http) = rule.get("http") else { return };
    let paths = items(http, "paths");
    if paths.is_empty() {
        errors.push(FieldError::required(format!("{path}.http.paths"), ""));
    }
    for (index, entry) in paths.iter().enumerate() {
        validate_path(entry, &format!("{path}.http.paths[{index}]"), errors);
    }
}

fn validate_path(entry: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const KINDS: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
    let Some(kind) = entry.get("pathType").and_then(Value::as_str) else {
        errors.push(FieldError::required(format!("{path}.pathType"), "pathType must be specified"));
        return;
    };
    let (text, field) = (text_at(entry, "path"), format!("{path}.path"));
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field.clone(), &json!(text), detail));
    let plain = matches!(kind, "Exact" | "Prefix");
    if !text.starts_with('/') && (plain || (kind == "ImplementationSpecific" && !text.is_empty())) {
        refuse("must be an absolute path");
    }
    if plain {
        for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
            refuse(&format!("must not contain '{part}'"));
        }
        for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
            refuse(&format!("cannot end with '{end}'"));
        }
    }
    if !KINDS.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.pathType"), &json!(kind), &KINDS));
    }
    let nothing = Value::Null;
    validate_backend(entry.get("backend").unwrap_or(&nothing), &format!("{path}.backend"), errors);
}

fn validate_backend(backend: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(path, &json!(""), detail));
    match (backend.get("resource"), backend.get("service")) {
        (Some(_), Some(_)) => refuse("cannot set both resource and service backends"),
        (None, None) => refuse("resource or service backend is required"),
        (Some(resource), None) => validate_reference(resource, &format!("{path}.resource"), errors),
        (None, Some(service)) => validate_service(service, path, errors),
    }
}

fn validate_service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (own, field) = (text_at(service, "name"), format!("{path}.service.name"));
    if own.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        check(own, &field, name::label, errors);
    }
    let (named, port) = (text_at(service, "port.name"), number(service, "port.number").unwrap_or(0));
    match (named, port) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", port) => part::check_port(port, format!("{path}.service.port.number"), errors),
        (named, 0) => check(named, &format!("{path}.service.port.name"), name::port, errors),
        _ => errors.push(FieldError::invalid(path, &json!(""), "cannot set both port name & port number")),
    }
}

/// The group, the kind and the name of another object.
fn validate_reference(target: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(group) = target.get("apiGroup").and_then(Value::as_str) {
        check(group, &format!("{path}.apiGroup"), name::subdomain, errors);
    }
    for key in ["kind", "name"] {
        match text_at(target, key) {
            "" => errors.push(FieldError::required(format!("{path}.{key}"), "")),
            text => check(text, &format!("{path}.{key}"), name::path_segment, errors),
        }
    }
}

pub(super) fn validate_class(object: &Value, errors: &mut Vec<FieldError>) {
    const LONGEST: usize = 250;
    const SCOPES: [&str; 2] = ["Cluster", "Namespace"];
    let (controller, field) = (text_at(object, "spec.controller"), "spec.controller");
    if controller.len() > LONGEST {
        errors.push(FieldError::too_long(field, LONGEST as u64));
    }
    part::check_domain_path(controller, field, errors);
    let path = "spec.parameters";
    let Some(parameters) = at(object, path) else { return };
    validate_reference(parameters, path, errors);
    let field = format!("{path}.namespace");
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    match (parameters.get("scope").and_then(Value::as_str), namespace) {
        (None, _) => errors.push(FieldError::required(format!("{path}.scope"), "")),
        (Some("Namespace"), None) => {
            errors.push(FieldError::required(field, "`parameters.scope` is set to 'Namespace'"));
        }
        (Some("Namespace"), Some(namespace)) => check(namespace, &field, name::label, errors),
        (Some("Cluster"), Some(_)) => {
            errors.push(FieldError::forbidden(field, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(scope), _) => {
            errors.push(FieldError::not_supported(format!("{path}.scope"), &json!(scope), &SCOPES));
        }
    }
}
