//! What may change on a pod that exists.

use serde_json::{Value, json};

use super::validate;
use crate::builtin::resources::LISTS;
use crate::builtin::{container, diff, internal, items, name, number, one_of, resize};
use crate::field::FieldError;
use crate::object::{at, copy_key, text_at};

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";

/// What may change on a pod that exists, by subresource.
pub(in crate::builtin) fn validate_update(subresource: &str, pod: &Value, live: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate(pod, &mut errors);
    if subresource == "resize" {
        return resize::validate(pod, live, errors);
    }
    let (new, old) = (at(pod, "spec"), at(live, "spec"));
    let (Some(new), Some(old)) = (new, old) else { return errors };
    match subresource {
        "ephemeralcontainers" => {
            validate_ephemeral_update(new, old, &mut errors);
        }
        _ => validate_spec_update(new, old, &mut errors),
    }
    errors
}

/// Containers that were put into a running pod stay there as they are.
fn validate_ephemeral_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let now = items(new, "ephemeralContainers");
    for before in items(old, "ephemeralContainers") {
        let name = text_at(before, "name");
        let what = match now.iter().rfind(|container| text_at(container, "name") == name) {
            None => "removed\n".to_owned(),
            Some(container) if container != before => {
                let held = |container| internal::held("EphemeralContainer", Some(container));
                format!("changed\n{}", diff::between(&held(before), &held(container)))
            }
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {} may not be {what}", json!(name));
        errors.push(FieldError::forbidden("spec.ephemeralContainers", &why));
    }
}

fn validate_spec_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for list in LISTS {
        if items(new, list).len() != items(old, list).len() {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
            return;
        }
        // A fault of an image is found twice: in any pod, and in a change of one.
        for (index, container) in items(new, list).iter().enumerate() {
            container::check_new_image(container, &format!("spec.{list}[{index}]"), errors);
        }
    }
    if !validate_deadline(new, old, errors) {
        return;
    }
    if !tolerations_grow(items(new, "tolerations"), items(old, "tolerations")) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    let before = items(old, "schedulingGates");
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text_at(gate, "name");
        if !before.iter().any(|old| text_at(old, "name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), &why));
        }
    }
    let fixed = restored(new, old);
    if !before.is_empty() {
        validate_gated(new, old, errors);
    }
    let (before, after) = (internal::held_spec(old), internal::held_spec(&fixed));
    if before != after {
        let changed = diff::between(&before, &after);
        errors.push(FieldError::forbidden("spec", &format!("{FIXED}{changed}")));
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
    if number(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        && number(new, "terminationGracePeriodSeconds") == Some(1)
    {
        free.push("terminationGracePeriodSeconds");
    }
    // Admission gave the pod its priority; an update that leaves it out means the same.
    free.extend(["priority", "preemptionPolicy"].into_iter().filter(|key| new.get(*key).is_none()));
    if !items(old, "schedulingGates").is_empty() {
        free.push("nodeSelector");
        restore_affinity(&mut spec, old);
    }
    for key in free {
        copy_key(&mut spec, old, key);
    }
    spec
}

/// Puts the affinity to nodes back that a pod had, which may change while gates hold it back.
fn restore_affinity(spec: &mut Value, old: &Value) {
    const KEY: &str = "nodeAffinity";
    let before = at(old, "affinity.nodeAffinity");
    let Some(fields) = spec.as_object_mut() else { return };
    if before.is_some() {
        fields.entry("affinity").or_insert_with(|| json!({}));
    }
    let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    match before {
        Some(before) => drop(affinity.insert(KEY.to_owned(), before.clone())),
        None => drop(affinity.remove(KEY)),
    }
    if affinity.is_empty() && old.get("affinity").is_none() {
        fields.remove("affinity");
    }
}

/// While gates hold a pod back, its choice of nodes may become narrower.
fn validate_gated(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let of = |spec: &Value| spec.get("nodeSelector").cloned().unwrap_or_else(|| json!({}));
    let (selector, before) = (of(new), of(old));
    let kept = |(key, value): (&String, &Value)| selector.get(key) == Some(value);
    if !before.as_object().is_none_or(|before| before.iter().all(kept)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", &selector, detail));
    }
    const TERMS: &str =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (terms, before) = (items(new, TERMS), items(old, TERMS));
    let field = format!("spec.{TERMS}");
    if !before.is_empty() && terms.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown: Vec<Value> = terms.iter().map(shown_term).collect();
        errors.push(FieldError::invalid(field, &json!(shown), detail));
        return;
    }
    for (index, (term, before)) in terms.iter().zip(before).enumerate() {
        if !term_grows(term, before) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &shown_term(term), detail));
        }
    }
}

