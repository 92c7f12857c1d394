//! Validation of `metadata`, for every kind.

use serde_json::{Map, Value, json};

use super::{IMMUTABLE, name};
use crate::field::{FieldError, FieldReason};
use crate::kinds::Kind;
use crate::object::{finalizers, is_deleting, meta, meta_text};

/// The annotation of a pod that stands for one that a node runs by itself.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
/// Bytes that all annotations together may take.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// What is wrong with the metadata of a new object, or of a change from `live`.
pub fn validate(kind: &Kind, object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if live.is_none() {
        validate_name(kind, object, &mut errors);
    }
    let map = meta(object);
    validate_owners(map, &mut errors);
    validate_finalizers(object, &mut errors);
    validate_labels(map.get("labels"), "metadata.labels", &mut errors);
    validate_annotations(map, &mut errors);
    if let Some(live) = live {
        validate_change(object, live, &mut errors);
    }
    errors
}

type Rule = fn(&str) -> Vec<String>;

/// What names of a kind must look like.
fn name_rule(kind: &Kind) -> Rule {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => name::label,
        ("", "Service") => name::service,
        (crate::access::GROUP | "apiregistration.k8s.io", _) if kind.is_builtin() => name::path_segment,
        _ => name::subdomain,
    }
}

fn validate_name(kind: &Kind, object: &Value, errors: &mut Vec<FieldError>) {
    let rule = name_rule(kind);
    let prefix = meta_text(object, "generateName");
    if !prefix.is_empty() {
        // A dash at the end is fine in a prefix: something follows.
        let masked = match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => format!("{rest}a"),
            _ => prefix.to_owned(),
        };
        for fault in rule(&masked) {
            errors.push(FieldError::invalid("metadata.generateName", &json!(prefix), &fault));
        }
    }
    let text = meta_text(object, "name");
    if text.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    for fault in rule(text) {
        errors.push(FieldError::invalid("metadata.name", &json!(text), &fault));
    }
    // A CronJob's Jobs have its name plus eleven characters, and Jobs have the names of labels.
    if kind.kind == "CronJob" && kind.is_builtin() && text.len() > 52 {
        let detail = "must be no more than 52 characters";
        errors.push(FieldError::invalid("metadata.name", &json!(text), detail));
    }
}

/// A map of labels at `path`.
pub(super) fn validate_labels(labels: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        for fault in name::qualified(key) {
            errors.push(FieldError::invalid(path, &json!(key), &fault));
        }
        for fault in name::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path, value, &fault));
        }
    }
}

fn validate_annotations(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let path = "metadata.annotations";
    let mut size = 0;
    for (key, value) in map.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        for fault in name::qualified(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, &json!(key), &fault));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        errors.push(FieldError::bare(FieldReason::TooLong, path, &detail));
    }
}

fn validate_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let all = finalizers(object);
    for (at, finalizer) in all.iter().enumerate() {
        let path = format!("metadata.finalizers[{at}]");
        for fault in name::qualified(finalizer) {
            errors.push(FieldError::invalid(path.clone(), &json!(finalizer), &fault));
        }
        let standard = matches!(*finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !standard && !finalizer.contains('/') {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, &json!(finalizer), detail));
        }
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &json!(all), detail));
    }
}

fn validate_owners(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let path = "metadata.ownerReferences";
    let owners = map.get("ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let get =
        |owner: &Value, key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut controller: Option<String> = None;
    for owner in owners {
        for (key, what) in [("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")] {
            if get(owner, key).is_empty() {
                let detail = format!("{what} must not be empty");
                errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(""), &detail));
            }
        }
        let (version, kind) = (get(owner, "apiVersion"), get(owner, "kind"));
        if kind == "Event" && matches!(version.as_str(), "v1" | "events.k8s.io/v1") {
            let detail = format!("/{version}, Kind=Event is disallowed from being an owner");
            let detail = if version == "v1" { detail } else { detail.trim_start_matches('/').to_owned() };
            errors.push(with_text(path, &reference(owner), &detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let own = format!("{kind}/{}", get(owner, "name"));
            match &controller {
                None => controller = Some(own),
                Some(first) => {
                    let list: Vec<String> = owners.iter().map(reference).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {own}"
                    );
                    errors.push(with_text(path, &format!("[{}]", list.join(",")), &detail));
                }
            }
        }
    }
}

/// An `Invalid value` whose value is already printed.
fn with_text(path: &str, value: &str, detail: &str) -> FieldError {
    FieldError {
        reason: FieldReason::Invalid,
        field: path.to_owned(),
        message: format!("Invalid value: {value}: {detail}"),
    }
}

/// An owner reference with its fields in the order of the type, as messages show it.
fn reference(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let shown: Vec<String> = fields
        .iter()
        .filter_map(|key| owner.get(*key).map(|value| format!("{}:{value}", json!(key))))
        .collect();
    format!("{{{}}}", shown.join(","))
}

fn validate_change(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    if is_deleting(live) {
        let before = finalizers(live);
        let new: Vec<String> = finalizers(object)
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        if !new.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    let (new, old) = (meta(object), meta(live));
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        if new.get(key) != old.get(key) {
            let value = new.get(key).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(format!("metadata.{key}"), value, IMMUTABLE));
        }
    }
}
