//! Pods and the pod templates of workloads.

mod update;

use serde_json::{Map, Value, json};

use super::container::{self, Surroundings};
use super::resources::{self, LISTS};
use super::{env, items, meta, name, network, number, one_of, placement, security, set, volume, windows};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

pub(super) use update::{validate_status, validate_update};

/// Defaults of a pod that templates do not get.
pub(super) fn default(pod: &mut Map<String, Value>) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        set(spec, "enableServiceLinks", json!(true));
        let on_host = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
        for list in LISTS {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                resources::default_requests(container);
                if on_host {
                    default_host_ports(container);
                }
            }
        }
        resources::default_pod_requests(spec);
    }
    let class = resources::quality_class(pod.get("spec").unwrap_or(&Value::Null));
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        set(status, "qosClass", json!(class));
    }
}

/// On the host's network a port is the host's port.
fn default_host_ports(container: &mut Value) {
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        let unset = port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0;
        if let Some(number) = port.get("containerPort").cloned().filter(|_| unset) {
            port.insert("hostPort".to_owned(), number);
        }
    }
}

/// A new pod.
pub(super) fn validate_create(pod: &Value, errors: &mut Vec<FieldError>) {
    validate(pod, errors);
    if !items(pod, "spec.ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !text_at(pod, "spec.nodeName").is_empty() && !items(pod, "spec.schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
}

/// A pod at any time.
fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    validate_spec(spec, "spec.", errors);
    if text_at(spec, "serviceAccountName").is_empty() {
        refuse_tokens(spec, errors);
    }
    container::validate_of_pod(spec, errors);
}

/// Without a service account there are no tokens.
fn refuse_tokens(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        for (at, source) in items(volume, "projected.sources").iter().enumerate() {
            if source.get("serviceAccountToken").is_some() {
                let field = format!("spec.volumes[{index}].projected.sources[{at}].serviceAccountToken");
                let why = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(field, why));
            }
        }
    }
}

/// The pod spec of a template whose fields stand at `prefix`.
pub(super) fn validate_template(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    validate_spec(spec, prefix, errors);
    if !items(spec, "ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{prefix}ephemeralContainers"), why));
    }
}

/// A pod spec whose fields stand at `prefix`. The order of the faults is that of a real server.
fn validate_spec(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    let volumes = volume::validate_volumes(spec, prefix, errors);
    let claims: Vec<&str> =
        items(spec, "resourceClaims").iter().map(|claim| text_at(claim, "name")).collect();
    let around = Surroundings {
        volumes: &volumes,
        claims: &claims,
        restarts: text_at(spec, "restartPolicy"),
        grace: number(spec, "terminationGracePeriodSeconds"),
        host_users: network::has_host_users(spec),
    };
    validate_claims(spec, prefix, errors);
    container::validate_all(spec, prefix, &around, errors);
    resources::validate_pod(spec, prefix, &claims, errors);
    network::validate_host(spec, prefix, errors);
    one_of(spec, prefix, "restartPolicy", &["Always", "OnFailure", "Never"], errors);
    one_of(spec, prefix, "dnsPolicy", &POLICIES, errors);
    meta::validate_labels(spec.get("nodeSelector"), &format!("{prefix}nodeSelector"), errors);
    security::validate_pod(spec, prefix, errors);
    placement::validate_affinity(spec, prefix, errors);
    network::validate_dns(spec, prefix, errors);
    placement::validate_gates(spec, prefix, errors);
    placement::validate_spread(spec, prefix, errors);
    windows::validate_host_processes(spec, prefix, errors);
    network::validate_users(spec, prefix, errors);
    network::validate_hostname(spec, prefix, errors);
    check_name(spec, prefix, "serviceAccountName", name::subdomain, errors);
    check_name(spec, prefix, "nodeName", name::subdomain, errors);
    if let Some(seconds) = number(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(format!("{prefix}activeDeadlineSeconds"), &json!(seconds), detail));
    }
    check_name(spec, prefix, "hostname", name::label, errors);
    check_name(spec, prefix, "subdomain", name::label, errors);
    placement::validate_tolerations(spec, prefix, errors);
    network::validate_aliases(spec, prefix, errors);
    check_name(spec, prefix, "priorityClassName", name::subdomain, errors);
    check_name(spec, prefix, "runtimeClassName", name::subdomain, errors);
    one_of(spec, prefix, "preemptionPolicy", &["PreemptLowerPriority", "Never"], errors);
    if let Some(overhead) = spec.get("overhead") {
        resources::validate(&json!({ "limits": overhead }), &format!("{prefix}overhead"), &[], errors);
    }
    windows::validate_system(spec, prefix, errors);
    env::validate_files(spec, prefix, errors);
}

/// The name of another object, or a part of the pod's own.
fn check_name(
    spec: &Value,
    prefix: &str,
    field: &str,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Vec<FieldError>,
) {
    let text = text_at(spec, field);
    for fault in if text.is_empty() { Vec::new() } else { rule(text) } {
        errors.push(FieldError::invalid(format!("{prefix}{field}"), &json!(text), &fault));
    }
}

fn validate_claims(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let path = format!("{prefix}resourceClaims[{index}]");
        let name = text_at(claim, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        check_name(claim, &format!("{path}."), "name", name::label, errors);
        names.push(name);
        let of = |key: &str| claim.get(key).unwrap_or(&Value::Null);
        let (own, template) = (of("resourceClaimName"), of("resourceClaimTemplateName"));
        let detail = match (own.is_null(), template.is_null()) {
            (false, false) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            (true, true) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            let shown = format!(
                "{{\"Name\":{},\"ResourceClaimName\":{own},\"ResourceClaimTemplateName\":{template}}}",
                json!(name)
            );
            let message = format!("Invalid value: {shown}: {detail}");
            errors.push(FieldError { reason: FieldReason::Invalid, field: path.clone(), message });
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            for fault in claim.get(field).and_then(Value::as_str).map(name::subdomain).unwrap_or_default() {
                errors.push(FieldError::invalid(format!("{path}.{field}"), of(field), &fault));
            }
        }
    }
}

#[cfg(test)]
mod tests;