/// A term as a real server holds it inside.
fn shown_term(term: &Value) -> Value {
    let list = |name: &str| {
        let all = items(term, name).iter().map(|one| {
            json!({ "Key": text_at(one, "key"), "Operator": text_at(one, "operator"), "Values": one.get("values") })
        });
        let all: Vec<Value> = all.collect();
        if all.is_empty() { Value::Null } else { json!(all) }
    };
    json!({ "MatchExpressions": list("matchExpressions"), "MatchFields": list("matchFields") })
}

fn term_grows(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"].map(|list| (items(new, list), items(old, list)));
    let matched_nothing = lists.iter().all(|(_, old)| old.is_empty());
    if matched_nothing {
        return lists.iter().all(|(new, _)| new.is_empty());
    }
    lists.iter().all(|(new, old)| new.starts_with(old))
}

/// The deadline comes nearer or stays; `false` ends the checks.
fn validate_deadline(new: &Value, old: &Value, errors: &mut Vec<FieldError>) -> bool {
    let field = "spec.activeDeadlineSeconds";
    let before = number(old, "activeDeadlineSeconds");
    let (value, detail) = match (number(new, "activeDeadlineSeconds"), before) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            (json!(now), "must be between 0 and 2147483647, inclusive")
        }
        (Some(now), Some(before)) if now > before => {
            (json!(now), "must be less than or equal to previous value")
        }
        (None, Some(_)) => (Value::Null, "must not update from a positive integer to nil value"),
        _ => return true,
    };
    errors.push(FieldError::invalid(field, &value, detail));
    value.is_null()
}

/// Whether each old toleration is still there, its seconds aside.
fn tolerations_grow(new: &[Value], old: &[Value]) -> bool {
    let plain = |toleration: &Value| without(toleration, &["tolerationSeconds"]);
    let now: Vec<Value> = new.iter().map(plain).collect();
    old.iter().all(|toleration| now.contains(&plain(toleration)))
}

fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
    value
}

/// A status that replaces that of `live`.
pub(in crate::builtin) fn validate_status(pod: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    validate_conditions(pod, errors);
    validate_nomination(pod, live, errors);
    check_generation(at(pod, "status").unwrap_or(&Value::Null), "status", errors);
    let (class, before) = (text_at(pod, "status.qosClass"), text_at(live, "status.qosClass"));
    if !before.is_empty() && class != before {
        errors.push(FieldError::invalid("status.qosClass", &json!(class), "field is immutable"));
    }
    for (list, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        validate_ends(pod, live, list, containers, errors);
    }
    validate_addresses(pod, "podIPs", errors);
    let hosts = items(pod, "status.hostIPs");
    if let Some(first) = hosts.first().filter(|first| text_at(first, "ip") != text_at(pod, "status.hostIP")) {
        let value = json!(text_at(first, "ip"));
        errors.push(FieldError::invalid("status.hostIPs[0].ip", &value, "must be equal to `hostIP`"));
    }
    validate_addresses(pod, "hostIPs", errors);
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for (index, status) in items(pod, &format!("status.{list}")).iter().enumerate() {
            validate_health(status, &format!("status.{list}[{index}]"), errors);
        }
    }
}

fn check_generation(holder: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(generation) = number(holder, "observedGeneration").filter(|number| *number < 0) {
        let field = format!("{path}.observedGeneration");
        errors.push(FieldError::invalid(field, &json!(generation), "must be a non-negative integer"));
    }
}

