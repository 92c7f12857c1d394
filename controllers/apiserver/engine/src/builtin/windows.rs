//! The system that a pod is for, and settings that only Windows has.

use serde_json::{Value, json};

use super::{items, name};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// Bytes of a description of a service account.
const LONGEST_SPEC: usize = 64 << 10;
/// Bytes of the user and of its domain in `runAsUserName`.
const LONGEST_USER: usize = 104;
const LONGEST_DOMAIN: usize = 256;

/// The system of the pod spec at `prefix`, and what that system does not have.
pub(super) fn validate_system(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let Some(system) = spec.get("os") else { return };
    match text_at(system, "name") {
        "" => errors.push(FieldError::required(format!("{prefix}os.name"), "cannot be empty")),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            forbid(spec, prefix, &["securityContext.windowsOptions"], why, errors);
            for (path, container) in containers(spec, prefix) {
                forbid(container, &path, &["securityContext.windowsOptions"], why, errors);
            }
        }
        "windows" => validate_windows(spec, prefix, errors),
        other => {
            let known = ["linux", "windows"];
            errors.push(FieldError::not_supported(format!("{prefix}os"), &json!(other), &known));
        }
    }
}

/// Containers of all sorts, with the path before their fields.
fn containers<'a>(spec: &'a Value, prefix: &str) -> Vec<(String, &'a Value)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let all = lists.flat_map(|list| {
        let own = items(spec, list).iter().enumerate();
        own.map(move |(index, container)| (format!("{prefix}{list}[{index}]."), container))
    });
    all.collect()
}

/// Refuses the fields of `holder` that are set.
fn forbid(holder: &Value, prefix: &str, fields: &[&str], why: &str, errors: &mut Vec<FieldError>) {
    for field in fields.iter().filter(|field| at(holder, field).is_some()) {
        errors.push(FieldError::forbidden(format!("{prefix}{field}"), why));
    }
}

fn validate_windows(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const OF_POD: [&str; 15] = [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "securityContext.seccompProfile",
        "securityContext.fsGroup",
        "securityContext.fsGroupChangePolicy",
        "securityContext.sysctls",
        "shareProcessNamespace",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
        "securityContext.supplementalGroups",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
    ];
    const OF_CONTAINER: [&str; 10] = [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "securityContext.seccompProfile",
        "securityContext.capabilities",
        "securityContext.readOnlyRootFilesystem",
        "securityContext.privileged",
        "securityContext.allowPrivilegeEscalation",
        "securityContext.procMount",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
    ];
    const WHY: &str = "cannot be set for a windows pod";
    forbid(spec, prefix, &OF_POD, WHY, errors);
    for (path, container) in containers(spec, prefix) {
        forbid(container, &path, &OF_CONTAINER, WHY, errors);
    }
}

/// Containers that run as processes of the host: all of a pod or none, and on the network of the host.
pub(super) fn validate_host_processes(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const KEY: &str = "securityContext.windowsOptions.hostProcess";
    let of = |holder: &Value| at(holder, KEY).and_then(Value::as_bool);
    let of_pod = of(spec);
    let all = containers(spec, prefix);
    let mut count = 0;
    for (path, container) in &all {
        let own = of(container);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(FieldError::invalid(format!("{path}{KEY}"), &json!(own), &detail));
        }
        count += usize::from(own.or(of_pod) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != all.len() {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(prefix.trim_end_matches('.'), &json!(""), detail));
    }
    if at(spec, "hostNetwork") != Some(&json!(true)) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(format!("{prefix}hostNetwork"), &json!(false), detail));
    }
}

/// `windowsOptions` of the security context at `path`.
pub(super) fn validate_options(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(options) = context.get("windowsOptions") else { return };
    let text = |key: &str| options.get(key).and_then(Value::as_str);
    let mut refuse = |key: &str, value: &str, detail: &str| {
        errors.push(FieldError::invalid(format!("{path}.windowsOptions.{key}"), &json!(value), detail));
    };
    if let Some(resource) = text("gmsaCredentialSpecName") {
        for fault in name::subdomain(resource) {
            refuse("gmsaCredentialSpecName", resource, &fault);
        }
    }
    if let Some(spec) = text("gmsaCredentialSpec") {
        if spec.is_empty() {
            refuse("gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > LONGEST_SPEC {
            refuse("gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(user) = text("runAsUserName") {
        for fault in user_faults(user) {
            refuse("runAsUserName", user, fault);
        }
    }
}

/// What is wrong with a user `<name>` or `<domain>\<name>`.
fn user_faults(text: &str) -> Vec<&'static str> {
    if text.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let (domain, user) = text.split_once('\\').map_or((None, text), |(domain, user)| (Some(domain), user));
    if user.contains('\\') {
        return vec!["runAsUserName cannot contain more than one backslash"];
    }
    let mut faults = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= LONGEST_DOMAIN) {
        faults.push("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_netbios(domain) && !domain.split('.').all(is_dns_label)) {
        faults.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        faults.push("runAsUserName's User cannot be empty");
    } else if user.len() > LONGEST_USER {
        faults.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| ". ".contains(c)) {
        faults.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c: char| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        faults.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    faults
}

fn is_netbios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(|c: char| "\\/:*?\"<>|".contains(c))
}

fn is_dns_label(label: &str) -> bool {
    label.len() <= 63
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && label.starts_with(|c: char| c.is_ascii_alphanumeric())
        && label.ends_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests;
