//! What a restored cluster keeps of a backup.
//!
//! A backup has what its cluster was to be, and what its processes reported. A restore keeps the former alone, so that everything starts
//! as after a loss of power: pods of VMs, leases and the status of nodes belong to processes that the restored cluster does not have, and
//! with their addresses its services would reach those of another cluster. A cluster that is restored elsewhere is a new one: it also
//! leaves behind what identifies its source, keys and the addresses of VMs.

use std::sync::Arc;

use bytes::Bytes;
use neonvm_api::names::{VM_GROUP, annotation};
use neonvm_apiserver_engine::store::Stored;
use neonvm_kit::authority::{INTERNAL, VMS};
use serde_json::{Map, Value, json};

/// An object of a backup: table, key, object.
pub(super) type Entry = (Arc<str>, Arc<str>, Stored);

/// The status of a VM that a restored cluster keeps; all else is observed again.
const VM_STATUS: [&str; 5] = ["restartCount", "restartRequest", "sshSecretName", "tlsSecretName", "lastExit"];
/// The same of a VM that had ended.
const ENDED_VM_STATUS: [&str; 3] = ["phase", "powerState", "conditions"];
/// The address on the overlay, which stays with a VM for its life in one cluster.
const OVERLAY_STATUS: [&str; 2] = ["extraNetIP", "extraNetMask"];
/// Parts of a node's spec that people write.
const NODE_SPEC: [&str; 2] = ["unschedulable", "taints"];
/// Taints that follow the status of a node.
const OBSERVED_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Configuration of a runner in the secret of its pod, and the label of the secret with its certificate.
const RUNNER_CONFIG: &str = neonvm_api::runner_pod::CONFIG_FILE;
const RUNNER_IDENTITY: &str = "vm.neon.tech/runner-config";
/// What the registrations of the vm-controller begin with. They have its address.
const REGISTRATIONS: &str = "neonvm-";

#[derive(Debug, PartialEq)]
enum Verdict {
    Kept,
    Changed,
    Dropped,
}

/// The objects of a restored cluster. Changed ones get revisions above `newest`, the newest of the backup; the result has the newest of
/// all. `is_new`: the cluster is not the one of the backup.
pub(super) fn renew(objects: Vec<Entry>, newest: u64, is_new: bool) -> (Vec<Entry>, u64) {
    change(objects, newest, |table, object| judge(table, object, is_new))
}

/// The objects of a cluster whose overlay has another range than before, as [`renew`] returns them.
pub(super) fn without_addresses(objects: Vec<Entry>, newest: u64) -> (Vec<Entry>, u64) {
    change(objects, newest, |table, object| match table.split_once('/') {
        Some((VM_GROUP, "ippools")) => Verdict::Dropped,
        Some((VM_GROUP, "virtualmachines")) => {
            let status = object.get_mut("status").and_then(Value::as_object_mut);
            changed_if(status.is_some_and(|status| {
                OVERLAY_STATUS.iter().filter(|field| status.remove(**field).is_some()).count() > 0
            }))
        }
        _ => Verdict::Kept,
    })
}

fn change(
    objects: Vec<Entry>,
    newest: u64,
    judge: impl Fn(&str, &mut Map<String, Value>) -> Verdict,
) -> (Vec<Entry>, u64) {
    let mut revision = newest;
    let mut renewed = Vec::with_capacity(objects.len());
    for (table, key, stored) in objects {
        // What is no object is left for the start, which reports it.
        let Ok(Value::Object(mut object)) = serde_json::from_slice(&stored.json) else {
            renewed.push((table, key, stored));
            continue;
        };
        match judge(&table, &mut object) {
            Verdict::Kept => renewed.push((table, key, stored)),
            Verdict::Dropped => {}
            Verdict::Changed => {
                revision = revision.saturating_add(1);
                let metadata = object.entry("metadata").or_insert_with(|| json!({}));
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
                }
                let json = Bytes::from(Value::Object(object).to_string());
                renewed.push((table, key, Stored { revision, json }));
            }
        }
    }
    (renewed, revision)
}

fn judge(table: &str, object: &mut Map<String, Value>, is_new: bool) -> Verdict {
    let (group, plural) = table.split_once('/').unwrap_or(("", table));
    match (group, plural) {
        ("coordination.k8s.io", "leases") => Verdict::Dropped,
        ("admissionregistration.k8s.io", _) if name(object).starts_with(REGISTRATIONS) => Verdict::Dropped,
        ("", "pods") => pod(object),
        ("", "nodes") => node(object),
        // It has the port of the server; the next start makes it.
        ("", "services") => {
            kept_unless(name(object) == "kubernetes" && text(object, "/metadata/namespace") == "default")
        }
        ("", "secrets") => kept_unless(is_of_runner(object) || is_new && is_key(object)),
        ("", "configmaps") => kept_unless(is_new && is_authority(object)),
        ("certificates.k8s.io", "certificatesigningrequests") => kept_unless(is_new),
        (VM_GROUP, "virtualmachines") => virtual_machine(object, is_new),
        (VM_GROUP, "virtualmachinemigrations") => {
            kept_unless(!matches!(text(object, "/status/phase"), "Succeeded" | "Failed"))
        }
        (VM_GROUP, "ippools") => kept_unless(is_new),
        _ => Verdict::Kept,
    }
}

