//! What the server keeps for itself in an object: identity, generation, which half of it a write may touch.

use serde_json::{Value, json};

use crate::context::{Context, Entropy};
use crate::kinds::Kind;
use crate::object::{self, copy_key, meta, set_meta};

const SERVER_OWNED: &str = "uid creationTimestamp deletionTimestamp deletionGracePeriodSeconds generation \
    selfLink";

pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, context: &Context, entropy: &mut Entropy) {
    for key in SERVER_OWNED.split(' ') {
        set_meta(object, key, Value::Null);
    }
    set_meta(object, "resourceVersion", Value::Null);
    set_meta(object, "uid", json!(entropy.uuid()));
    set_meta(object, "creationTimestamp", json!(context.time()));
    if kind.has_generation {
        set_meta(object, "generation", json!(1));
    }
    // Nodes register with their status; everything else begins without one.
    if kind.has_status() && !(kind.kind == "Node" && kind.is_builtin()) {
        object::drop_key(object, "status");
    }
    if kind.kind == "PersistentVolume" && kind.is_builtin() {
        let status = json!({ "phase": "Pending", "lastPhaseTransitionTime": context.time() });
        object::set(object, "status", status);
    }
    if kind.kind == "Pod" && kind.is_builtin() {
        object::set(object, "status", pending(object, context));
    }
}

fn pending(pod: &Value, context: &Context) -> Value {
    let gates = object::at(pod, "spec.schedulingGates").and_then(Value::as_array);
    if gates.is_none_or(Vec::is_empty) {
        return json!({ "phase": "Pending" });
    }
    json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": null,
        "lastTransitionTime": context.time(),
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }] })
}

/// Prepares a changed object: puts back what this write may not touch, and counts the generation.
pub(crate) fn prepare_update(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    match subresource {
        "" | "finalize" | "resize" if kind.has_status() => {
            copy_key(new, old, "status");
        }
        "status" => {
            let managed = meta(new).get("managedFields").cloned();
            if let Some(map) = old.as_object() {
                for key in map.keys().filter(|key| !matches!(key.as_str(), "status" | "metadata")) {
                    copy_key(new, old, key);
                }
            }
            if let Some(map) = new.as_object_mut() {
                map.retain(|key, _| matches!(key.as_str(), "status" | "metadata") || old.get(key).is_some());
            }
            if kind.kind == "Pod" && kind.is_builtin() {
                keep_observed(new, old);
            }
            if kind.kind == "Deployment" && kind.is_builtin() {
                let labels = meta(old).get("labels").cloned().unwrap_or_default();
                set_meta(new, "labels", labels);
            }
            if kind.custom.is_some() {
                // A status write of a custom object changes nothing but the status.
                let revision = meta(new).get("resourceVersion").cloned().unwrap_or_default();
                copy_key(new, old, "metadata");
                set_meta(new, "managedFields", managed.unwrap_or_default());
                set_meta(new, "resourceVersion", revision);
            }
        }
        _ => {}
    }
    if crate::builtin::certificate::is_request(kind) {
        crate::builtin::certificate::keep(subresource, new, old);
    }
    // What is left out stays as it was; what was changed is for validation to refuse.
    for key in SERVER_OWNED.split(' ') {
        let given = meta(new).get(key).is_some_and(|value| !value.is_null());
        if !given || matches!(key, "generation" | "creationTimestamp") {
            set_meta(new, key, meta(old).get(key).cloned().unwrap_or_default());
        }
    }
    if kind.kind == "DaemonSet" && kind.is_builtin() {
        count_template(new, old);
    }
    count_generation(kind, subresource, new, old);
}

/// A kubelet that does not know of `observedGeneration` leaves it as it was.
fn keep_observed(new: &mut Value, old: &Value) {
    const KEY: &str = "observedGeneration";
    let keep = |new: &mut Value, old: &Value| {
        let known = new.get(KEY).and_then(Value::as_i64).unwrap_or(0) != 0;
        if let Some(value) = old.get(KEY).filter(|_| !known && new.is_object()) {
            object::set(new, KEY, value.clone());
        }
    };
    let (Some(new), Some(old)) = (new.get_mut("status"), old.get("status")) else { return };
    keep(new, old);
    let before = old.get("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for condition in new.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let kind = object::text_at(condition, "type").to_owned();
        if let Some(old) = before.iter().find(|old| object::text_at(old, "type") == kind) {
            keep(condition, old);
        }
    }
}

fn count_template(new: &mut Value, old: &Value) {
    const NOTE: &str = "deprecated.daemonset.template.generation";
    let before =
        object::meta(old).get("annotations").and_then(|notes| notes.get(NOTE)?.as_str()?.parse::<i64>().ok());
    let template = |object: &Value| object::at(object, "spec.template").cloned();
    let changed = i64::from(template(new) != template(old));
    let notes = object::meta_mut(new).entry("annotations").or_insert_with(|| json!({}));
    object::set(notes, NOTE, json!((before.unwrap_or(1) + changed).to_string()));
}

/// Bumps `metadata.generation` if the wanted state differs.
fn count_generation(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    // A priority class has no desired state that a controller would work towards.
    let counts = kind.has_generation && !(kind.kind == "PriorityClass" && kind.is_builtin());
    if !counts || subresource == "status" {
        return;
    }
    let wanted = |object: &Value| -> Vec<(String, Value)> {
        let map = object.as_object().into_iter().flatten();
        map.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "apiVersion" | "kind"))
            .filter(|(key, _)| !(kind.has_status() && key.as_str() == "status"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let before = meta(old).get("generation").and_then(Value::as_i64).unwrap_or(0);
    let counted = match kind.kind.as_str() {
        "Deployment" => "annotations",
        "EndpointSlice" => "labels",
        _ => "",
    };
    let noted = |object: &Value| meta(object).get(counted).cloned();
    if wanted(new) != wanted(old) || noted(new) != noted(old) {
        set_meta(new, "generation", json!(before + 1));
    }
}

/// Whether two states are the same but for the version and the times of their managers.
pub(crate) fn same(new: &Value, old: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        set_meta(&mut object, "resourceVersion", Value::Null);
        if let Some(managers) =
            object::meta_mut(&mut object).get_mut("managedFields").and_then(Value::as_array_mut)
        {
            for manager in managers {
                object::drop_key(manager, "time");
            }
        }
        object
    };
    plain(new) == plain(old)
}
