//! Containers of a pod or pod template.

use serde_json::{Value, json};

use super::volume::source;
use super::{env, items, name, number, one_of, part, placement, probe, required, resources, security};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

/// What containers may refer to.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a [&'a Value],
    /// Names of `resourceClaims`.
    pub(super) claims: &'a [&'a str],
    /// The pod's `restartPolicy`.
    pub(super) restarts: &'a str,
    /// The pod's `terminationGracePeriodSeconds`.
    pub(super) grace: Option<i64>,
    /// Whether the users of the pod are those of the host.
    pub(super) host_users: bool,
}

/// The containers of all sorts of the pod spec at `prefix` (`spec.`).
pub(super) fn validate_all(
    spec: &Value,
    prefix: &str,
    around: &Surroundings<'_>,
    errors: &mut Vec<FieldError>,
) {
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{prefix}containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let others = names.clone();
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = format!("{prefix}{list}[{index}]");
            validate(container, &path, around, errors);
            match list {
                "containers" => {
                    take_name(container, &path, true, &mut names, errors);
                    probe::validate(container, &path, around.grace, errors);
                    validate_restarts(container, &path, errors);
                }
                "initContainers" => {
                    validate_restarts(container, &path, errors);
                    take_name(container, &path, false, &mut names, errors);
                    // They run one by one, so that each may have the ports of the others.
                    check_host_ports(&[container], &format!("{prefix}{list}"), errors);
                    validate_init(container, &path, around, errors);
                }
                _ => {
                    check_image(container, &path, errors);
                    take_name(container, &path, true, &mut names, errors);
                    validate_ephemeral(container, &path, &others, errors);
                }
            }
        }
        if list == "containers" {
            let all: Vec<&Value> = items(spec, list).iter().collect();
            check_host_ports(&all, &format!("{prefix}{list}"), errors);
        }
    }
}

fn take_name<'a>(
    container: &'a Value,
    path: &str,
    even_empty: bool,
    names: &mut Vec<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text_at(container, "name");
    if names.contains(&name) {
        errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
    } else if even_empty || !name.is_empty() {
        names.push(name);
    }
}

/// When a container is started again, and on which ends of it.
fn validate_restarts(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let rules = items(container, "restartPolicyRules");
    if container.get("restartPolicy").is_none() && !rules.is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.push(FieldError::required(format!("{path}.restartPolicy"), detail));
    }
    one_of(container, &format!("{path}."), "restartPolicy", &["Always", "Never", "OnFailure"], errors);
    if rules.len() > 20 {
        errors.push(FieldError::too_many(format!("{path}.restartPolicyRules"), rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{index}]");
        let (action, actions) = (text_at(rule, "action"), ["Restart", "RestartAllContainers"]);
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(format!("{path}.action"), &json!(action), &actions));
        }
        let Some(codes) = rule.get("exitCodes") else {
            errors.push(FieldError::required(format!("{path}.exitCodes"), "must be specified"));
            continue;
        };
        let (operator, operators) = (text_at(codes, "operator"), ["In", "NotIn"]);
        if !operators.contains(&operator) {
            let field = format!("{path}.exitCodes.operator");
            errors.push(FieldError::not_supported(field, &json!(operator), &operators));
        }
        let count = items(codes, "values").len();
        if count > 255 {
            errors.push(FieldError::too_many(format!("{path}.exitCodes.values"), count, 255));
        }
    }
}

/// What only the containers of pods are checked for, not those of templates.
pub(super) fn validate_of_pod(spec: &Value, errors: &mut Vec<FieldError>) {
    for list in resources::LISTS {
        for (index, container) in items(spec, list).iter().enumerate() {
            check_image(container, &format!("spec.{list}[{index}]"), errors);
        }
    }
}

/// The image of a container in a pod that exists.
pub(super) fn check_new_image(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    required(container, &format!("{path}."), "image", errors);
    check_image(container, path, errors);
}

fn check_image(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let image = text_at(container, "image");
    if image != image.trim() {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(format!("{path}.image"), &json!(image), detail));
    }
}

