//! Pods and the pod templates of workloads.

use serde_json::{Map, Value, json};

use super::resources::{self, LISTS};
use super::unchanged::changed_paths;
use super::{checks, items, name, number, one_of, required, resize, set};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, copy_key, text_at};

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Defaults of a pod that templates do not get.
pub(super) fn default(pod: &mut Map<String, Value>) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        set(spec, "enableServiceLinks", json!(true));
        if spec
            .get("terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_some_and(|seconds| seconds < 0)
        {
            spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
        }
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

pub(super) fn validate_new(pod: &Value, errors: &mut Vec<FieldError>) {
    validate(pod, errors);
    if !items(pod, "spec.ephemeralContainers").is_empty() {
        let why = "cannot be set on create";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", why));
    }
    let gates = items(pod, "spec.schedulingGates");
    for (index, gate) in gates.iter().enumerate() {
        let (path, name) = (format!("spec.schedulingGates[{index}]"), text_at(gate, "name"));
        name::check(name, &path, name::qualified, errors);
        if gates.iter().take(index).any(|other| text_at(other, "name") == name) {
            errors.push(FieldError::duplicate(path, &name));
        }
    }
    if !gates.is_empty() && !text_at(pod, "spec.nodeName").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
}

pub(super) fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    validate_spec(at(pod, "spec").unwrap_or(&Value::Null), "spec.", errors);
}

/// The spec of a pod or of a template, whose fields stand at `prefix`.
pub(super) fn validate_spec(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    validate_volumes(spec, prefix, errors);
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{prefix}containers"), ""));
    }
    let mut names = Vec::new();
    for list in LISTS {
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = format!("{prefix}{list}[{index}]");
            check_name(container, &path, &mut names, errors);
            let image = text_at(container, "image");
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(format!("{path}.image"), &image, detail));
            }
            validate_container(spec, container, (list, &path), errors);
            resources::validate_claims(spec, container, &format!("{path}.resources"), errors);
            validate_mounts(spec, container, &path, errors);
            let own = at(container, "resources").unwrap_or(&Value::Null);
            resources::validate(own, &format!("{path}.resources"), errors);
            let restarts = text_at(spec, "restartPolicy");
            resources::validate_policy(container, &path, restarts, list == "initContainers", errors);
        }
    }
    resources::validate_pod(spec, prefix, errors);
}

/// What a container at a path may have beside the others of its list, and by its place.
fn validate_container(
    spec: &Value,
    container: &Value,
    (list, path): (&str, &str),
    errors: &mut Vec<FieldError>,
) {
    let mut names = Vec::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let name = text_at(port, "name");
        if !name.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.ports[{index}].name"), &name));
        }
        names.push(name);
        let host = number(port, "hostPort").unwrap_or(0);
        if at(spec, "hostNetwork") == Some(&json!(true))
            && host != 0
            && port.get("hostPort") != port.get("containerPort")
        {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(format!("{path}.ports[{index}].hostPort"), &host, detail));
        }
    }
    for (index, variable) in items(container, "env").iter().enumerate() {
        if variable.get("valueFrom").is_some() && !text_at(variable, "value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            let field = format!("{path}.env[{index}].valueFrom");
            errors.push(FieldError::invalid(field, "", detail));
        }
    }
    // An init container that ends has nothing to probe.
    let ends = list == "initContainers" && text_at(container, "restartPolicy") != "Always";
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(value) = container.get(key) else { continue };
        if ends {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
        let threshold = number(value, "successThreshold").unwrap_or(1);
        if matches!(key, "livenessProbe" | "startupProbe") && threshold != 1 {
            errors.push(FieldError::invalid(
                format!("{path}.{key}.successThreshold"),
                &threshold,
                "must be 1",
            ));
        }
        if key == "readinessProbe" && value.get("terminationGracePeriodSeconds").is_some() {
            let field = format!("{path}.{key}.terminationGracePeriodSeconds");
            errors.push(FieldError::invalid(field, &Value::Null, "must not be set for readinessProbes"));
        }
    }
}

/// The name of a container or volume at `path`, which no other one of `names` has.
fn check_name<'a>(item: &'a Value, path: &str, names: &mut Vec<&'a str>, errors: &mut Vec<FieldError>) {
    let (field, name) = (format!("{path}.name"), text_at(item, "name"));
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    name::check(name, &field, name::label, errors);
    if names.contains(&name) {
        errors.push(FieldError::duplicate(field, &name));
    }
    names.push(name);
}

/// Each volume has a name of its own and one source.
fn validate_volumes(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{prefix}volumes[{index}]");
        check_name(volume, &path, &mut names, errors);
        let sources = volume.as_object().into_iter().flat_map(Map::keys).filter(|key| *key != "name");
        for source in sources.skip(1) {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{source}"), why));
        }
        // Root disks of VMs are such volumes. A template may leave the image to another client.
        if let Some(image) = volume.get("image") {
            let path = format!("{path}.image.");
            if prefix == "spec." {
                required(image, &path, "reference", errors);
            }
        }
    }
}