fn validate_conditions(pod: &Value, errors: &mut Vec<FieldError>) {
    for (index, condition) in items(pod, "status.conditions").iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        check_generation(condition, &path, errors);
        let kind = text_at(condition, "type");
        name::check(kind, &format!("{path}.Type"), name::qualified, errors);
    }
}

/// The node that may take the pod once others have left it.
fn validate_nomination(pod: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let field = "status.nominatedNodeName";
    let node = text_at(pod, field);
    if node.is_empty() || node == text_at(live, field) {
        return;
    }
    name::check(node, field, name::subdomain, errors);
    if !text_at(live, "spec.nodeName").is_empty() {
        let why = "may not be set on pods that are already bound to a node";
        errors.push(FieldError::forbidden(field, why));
    }
}

/// A container that ended runs again only if it is to be restarted.
fn validate_ends(pod: &Value, live: &Value, list: &str, containers: &str, errors: &mut Vec<FieldError>) {
    let spec = at(live, "spec").unwrap_or(&Value::Null);
    let any = LISTS.iter().flat_map(|list| items(spec, list));
    let all_may_restart = any
        .flat_map(|container| items(container, "restartPolicyRules"))
        .any(|rule| text_at(rule, "action") == "RestartAllContainers");
    if all_may_restart && !containers.is_empty() {
        return;
    }
    let now = items(pod, &format!("status.{list}"));
    for (index, before) in items(live, &format!("status.{list}")).iter().enumerate() {
        let Some(end) = at(before, "state.terminated") else { continue };
        let name = text_at(before, "name");
        let same =
            |status: &&Value| text_at(status, "name") == name && at(status, "state.terminated").is_none();
        if !now.iter().any(|status| same(&status)) {
            continue;
        }
        let own = if containers.is_empty() { &[][..] } else { items(spec, containers) };
        let own = own.iter().find(|container| text_at(container, "name") == name);
        let code = number(end, "exitCode").unwrap_or(0);
        if !own.is_some_and(|own| restarts(own, text_at(spec, "restartPolicy"), code)) {
            let why = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(format!("status.{list}[{index}].state"), why));
        }
    }
}

fn restarts(container: &Value, of_pod: &str, code: i64) -> bool {
    let own = text_at(container, "restartPolicy");
    let applies = |rule: &Value| {
        let listed = items(rule, "exitCodes.values").contains(&json!(code));
        match text_at(rule, "exitCodes.operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    if !own.is_empty() && items(container, "restartPolicyRules").iter().any(applies) {
        return true;
    }
    match if own.is_empty() { of_pod } else { own } {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

/// Addresses of the pod or of its host: at most one of each family.
fn validate_addresses(pod: &Value, list: &str, errors: &mut Vec<FieldError>) {
    let entries = items(pod, &format!("status.{list}"));
    let mut families = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let address = text_at(entry, "ip");
        match address.parse::<std::net::IpAddr>() {
            Ok(parsed) => families.push(parsed.is_ipv4()),
            Err(_) => {
                let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                errors.push(FieldError::invalid(format!("status.{list}[{index}]"), &json!(address), detail));
            }
        }
    }
    let distinct = families.len() < 2 || (families.len() == 2 && families.first() != families.last());
    if families.len() == entries.len() && !distinct {
        let shown: Vec<Value> = entries.iter().map(|entry| json!({ "IP": text_at(entry, "ip") })).collect();
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(format!("status.{list}"), &json!(shown), detail));
    }
}

/// The health of the devices of a container.
fn validate_health(status: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (at, resource) in items(status, "allocatedResourcesStatus").iter().enumerate() {
        for (index, device) in items(resource, "resources").iter().enumerate() {
            let path = format!("{path}.allocatedResourcesStatus[{at}].resources[{index}].");
            one_of(device, &path, "health", &["Healthy", "Unhealthy", "Unknown"], errors);
        }
    }
}

#[cfg(test)]
mod tests;
