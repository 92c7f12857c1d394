//! Persistent volume claims, and the volumes of pods.

mod old;
pub(super) mod source;

use neonvm_types::Quantity;
use serde_json::{Value, json};

use super::{diff, internal, items, name, one_of, required, unchanged};
use crate::field::FieldError;
use crate::object::{at, copy_key, text_at};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn validate_claim(object: &Value, errors: &mut Vec<FieldError>) {
    validate_claim_spec(object, "", errors);
}

/// The `spec` of a claim, or of the template of one, at `prefix`.
pub(super) fn validate_claim_spec(object: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let selector = format!("{prefix}spec.selector");
    super::placement::validate_selector(at(object, "spec.selector"), &selector, errors);
    check_modes(object, prefix, "at least 1 access mode is required", errors);
    if at(object, "spec.resources.requests.storage").is_none() {
        errors.push(FieldError::required(format!("{prefix}spec.resources[storage]"), ""));
    }
    if let (true, Some(spec)) = (prefix.is_empty(), object.get("spec")) {
        check_class(spec, errors);
    }
    one_of(object, prefix, "spec.volumeMode", &["Block", "Filesystem"], errors);
    for source in ["dataSource", "dataSourceRef"] {
        if let Some(given) = at(object, &format!("spec.{source}")) {
            for key in ["name", "kind"] {
                required(given, &format!("{prefix}spec.{source}."), key, errors);
            }
        }
    }
}

/// The access modes of the claim, or volume, at `prefix`; `none` is the refusal of one without any.
pub(super) fn check_modes(object: &Value, prefix: &str, none: &str, errors: &mut Vec<FieldError>) {
    let (field, modes) = (format!("{prefix}spec.accessModes"), items(object, "spec.accessModes"));
    if modes.is_empty() {
        errors.push(FieldError::required(field.clone(), none));
    }
    for mode in modes.iter().filter(|mode| !mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode))) {
        errors.push(FieldError::not_supported(field.clone(), mode, &ACCESS_MODES));
    }
}

/// The storage class of the volume, or claim, with this spec.
pub(super) fn check_class(spec: &Value, errors: &mut Vec<FieldError>) {
    let class = text_at(spec, "storageClassName");
    if class.is_empty() {
        return;
    }
    name::check(class, "spec.storageClassName", name::subdomain, errors);
}

/// A claim that replaces `live`: a bound one may want more, and is bound once.
pub(super) fn validate_claim_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    const SIZE: &str = "spec.resources.requests.storage";
    let (mut spec, mut old) =
        [object, live].map(|claim| claim.get("spec").cloned().unwrap_or_default()).into();
    if text_at(live, "spec.volumeName").is_empty() {
        copy_key(&mut old, &spec, "volumeName");
    }
    if text_at(object, "status.phase") == "Bound" {
        copy_key(&mut spec, &old, "volumeAttributesClassName");
        let requests = spec.pointer_mut("/resources/requests").filter(|requests| requests.is_object());
        if let (Some(requests), Some(before)) = (requests, at(&old, "resources.requests")) {
            copy_key(requests, before, "storage");
        }
    }
    let held = |spec: &Value| internal::held("PersistentVolumeClaimSpec", Some(spec));
    if held(&spec) != held(&old) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        let changed = diff::between(&held(&old), &held(&spec));
        errors.push(FieldError::forbidden("spec", &format!("{why}\n{changed}")));
    }
    let size = |claim: &Value, path: &str| text_at(claim, path).parse::<Quantity>().ok();
    let (new, before) = (size(object, SIZE), size(live, SIZE));
    let reached = size(live, "status.capacity.storage");
    let smaller = new.unwrap_or_default() < before.unwrap_or_default();
    if smaller && new.unwrap_or_default() <= reached.unwrap_or_default() {
        errors.push(FieldError::forbidden(SIZE, "field can not be less than status.capacity"));
    }
    unchanged::unchanged_as("spec.volumeMode", "volumeMode", object, live, errors);
}

/// Sources of a volume in the order in which several of them are refused, where a refusal has another name than the
/// field with that name.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// `spec.volumes` of a pod. Returns the volumes that containers may use.
pub(super) fn validate_volumes<'a>(
    spec: &'a Value,
    prefix: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<&'a Value> {
    let mut fine: Vec<&Value> = Vec::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{prefix}volumes[{index}]");
        let mut found = Vec::new();
        validate_source(volume, &path, prefix == "spec.", &mut found);
        check_portal(volume, &path, &mut found);
        let name = text_at(volume, "name");
        if name.is_empty() {
            found.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            for fault in name::label(name) {
                found.push(FieldError::invalid(format!("{path}.name"), &json!(name), &fault));
            }
        }
        if fine.iter().any(|other| text_at(other, "name") == name) {
            found.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        if found.is_empty() {
            fine.push(volume);
        }
        errors.append(&mut found);
    }
    fine
}

fn validate_source(volume: &Value, path: &str, in_pod: bool, errors: &mut Vec<FieldError>) {
    let mut first = true;
    for (kind, shown) in SOURCES {
        let Some(source) = volume.get(kind) else { continue };
        if std::mem::replace(&mut first, false) {
            let path = format!("{path}.{kind}");
            source::validate(kind, source, &path, in_pod, errors);
            old::validate(kind, source, &path, errors);
        } else {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{shown}"), why));
        }
    }
    if first {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// The names of a volume and of its portal together, if a session has a name of its own.
fn check_portal(volume: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let name = text_at(volume, "name");
    if at(volume, "iscsi.initiatorName").is_some()
        && name.len() + 1 + text_at(volume, "iscsi.targetPortal").len() > 64
    {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), detail));
    }
}

#[cfg(test)]
mod tests;