/// Each port of the host once; the containers are numbered as they stand here.
fn check_host_ports(containers: &[&Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut taken = Vec::new();
    for (at, container) in containers.iter().enumerate() {
        for (index, port) in items(container, "ports").iter().enumerate() {
            let Some(number) = number(port, "hostPort").filter(|number| *number != 0) else { continue };
            let place = format!("{}/{}/{number}", text_at(port, "protocol"), text_at(port, "hostIP"));
            if taken.contains(&place) {
                let field = format!("{path}[{at}].ports[{index}].hostPort");
                errors.push(FieldError::duplicate(field, &json!(place)));
            } else {
                taken.push(place);
            }
        }
    }
}

/// What a container that is put into a running pod may not have, in the order of the fields of its type.
fn validate_ephemeral(container: &Value, path: &str, others: &[&str], errors: &mut Vec<FieldError>) {
    const OTHER: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let target = text_at(container, "targetContainerName");
    if !target.is_empty() && !others.contains(&target) {
        let field = format!("{path}.targetContainerName");
        errors.push(FieldError::with_value(FieldReason::NotFound, field, &json!(target), ""));
    }
    let detail = "cannot be set for an Ephemeral Container";
    let is_set = |field: &str| match container.get(field) {
        Some(value) if field == "resources" => !placement::is_empty(value),
        value => value.is_some(),
    };
    for field in OTHER.into_iter().filter(|field| is_set(field)) {
        errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
    }
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text_at(mount, field).is_empty() {
                errors.push(FieldError::forbidden(format!("{path}.volumeMounts[{index}].{field}"), detail));
            }
        }
    }
}

fn validate(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    let name = text_at(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        name::check(name, &format!("{path}.name"), name::label, errors);
    }
    if text_at(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    let below = format!("{path}.");
    one_of(container, &below, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], errors);
    validate_ports(container, path, errors);
    env::validate(container, path, errors);
    validate_mounts(container, path, around, errors);
    validate_devices(container, path, around, errors);
    one_of(container, &below, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], errors);
    let own = at(container, "resources").unwrap_or(&Value::Null);
    resources::validate(own, &format!("{path}.resources"), around.claims, errors);
    resources::validate_policy(container, path, around.restarts, errors);
    security::validate_container(container, path, around.host_users, errors);
}

/// An init container that ends before the others start is not asked how it is, nor restarted for a resize.
fn validate_init(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    if text_at(container, "restartPolicy") == "Always" {
        return probe::validate(container, path, around.grace, errors);
    }
    probe::forbid(container, path, errors);
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let restart = text_at(policy, "restartPolicy");
        if restart == "RestartContainer" {
            let field = format!("{path}.resizePolicy[{index}].restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(FieldError::invalid(field, &json!(restart), detail));
        }
    }
}

fn validate_ports(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text_at(port, "name");
        let faults = if name.is_empty() { Vec::new() } else { name::port(name) };
        if faults.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        } else if faults.is_empty() && !name.is_empty() {
            names.push(name);
        }
        for fault in faults {
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), &fault));
        }
        match number(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            value => part::check_port(value, format!("{path}.containerPort"), errors),
        }
        if let Some(value) = number(port, "hostPort").filter(|value| *value != 0) {
            part::check_port(value, format!("{path}.hostPort"), errors);
        }
        one_of(port, &format!("{path}."), "protocol", &["SCTP", "TCP", "UDP"], errors);
    }
}

