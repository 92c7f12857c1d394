//! Security contexts of pods and containers.

use serde_json::{Value, json};

use super::volume::source;
use super::{items, number, one_of, windows};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

/// Longest path of a profile on a node.
const LONGEST_PROFILE: usize = 4095;

/// The security context of the pod spec at `prefix`.
pub(super) fn validate_pod(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let Some(context) = spec.get("securityContext") else { return };
    let path = format!("{prefix}securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(number(context, field), format!("{path}.{field}"), errors);
    }
    for (index, id) in items(context, "supplementalGroups").iter().enumerate() {
        check_id(id.as_i64(), format!("{path}.supplementalGroups[{index}]"), errors);
    }
    if is_true(spec, "shareProcessNamespace") && is_true(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(format!("{path}.shareProcessNamespace"), &json!(true), detail));
    }
    validate_sysctls(spec, context, &path, errors);
    let below = format!("{path}.");
    one_of(context, &below, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], errors);
    validate_seccomp(context, &path, errors);
    windows::validate_options(context, &path, errors);
    validate_app_armor(context, &path, errors);
    one_of(context, &below, "supplementalGroupsPolicy", &["Merge", "Strict"], errors);
    one_of(context, &below, "seLinuxChangePolicy", &["MountOption", "Recursive"], errors);
}

/// The security context of a container at `path`. `host_users`: its users are those of the host.
pub(super) fn validate_container(
    container: &Value,
    path: &str,
    host_users: bool,
    errors: &mut Vec<FieldError>,
) {
    let Some(context) = container.get("securityContext") else { return };
    let path = format!("{path}.securityContext");
    for field in ["runAsUser", "runAsGroup"] {
        check_id(number(context, field), format!("{path}.{field}"), errors);
    }
    one_of(context, &format!("{path}."), "procMount", &["Default", "Unmasked"], errors);
    if host_users && text_at(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(format!("{path}.procMount"), &json!("Unmasked"), detail));
    }
    validate_seccomp(context, &path, errors);
    if at(context, "allowPrivilegeEscalation") == Some(&json!(false)) {
        check_escalation(context, &path, errors);
    }
    windows::validate_options(context, &path, errors);
    validate_app_armor(context, &path, errors);
}

/// What gives a container the privileges that it may not get.
fn check_escalation(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut refuse = |what: &str| {
        let detail = format!("cannot set `allowPrivilegeEscalation` to false and `{what}");
        let message = format!("Invalid value: {}: {detail}", shown(context));
        errors.push(FieldError { reason: FieldReason::Invalid, field: path.to_owned(), message });
    };
    if is_true(context, "privileged") {
        refuse("privileged` to true");
    }
    for _ in items(context, "capabilities.add").iter().filter(|name| *name == "CAP_SYS_ADMIN") {
        refuse("capabilities.Add` CAP_SYS_ADMIN");
    }
}

/// A security context of a container as a real server holds it inside.
fn shown(context: &Value) -> String {
    type Fields = &'static [(&'static str, &'static str)];
    const LISTS: Fields = &[("Add", "add"), ("Drop", "drop")];
    const LINUX: Fields = &[("User", "user"), ("Role", "role"), ("Type", "type"), ("Level", "level")];
    const WINDOWS: Fields = &[
        ("GMSACredentialSpecName", "gmsaCredentialSpecName"),
        ("GMSACredentialSpec", "gmsaCredentialSpec"),
        ("RunAsUserName", "runAsUserName"),
        ("HostProcess", "hostProcess"),
    ];
    const PROFILE: Fields = &[("Type", "type"), ("LocalhostProfile", "localhostProfile")];
    const ALL: [(&str, &str, Fields, &str); 12] = [
        ("Capabilities", "capabilities", LISTS, "null"),
        ("Privileged", "privileged", &[], ""),
        ("SELinuxOptions", "seLinuxOptions", LINUX, "\"\""),
        ("WindowsOptions", "windowsOptions", WINDOWS, "null"),
        ("RunAsUser", "runAsUser", &[], ""),
        ("RunAsGroup", "runAsGroup", &[], ""),
        ("RunAsNonRoot", "runAsNonRoot", &[], ""),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", &[], ""),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", &[], ""),
        ("ProcMount", "procMount", &[], ""),
        ("SeccompProfile", "seccompProfile", PROFILE, "null"),
        ("AppArmorProfile", "appArmorProfile", PROFILE, "null"),
    ];
    let fields = ALL.map(|(go, key, inner, missing)| {
        let value = context.get(key).unwrap_or(&Value::Null);
        if inner.is_empty() || value.is_null() {
            return format!("\"{go}\":{value}");
        }
        format!("\"{go}\":{}", structure(value, inner, missing))
    });
    format!("{{{}}}", fields.join(","))
}

