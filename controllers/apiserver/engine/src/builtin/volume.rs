//! Persistent volume claims.

use serde_json::{Value, json};

use super::{items, one_of};
use crate::field::FieldError;
use crate::object::at;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn validate_claim(object: &Value, errors: &mut Vec<FieldError>) {
    let modes = items(object, "spec.accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    for mode in modes.iter().filter(|mode| !mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode))) {
        errors.push(FieldError::not_supported("spec.accessModes", mode, &ACCESS_MODES));
    }
    if at(object, "spec.resources.requests.storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    one_of(object, "", "spec.volumeMode", &["Block", "Filesystem"], errors);
}

/// Only the requested size may change, and the volume be bound once.
pub(super) fn validate_claim_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let rest = |claim: &Value| {
        let mut spec = claim.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("resources");
            spec.remove("volumeAttributesClassName");
            if at(live, "spec.volumeName").is_none() {
                spec.remove("volumeName");
            }
        }
        spec
    };
    if rest(object) != rest(live) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// `spec.volumes` of a pod. Returns the names that containers may mount.
pub(super) fn validate_volumes<'a>(
    spec: &'a Value,
    prefix: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{prefix}volumes[{index}]");
        let name = crate::object::text_at(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            for fault in super::name::label(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), &fault));
            }
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        let sources: Vec<&String> = volume.as_object().into_iter().flat_map(|map| map.keys()).collect();
        if let [_, second] =
            sources.into_iter().filter(|key| key.as_str() != "name").take(2).collect::<Vec<_>>().as_slice()
        {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{second}"), why));
        }
        // A template may leave the reference out.
        if let Some(image) = volume.get("image") {
            let below = format!("{path}.image.");
            one_of(image, &below, "pullPolicy", &["Always", "IfNotPresent", "Never"], errors);
            if prefix == "spec." && crate::object::text_at(image, "reference").is_empty() {
                errors.push(FieldError::required(format!("{below}reference"), ""));
                continue;
            }
        }
        names.push(name);
    }
    names
}