fn validate_mounts(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    let mounts = format!("{path}.volumeMounts");
    let devices = items(container, "volumeDevices");
    let mut places = Vec::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{mounts}[{index}]");
        let (name, place) = (text_at(mount, "name"), text_at(mount, "mountPath"));
        let wrong = |field: &str, value: &str, detail: &str| {
            FieldError::invalid(format!("{path}.{field}"), &json!(value), detail)
        };
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if !around.volumes.iter().any(|volume| text_at(volume, "name") == name) {
            errors.push(FieldError::with_value(
                FieldReason::NotFound,
                format!("{path}.name"),
                &json!(name),
                "",
            ));
        }
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
        if places.contains(&place) {
            errors.push(wrong("mountPath", place, "must be unique"));
        }
        places.push(place);
        if devices.iter().any(|device| text_at(device, "name") == name) {
            errors.push(wrong("name", name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|device| text_at(device, "devicePath") == place) {
            errors.push(wrong("mountPath", place, "must not already exist as a path in volumeDevices"));
        }
        let (below, expression) = (text_at(mount, "subPath"), text_at(mount, "subPathExpr"));
        if !below.is_empty() {
            source::check_descending(below, &format!("{mounts}.subPath"), errors);
        }
        if !expression.is_empty() {
            if !below.is_empty() {
                errors.push(wrong(
                    "subPathExpr",
                    expression,
                    "subPathExpr and subPath are mutually exclusive",
                ));
            }
            source::check_descending(expression, &format!("{mounts}.subPathExpr"), errors);
        }
        validate_propagation(container, mount, &mounts, errors);
    }
}

fn validate_propagation(container: &Value, mount: &Value, mounts: &str, errors: &mut Vec<FieldError>) {
    let below = format!("{mounts}.");
    one_of(mount, &below, "mountPropagation", &["Bidirectional", "HostToContainer", "None"], errors);
    let propagation = text_at(mount, "mountPropagation");
    let privileged = at(container, "securityContext.privileged") == Some(&json!(true));
    if propagation == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(format!("{mounts}.mountPropagation"), detail));
    }
    one_of(mount, &below, "recursiveReadOnly", &["Disabled", "Enabled", "IfPossible"], errors);
    if !matches!(text_at(mount, "recursiveReadOnly"), "Enabled" | "IfPossible") {
        return;
    }
    let field = format!("{mounts}.recursiveReadOnly");
    if at(mount, "readOnly") != Some(&json!(true)) {
        errors.push(FieldError::forbidden(field.clone(), "may only be specified when readOnly is true"));
    }
    if !matches!(propagation, "" | "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.push(FieldError::forbidden(field, detail));
    }
}

/// Volumes that a container has as block devices.
fn validate_devices(container: &Value, path: &str, around: &Surroundings<'_>, errors: &mut Vec<FieldError>) {
    let devices = format!("{path}.volumeDevices");
    let mounts = items(container, "volumeMounts");
    let (mut names, mut places) = (Vec::new(), Vec::new());
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = format!("{devices}[{index}]");
        let (name, place) = (text_at(device, "name"), text_at(device, "devicePath"));
        let mut wrong = |field: &str, value: &str, detail: &str| {
            errors.push(FieldError::invalid(format!("{path}.{field}"), &json!(value), detail));
        };
        let volume = around.volumes.iter().find(|volume| text_at(volume, "name") == name);
        if names.contains(&name) {
            wrong("name", name, "must be unique");
        }
        if volume.is_some_and(|v| v.get("persistentVolumeClaim").or_else(|| v.get("ephemeral")).is_none()) {
            let detail =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            wrong("name", name, detail);
        }
        if places.contains(&place) {
            wrong("devicePath", place, "must be unique");
        }
        if place.split('/').any(|part| part == "..") {
            wrong("devicePath", place, "can not contain backsteps ('..')");
        } else {
            places.push(place);
        }
        if mounts.iter().any(|mount| text_at(mount, "name") == name) {
            wrong("name", name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| text_at(mount, "mountPath") == place) {
            wrong("devicePath", place, "must not already exist as a path in volumeMounts");
        }
        if volume.is_none() {
            errors.push(FieldError::with_value(
                FieldReason::NotFound,
                format!("{path}.name"),
                &json!(name),
                "",
            ));
        }
        required(device, &format!("{path}."), "name", errors);
        required(device, &format!("{path}."), "devicePath", errors);
        if !name.is_empty() {
            names.push(name);
        }
    }
}