fn structure(value: &Value, fields: &[(&str, &str)], missing: &str) -> String {
    let fields = fields.iter().map(|(go, key)| {
        let text = value.get(*key).map_or_else(|| missing.to_owned(), Value::to_string);
        format!("\"{go}\":{text}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn is_true(value: &Value, key: &str) -> bool {
    at(value, key) == Some(&json!(true))
}

fn check_id(id: Option<i64>, field: String, errors: &mut Vec<FieldError>) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        let detail = "must be between 0 and 2147483647, inclusive";
        errors.push(FieldError::invalid(field, &json!(id), detail));
    }
}

fn validate_sysctls(spec: &Value, context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const RULE: &str = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut names = Vec::new();
    for (index, one) in items(context, "sysctls").iter().enumerate() {
        let (name, field) = (text_at(one, "name"), format!("{path}.sysctls[{index}].name"));
        if name.is_empty() {
            errors.push(FieldError::required(field.clone(), ""));
        } else if !is_sysctl(name) {
            errors.push(FieldError::invalid(field.clone(), &json!(name), RULE));
        } else if names.contains(&name) {
            errors.push(FieldError::duplicate(field.clone(), &json!(name)));
        }
        names.push(name);
        let plain = name.replace('/', ".");
        let of_memory = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        for (shared, own) in [
            ("hostNetwork", plain.starts_with("net.")),
            ("hostIPC", plain == "kernel.sem" || of_memory.iter().any(|start| plain.starts_with(start))),
        ] {
            if own && is_true(spec, shared) {
                let detail = format!("may not be specified when '{shared}' is true");
                errors.push(FieldError::invalid(field.clone(), &json!(name), &detail));
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            bytes.iter().all(|b| plain(*b) || b"-_".contains(b))
                && bytes.first().is_some_and(|b| plain(*b))
                && bytes.last().is_some_and(|b| plain(*b))
        })
}

fn validate_seccomp(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(profile) = context.get("seccompProfile") else { return };
    let below = format!("{path}.seccompProfile.");
    let kind = text_at(profile, "type");
    if kind.is_empty() {
        let detail = "type is required when seccompProfile is set";
        errors.push(FieldError::required(format!("{below}type"), detail));
    } else {
        one_of(profile, &below, "type", &["Localhost", "RuntimeDefault", "Unconfined"], errors);
    }
    let field = format!("{below}localhostProfile");
    match (kind, profile.get("localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            errors.push(FieldError::required(field, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(file)) => source::check_descending(file, &field, errors),
        (_, Some(file)) => {
            let detail = "can only be set when seccomp type is Localhost";
            let shown = format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", json!(kind), json!(file));
            let message = format!("Invalid value: {shown}: {detail}");
            errors.push(FieldError { reason: FieldReason::Invalid, field, message });
        }
        _ => {}
    }
}

fn validate_app_armor(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = context.get("appArmorProfile") else { return };
    let below = format!("{path}.appArmorProfile.");
    let field = format!("{below}localhostProfile");
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    match (text_at(profile, "type"), file) {
        ("Localhost", None) => errors.push(FieldError::required(field, NEEDED)),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                let detail = "must not be padded with whitespace";
                errors.push(FieldError::invalid(field.clone(), &json!(file), detail));
            } else if file.is_empty() {
                errors.push(FieldError::required(field.clone(), NEEDED));
            }
            if file.len() > LONGEST_PROFILE {
                errors.push(FieldError::too_long(field, LONGEST_PROFILE as u64));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(field, &json!(file), detail));
        }
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(format!("{below}type"), detail));
        }
        _ => one_of(profile, &below, "type", &["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
}
