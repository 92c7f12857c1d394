//! Persistent volumes, their claims and storage classes.

use neonvm_types::Quantity;
use serde_json::Value;

use super::resources;
use super::unchanged::{changed_paths, unchanged, unchanged_text};
use crate::field::FieldError;
use crate::object::{at, copy_key, text_at};

/// Fields of a volume that may change.
const FREE: &str = "accessModes capacity claimRef mountOptions persistentVolumeReclaimPolicy \
    storageClassName";

pub(super) fn validate_claim(object: &Value, errors: &mut Vec<FieldError>) {
    if at(object, "spec.resources.requests.storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
}

/// A claim that replaces `live`: it is bound once, and a bound one may request more.
pub(super) fn validate_claim_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    const SIZE: &str = "spec.resources.requests.storage";
    let spec = |claim: &Value| claim.get("spec").cloned().unwrap_or_default();
    let (mut new, mut old) = (spec(object), spec(live));
    if text_at(live, "spec.volumeName").is_empty() {
        copy_key(&mut old, &new, "volumeName");
    }
    if text_at(object, "status.phase") == "Bound" {
        let requests = new.pointer_mut("/resources/requests").filter(|requests| requests.is_object());
        if let (Some(requests), Some(before)) = (requests, at(&old, "resources.requests")) {
            copy_key(requests, before, "storage");
        }
    }
    let changed = changed_paths(&new, &old, "spec");
    if !changed.is_empty() {
        let why = "spec is immutable after creation except resources.requests for bound claims; changed: ";
        errors.push(FieldError::forbidden("spec", &format!("{why}{}", changed.join(", "))));
    }
    let size = |claim: &Value, path: &str| text_at(claim, path).parse::<Quantity>().unwrap_or_default();
    if size(object, SIZE) < size(live, SIZE) && size(object, SIZE) <= size(live, "status.capacity.storage") {
        errors.push(FieldError::forbidden(SIZE, "field can not be less than status.capacity"));
    }
}

pub(super) fn validate_volume(object: &Value, errors: &mut Vec<FieldError>) {
    if !resources::amounts(at(object, "spec").unwrap_or(&Value::Null), "capacity").contains_key("storage") {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if at(object, "spec.local").is_some() && at(object, "spec.nodeAffinity").is_none() {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
}

/// A volume that replaces `live`: its source and its place stay.
pub(super) fn validate_volume_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let spec = |volume: &Value| volume.get("spec").cloned().unwrap_or_default();
    let (mut new, old) = (spec(object), spec(live));
    let placed = old.get("nodeAffinity").is_some();
    for key in FREE.split(' ').chain((!placed).then_some("nodeAffinity")) {
        copy_key(&mut new, &old, key);
    }
    let changed = changed_paths(&new, &old, "spec");
    if !changed.is_empty() {
        let why = "spec.persistentvolumesource is immutable after creation; changed: ";
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            &format!("{why}{}", changed.join(", ")),
        ));
    }
}

pub(super) fn validate_class_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    unchanged("parameters", object, live, errors);
    unchanged_text("provisioner", object, live, errors);
    unchanged("reclaimPolicy", object, live, errors);
    unchanged("volumeBindingMode", object, live, errors);
}
