//! What a pod has of the network and of the names in it.

use serde_json::{Value, json};

use super::{address, items, name, number};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// `dnsConfig` of the pod spec at `prefix`.
pub(super) fn validate_dns(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{prefix}dnsConfig");
    let config = spec.get("dnsConfig");
    let servers = config.map_or(&[][..], |config| items(config, "nameservers"));
    if text_at(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let (field, what) = match config {
            None => (path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            Some(_) => (
                format!("{path}.nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ),
        };
        errors.push(FieldError::required(field, what));
        return;
    }
    let Some(config) = config else { return };
    if servers.len() > 3 {
        let field = format!("{path}.nameservers");
        errors.push(FieldError::invalid(field, &json!(servers), "must not have more than 3 nameservers"));
    }
    for (index, server) in servers.iter().enumerate() {
        let field = format!("{path}.nameservers[{index}]");
        address::check(server.as_str().unwrap_or_default(), &field, errors);
    }
    validate_searches(items(config, "searches"), &format!("{path}.searches"), errors);
    for (index, option) in items(config, "options").iter().enumerate() {
        if text_at(option, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.options[{index}]"), "must not be empty"));
        }
    }
}

/// The domains that names are looked up in.
fn validate_searches(searches: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if searches.len() > 32 {
        errors.push(FieldError::invalid(path, &json!(searches), "must not have more than 32 search paths"));
    }
    let texts: Vec<&str> = searches.iter().filter_map(Value::as_str).collect();
    if texts.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid(path, &json!(searches), detail));
    }
    for (index, text) in texts.into_iter().enumerate().filter(|(_, text)| *text != ".") {
        let text = text.strip_suffix('.').unwrap_or(text);
        name::check(text, &format!("{path}[{index}]"), name::search, errors);
    }
}

/// `hostAliases` of the pod spec at `prefix`.
pub(super) fn validate_aliases(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = format!("{prefix}hostAliases[{index}]");
        address::check(text_at(alias, "ip"), &format!("{path}.ip"), errors);
        for (at, host) in items(alias, "hostnames").iter().enumerate() {
            for fault in name::subdomain(host.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(format!("{path}.hostnames[{at}]"), host, &fault));
            }
        }
    }
}

/// On the host's network a port of a container is the host's, which a template may leave open.
pub(super) fn validate_host(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    if !is_true(spec, "hostNetwork") {
        return;
    }
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for (at, port) in items(container, "ports").iter().enumerate() {
            let (own, host) = (number(port, "containerPort"), number(port, "hostPort").unwrap_or(0));
            if own != Some(host) && (prefix == "spec." || host != 0) {
                let field = format!("{prefix}containers[{index}].ports[{at}].hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(field, &json!(host), detail));
            }
        }
    }
}

/// Whether the users of the pod are those of the host.
pub(super) fn has_host_users(spec: &Value) -> bool {
    at(spec, "hostUsers") != Some(&json!(false))
}

/// A pod with users of its own shares nothing else with the host.
pub(super) fn validate_users(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const WHY: &str = "when `hostUsers` is false";
    if has_host_users(spec) {
        return;
    }
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if is_true(spec, key) {
            errors.push(FieldError::forbidden(format!("{prefix}{shown}"), WHY));
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            if !items(container, "volumeDevices").is_empty() {
                let field = format!("{prefix}{list}[{index}].volumeDevices");
                errors.push(FieldError::forbidden(field, WHY));
            }
        }
    }
}

/// `hostnameOverride` of the pod spec at `prefix`.
pub(super) fn validate_hostname(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let Some(text) = spec.get("hostnameOverride").and_then(Value::as_str) else { return };
    let field = format!("{prefix}hostnameOverride");
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if is_true(spec, key) {
            let why = format!("may not be specified when {key} is true");
            errors.push(FieldError::forbidden(field.clone(), &why));
        }
    }
    if text.len() > 64 {
        errors.push(FieldError::too_long(field.clone(), 64));
    }
    name::check(text, &field, name::subdomain, errors);
}

fn is_true(value: &Value, key: &str) -> bool {
    at(value, key) == Some(&json!(true))
}
