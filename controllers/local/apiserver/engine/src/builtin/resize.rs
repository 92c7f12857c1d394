//! The resize of a pod that exists: what of a write it takes, and what it refuses.

use serde_json::{Map, Value, json};

use super::resources::{self, LISTS};
use super::{items, meta};
use crate::field::FieldError;
use crate::object::{at, copy_key, meta_mut, text_at};

/// What a resize may change of each list of resources.
const MUTABLE: [&str; 2] = ["cpu", "memory"];

/// Keeps of `new` only what a resize writes; all else is that of `live`.
pub(crate) fn keep(new: &mut Value, live: &Value) {
    let given = std::mem::replace(new, live.clone());
    for key in ["name", "namespace", "uid", "resourceVersion", "managedFields"] {
        match given.get("metadata").and_then(|metadata| metadata.get(key)) {
            Some(value) => drop(meta_mut(new).insert(key.to_owned(), value.clone())),
            None => drop(meta_mut(new).remove(key)),
        }
    }
    let (Some(spec), Some(given)) = (new.get_mut("spec"), given.get("spec")) else { return };
    copy_key(spec, given, "resources");
    for list in LISTS {
        let merged = merge(items(given, list), items(spec, list));
        if let Some(spec) = spec.as_object_mut() {
            match merged.is_empty() {
                true => drop(spec.remove(list)),
                false => drop(spec.insert(list.to_owned(), Value::Array(merged))),
            }
        }
    }
}

/// The old containers with the resources of the new ones. Where they do not match they stay as given, for validation to
/// refuse.
fn merge(given: &[Value], old: &[Value]) -> Vec<Value> {
    if given.len() != old.len() {
        return given.to_vec();
    }
    let pairs = given.iter().zip(old);
    let merged = pairs.map(|(given, old)| {
        if text_at(given, "name") != text_at(old, "name") {
            return given.clone();
        }
        let mut merged = old.clone();
        copy_key(&mut merged, given, "resources");
        copy_key(&mut merged, given, "resizePolicy");
        merged
    });
    merged.collect()
}

/// Whether a resize requests other resources.
pub(crate) fn changes(pod: &Value, live: &Value) -> bool {
    let wanted = |pod: &Value| {
        let containers = LISTS.into_iter().flat_map(|list| items(pod, &format!("spec.{list}")));
        let each: Vec<Value> =
            containers.map(|one| one.get("resources").cloned().unwrap_or_default()).collect();
        (each, at(pod, "spec.resources").cloned())
    };
    wanted(pod) != wanted(live)
}

/// What is wrong with a resize from `live` to `pod`; `errors` has what is wrong with the pod by itself.
pub(super) fn validate(pod: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let annotations = at(live, "metadata.annotations").and_then(Value::as_object);
    if annotations.is_some_and(|all| all.contains_key(meta::MIRROR)) {
        *errors = vec![FieldError::forbidden("[]", "static pods cannot be resized")];
        return;
    }
    if text_at(live, "spec.os.name") == "windows" {
        *errors = vec![FieldError::forbidden("[]", "windows pods cannot be resized")];
        return;
    }
    let (Some(new), Some(old)) = (pod.get("spec"), live.get("spec")) else { return };
    if resources::quality_class(new) != resources::quality_class(old) {
        let class = at(live, "status.qosClass").unwrap_or(&Value::Null);
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", class, detail));
    }
    if !reports_resources(live) {
        errors.push(FieldError::forbidden("spec", "Pod running on node without support for resize"));
    }
    let before = errors.len();
    for list in LISTS {
        same_containers(items(new, list), items(old, list), list, errors);
    }
    if errors.len() > before {
        return;
    }
    for list in LISTS {
        for (index, (new, old)) in items(new, list).iter().zip(items(old, list)).enumerate() {
            let path = format!("spec.{list}[{index}].resources");
            not_removed(resources_of(new), resources_of(old), &path, "resource", errors);
        }
    }
    validate_pod_level(new, old, errors);
    validate_rest(new, old, errors);
}

/// Whether the node of a running pod reports what its containers have; if none runs, nothing speaks against it.
fn reports_resources(live: &Value) -> bool {
    let statuses = items(live, "status.containerStatuses").iter();
    let mut running = statuses.filter(|status| at(status, "state.running").is_some());
    running.next().is_none_or(|status| status.get("resources").is_some())
}

fn same_containers(new: &[Value], old: &[Value], list: &str, errors: &mut Vec<FieldError>) {
    if new.len() != old.len() {
        let why = format!("{list} may not be added or removed on resize");
        errors.push(FieldError::forbidden(format!("spec.{list}"), &why));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if text_at(new, "name") != text_at(old, "name") {
            let why = format!("{list} may not be renamed or reordered on resize");
            errors.push(FieldError::forbidden(format!("spec.{list}[{index}].name"), &why));
        }
    }
}

fn resources_of(container: &Value) -> &Value {
    container.get("resources").unwrap_or(&Value::Null)
}

fn not_removed(new: &Value, old: &Value, path: &str, what: &str, errors: &mut Vec<FieldError>) {
    for list in ["limits", "requests"] {
        let kept = new.get(list).and_then(Value::as_object);
        let mut names = old.get(list).and_then(Value::as_object).into_iter().flat_map(Map::keys);
        if names.any(|name| kept.is_none_or(|kept| !kept.contains_key(name))) {
            let why = format!("{what} {list} cannot be removed");
            errors.push(FieldError::forbidden(format!("{path}.{list}"), &why));
        }
    }
}

fn validate_pod_level(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let Some(before) = old.get("resources") else { return };
    match new.get("resources") {
        Some(now) => not_removed(now, before, "spec.resources", "pod-level resource", errors),
        None => errors.push(FieldError::forbidden("spec.resources", "pod-level resources cannot be removed")),
    }
}

/// Refuses every change but those of CPU and memory.
fn validate_rest(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if fixed(resources_of(new)) != fixed(resources_of(old)) {
        let why = "only cpu and memory resources are mutable at pod-level";
        errors.push(FieldError::forbidden("spec", why));
    }
    for (index, (new, old)) in
        items(new, "initContainers").iter().zip(items(old, "initContainers")).enumerate()
    {
        if plain(new) != plain(old) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(FieldError::forbidden(format!("spec.initContainers[{index}]"), why));
        }
    }
    let rest = |spec: &Value| -> (Vec<Value>, Vec<(String, Value)>) {
        let others = spec.as_object().into_iter().flatten();
        let others =
            others.filter(|(key, _)| !matches!(key.as_str(), "containers" | "initContainers" | "resources"));
        let others = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        (items(spec, "containers").iter().map(plain).collect(), others)
    };
    if rest(new) != rest(old) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
    }
}

/// A container with only those of its resources that cannot be resized.
fn plain(container: &Value) -> Value {
    let mut plain = container.clone();
    if let Some(plain) = plain.as_object_mut() {
        plain.insert("resources".to_owned(), fixed(resources_of(container)));
    }
    plain
}

fn fixed(resources: &Value) -> Value {
    let list = |key: &str| -> Map<String, Value> {
        let all = resources.get(key).and_then(Value::as_object).into_iter().flatten();
        let fixed = all.filter(|(name, _)| !MUTABLE.contains(&name.as_str()));
        fixed.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    json!({ "limits": list("limits"), "requests": list("requests") })
}