fn kept_unless(is_dropped: bool) -> Verdict {
    if is_dropped { Verdict::Dropped } else { Verdict::Kept }
}

fn text<'a>(object: &'a Map<String, Value>, pointer: &str) -> &'a str {
    let mut words = pointer.trim_start_matches('/').split('/');
    let first = words.next().and_then(|word| object.get(word));
    let found = words.fold(first, |value, word| value?.get(word));
    found.and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Map<String, Value>) -> &str {
    text(object, "/metadata/name")
}

/// Whether an owner in the project's group controls the object.
fn is_of_vm(object: &Map<String, Value>) -> bool {
    let owners =
        object.get("metadata").and_then(|meta| meta.get("ownerReferences")).and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        let version = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        version.split('/').next() == Some(VM_GROUP)
            && owner.get("controller").and_then(Value::as_bool).unwrap_or_default()
    })
}

/// Keeps these fields of an object alone; whether any other is gone.
fn retain(object: &mut Map<String, Value>, kept: &[&str]) -> bool {
    let before = object.len();
    object.retain(|key, _| kept.contains(&key.as_str()));
    object.len() != before
}

fn changed_if(is_changed: bool) -> Verdict {
    if is_changed { Verdict::Changed } else { Verdict::Kept }
}

/// Pods of VMs are made again by their controller; others that had not ended wait for a node again.
fn pod(pod: &mut Map<String, Value>) -> Verdict {
    let is_deleted = pod.get("metadata").and_then(|meta| meta.get("deletionTimestamp")).is_some();
    if is_of_vm(pod) || is_deleted {
        return Verdict::Dropped;
    }
    if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return Verdict::Kept;
    }
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let was_bound = spec.is_some_and(|spec| spec.remove("nodeName").is_some());
    let qos = pod.get("status").and_then(|status| status.get("qosClass")).cloned();
    let mut status = json!({ "phase": "Pending" });
    if let (Some(status), Some(qos)) = (status.as_object_mut(), qos) {
        status.insert("qosClass".to_owned(), qos);
    }
    let before = pod.insert("status".to_owned(), status.clone());
    changed_if(was_bound || before != Some(status))
}

/// A node keeps what people write: labels, annotations, taints, whether it takes pods.
fn node(node: &mut Map<String, Value>) -> Verdict {
    let had_status = node.insert("status".to_owned(), json!({})).is_some_and(|status| status != json!({}));
    let annotations = node.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"));
    let annotations = annotations.and_then(Value::as_object_mut);
    let had_facts = annotations.is_some_and(|all| all.remove(annotation::HOST_FACTS).is_some());
    let mut had_range = false;
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        had_range = retain(spec, &NODE_SPEC);
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            let key = |taint: &Value| taint.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            taints.retain(|taint| !OBSERVED_TAINTS.contains(&key(taint).as_str()));
        }
    }
    changed_if(had_status || had_facts || had_range)
}

fn is_of_runner(secret: &Map<String, Value>) -> bool {
    let has = |part: &str, key: &str| secret.get(part).is_some_and(|part| part.get(key).is_some());
    let labels = secret.get("metadata").and_then(|meta| meta.get("labels"));
    let is_identity = labels.is_some_and(|labels| labels.get(RUNNER_IDENTITY).is_some());
    is_of_vm(secret) && (is_identity || has("data", RUNNER_CONFIG))
}

/// Whether a secret identifies the cluster: an authority, a token that it signed, or keys that its controller made for a VM.
fn is_key(secret: &Map<String, Value>) -> bool {
    is_authority(secret) || is_of_vm(secret) || text(secret, "/type") == "kubernetes.io/service-account-token"
}

fn is_authority(object: &Map<String, Value>) -> bool {
    [INTERNAL.secret, VMS.secret].contains(&name(object))
}

/// A VM that ran, or was about to, starts; one that had ended stays as it is.
fn virtual_machine(vm: &mut Map<String, Value>, is_new: bool) -> Verdict {
    let has_ended = matches!(text(vm, "/status/phase"), "Succeeded" | "Failed");
    let mut kept: Vec<&str> = VM_STATUS.to_vec();
    if has_ended {
        kept.extend(ENDED_VM_STATUS);
    }
    if !is_new {
        kept.extend(OVERLAY_STATUS);
    }
    let status = vm.get_mut("status").and_then(Value::as_object_mut);
    changed_if(status.is_some_and(|status| retain(status, &kept)))
}

#[cfg(test)]
mod tests;
