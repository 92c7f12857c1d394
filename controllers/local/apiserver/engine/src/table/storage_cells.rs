//! Cells of volumes, claims, and storage classes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{plain, text_or};
use crate::object::{at, is_deleting, strings, text_at};

/// Access modes in short, in a fixed order.
pub(super) fn modes(modes: Option<&Value>) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = strings(modes);
    let known = SHORT.iter().filter(|(long, _)| modes.contains(long));
    known.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) fn volume_modes(volume: &Value, _: Timestamp) -> Value {
    json!(modes(at(volume, "spec.accessModes")))
}

/// The modes of the volume a claim is bound to.
pub(super) fn claim_modes(claim: &Value, _: Timestamp) -> Value {
    json!(if is_bound(claim) { modes(at(claim, "status.accessModes")) } else { String::new() })
}

fn is_bound(claim: &Value) -> bool {
    !text_at(claim, "spec.volumeName").is_empty()
}

fn storage(object: &Value, path: &str) -> Value {
    json!(at(object, path).map_or_else(|| "0".to_owned(), plain))
}

pub(super) fn volume_size(volume: &Value, _: Timestamp) -> Value {
    storage(volume, "spec.capacity.storage")
}

pub(super) fn claim_size(claim: &Value, _: Timestamp) -> Value {
    if is_bound(claim) { storage(claim, "status.capacity.storage") } else { json!("") }
}

/// The phase of a volume or claim, unless it is being deleted.
pub(super) fn phase(object: &Value, _: Timestamp) -> Value {
    json!(if is_deleting(object) { "Terminating" } else { text_at(object, "status.phase") })
}

/// The storage class, which an old annotation may hold.
pub(super) fn storage_class(object: &Value, _: Timestamp) -> Value {
    let old = object
        .get("metadata")
        .and_then(|m| m.get("annotations")?.get("volume.beta.kubernetes.io/storage-class"));
    json!(old.and_then(Value::as_str).unwrap_or_else(|| text_at(object, "spec.storageClassName")))
}

/// The name, marked if an annotation makes the class the default.
pub(super) fn class_name(object: &Value, annotations: &[&str]) -> Value {
    let own = object.get("metadata").and_then(|m| m.get("annotations"));
    let default = annotations.iter().any(|key| own.and_then(|own| own.get(key)) == Some(&json!("true")));
    json!(format!("{}{}", crate::object::name(object), if default { " (default)" } else { "" }))
}

pub(super) fn storage_class_name(object: &Value, _: Timestamp) -> Value {
    let keys =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    class_name(object, &keys)
}

pub(super) fn attributes_class(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeAttributesClassName", "<unset>")
}

pub(super) fn volume_mode(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.volumeMode", "<unset>")
}

pub(super) fn claim(volume: &Value, _: Timestamp) -> Value {
    let of = |key: &str| text_at(volume, &format!("spec.claimRef.{key}"));
    json!(if at(volume, "spec.claimRef").is_some() {
        format!("{}/{}", of("namespace"), of("name"))
    } else {
        String::new()
    })
}

pub(super) fn expansion(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "allowVolumeExpansion") == Some(&json!(true)))
}