/// A container mounts volumes of its pod, each at a path of its own.
fn validate_mounts(spec: &Value, container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut places = Vec::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, place) = (text_at(mount, "name"), text_at(mount, "mountPath"));
        // A volume that is refused is not there.
        let is_there = |volume: &Value| {
            text_at(volume, "name") == name
                && volume.get("image").is_none_or(|image| !text_at(image, "reference").is_empty())
        };
        if !items(spec, "volumes").iter().any(is_there) {
            let field = format!("{path}.name");
            errors.push(FieldError::with_value(FieldReason::NotFound, field, &name, ""));
        }
        // The real server does not name the mount here.
        let (list, sub_path) =
            (path.rsplit_once('[').map_or("", |(list, _)| list), text_at(mount, "subPath"));
        if sub_path.starts_with('/') || sub_path.split('/').any(|step| step == "..") {
            let detail =
                if sub_path.starts_with('/') { "must be a relative path" } else { "must not contain '..'" };
            errors.push(FieldError::invalid(format!("{list}.subPath"), &sub_path, detail));
        }
        one_of(
            mount,
            &format!("{list}."),
            "mountPropagation",
            &["Bidirectional", "HostToContainer", "None"],
            errors,
        );
        if places.contains(&place) {
            let detail = "must be unique";
            errors.push(FieldError::invalid(format!("{path}.mountPath"), &place, detail));
        }
        places.push(place);
    }
}

pub(super) fn validate_update(subresource: &str, pod: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    validate(pod, errors);
    if subresource == "resize" {
        return resize::validate(pod, live, errors);
    }
    let (Some(new), Some(old)) = (at(pod, "spec"), at(live, "spec")) else { return };
    for list in LISTS {
        if items(new, list).len() != items(old, list).len() {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
            return;
        }
    }
    validate_deadline(new, old, errors);
    if !tolerations_grow(items(new, "tolerations"), items(old, "tolerations")) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        if !items(old, "schedulingGates").contains(gate) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text_at(gate, "name")
            );
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), &why));
        }
    }
    let (before, after) = (old.get("nodeSelector"), new.get("nodeSelector"));
    let mut kept = before.and_then(Value::as_object).into_iter().flatten();
    if !items(old, "schedulingGates").is_empty()
        && !kept.all(|(key, value)| after.is_some_and(|after| after.get(key) == Some(value)))
    {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", after.unwrap_or(&Value::Null), why));
    }
    let changed = changed_paths(&restored(new, old), old, "spec");
    if !changed.is_empty() {
        errors.push(FieldError::forbidden("spec", &format!("{FIXED}; changed: {}", changed.join(", "))));
    }
}

/// The new spec with what may change as it was.
fn restored(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in LISTS {
        let now = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in now.zip(items(old, list)) {
            copy_key(container, before, "image");
        }
    }
    let mut free = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    // Until a pod may be scheduled, where it may run can be narrowed.
    if !items(old, "schedulingGates").is_empty() {
        free.extend(["nodeSelector", "affinity"]);
    }
    // Admission gave the pod its priority; an update that leaves it out means the same.
    free.extend(["priority", "preemptionPolicy"].into_iter().filter(|key| new.get(*key).is_none()));
    for key in free {
        copy_key(&mut spec, old, key);
    }
    spec
}

/// The deadline comes nearer or stays.
fn validate_deadline(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = number(old, "activeDeadlineSeconds");
    let (value, detail) = match (number(new, "activeDeadlineSeconds"), before) {
        (Some(now), Some(before)) if now > before => {
            (json!(now), "must be less than or equal to previous value")
        }
        (None, Some(_)) => (Value::Null, "must not update from a positive integer to nil value"),
        _ => return,
    };
    errors.push(FieldError::invalid("spec.activeDeadlineSeconds", &value, detail));
}

/// Whether each old toleration is still there, its seconds aside.
fn tolerations_grow(new: &[Value], old: &[Value]) -> bool {
    let plain = |toleration: &Value| {
        let mut plain = toleration.clone();
        crate::object::drop_key(&mut plain, "tolerationSeconds");
        plain
    };
    let now: Vec<Value> = new.iter().map(plain).collect();
    old.iter().all(|toleration| now.contains(&plain(toleration)))
}

pub(super) fn validate_status(pod: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (class, before) = (text_at(pod, "status.qosClass"), text_at(live, "status.qosClass"));
    if !before.is_empty() && class != before {
        errors.push(FieldError::invalid("status.qosClass", &class, super::IMMUTABLE));
    }
    checks::addresses(items(pod, "status.podIPs"), "status.podIPs", errors);
    for (index, condition) in items(pod, "status.conditions").iter().enumerate() {
        // The real server writes this field so.
        let field = format!("status.conditions[{index}].Type");
        name::check(text_at(condition, "type"), &field, name::qualified, errors);
    }
    for (index, container) in items(pod, "status.containerStatuses").iter().enumerate() {
        let field = format!("status.containerStatuses[{index}].allocatedResourcesStatus");
        resources::validate_health(pod, container, &field, errors);
    }
}

/// What is taken, and is likely a mistake, in the spec of a pod or template at `prefix`.
pub(crate) fn warnings(spec: &Value, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for list in LISTS {
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = format!("{prefix}{list}[{index}]");
            found.extend(resources::fractions(container, &path));
            let variables = items(container, "env");
            for (at, variable) in variables.iter().enumerate() {
                let name = text_at(variable, "name");
                if variables.iter().take(at).any(|other| text_at(other, "name") == name) {
                    let what = "hides previous definition of";
                    let so = "which may be dropped when using apply";
                    found.push(format!("{path}.env[{at}]: {what} {name:?}, {so}"));
                }
            }
        }
    }
    found
}
