//! Validation of `metadata`, for every kind.

use std::collections::BTreeSet;

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
    validate_owners(map, "metadata", &mut errors);
    validate_finalizers(kind, object, live.is_some(), &mut errors);
    validate_labels(map.get("labels"), "metadata.labels", &mut errors);
    validate_annotations(map, "metadata", &mut errors);
    if let Some(live) = live {
        validate_change(object, live, &mut errors);
    }
    errors
}

type Rule = fn(&str) -> Vec<String>;

/// What names of a kind must look like.
fn name_rule(kind: &Kind) -> Rule {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") if kind.is_builtin() => name::label,
        (crate::access::GROUP | "apiregistration.k8s.io", _) if kind.is_builtin() => name::path_segment,
        // Only the newer group looks at the names of events.
        ("", "Event") | ("policy", "PodDisruptionBudget") => name::path_segment,
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

fn validate_annotations(map: &Map<String, Value>, place: &str, errors: &mut Vec<FieldError>) {
    let path = &format!("{place}.annotations");
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

/// Finalizers that need no domain.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What the names of finalizers must look like: for all kinds when an object is new, for built-in ones also later, and
/// with a domain only for those that are no extensions of the API themselves.
fn validate_finalizers(kind: &Kind, object: &Value, update: bool, errors: &mut Vec<FieldError>) {
    const OUTSIDE: [&str; 3] =
        ["apiextensions.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io"];
    let core_event = kind.group.is_empty() && kind.kind == "Event";
    let inside = kind.is_builtin() && !OUTSIDE.contains(&kind.group.as_str()) && !core_event;
    let path = "metadata.finalizers";
    let all = finalizers(object);
    if !update || inside && matches!(kind.group.as_str(), "" | crate::access::GROUP) {
        check_finalizers(&all, path, errors);
    }
    let plain = |finalizer: &&str| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer);
    for (at, finalizer) in all.iter().enumerate().filter(|(_, finalizer)| inside && plain(finalizer)) {
        errors.push(FieldError::invalid(format!("{path}[{at}]"), &json!(finalizer), UNQUALIFIED));
    }
}

/// The names of finalizers, and two that exclude each other.
fn check_finalizers(all: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for finalizer in all {
        for fault in name::qualified(finalizer) {
            errors.push(FieldError::invalid(path, &json!(finalizer), &fault));
        }
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, &json!(all), detail));
    }
}

/// The metadata at `path` of an object inside of another one, which may be without a name.
pub(crate) fn validate_embedded(metadata: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut refuse = |key: &str, faults: Vec<String>| {
        for fault in faults {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(text(key)), &fault));
        }
    };
    let prefix = text("generateName").trim_end_matches('.');
    refuse("generateName", name::path_segment(prefix));
    refuse("name", name::path_segment(text("name")));
    let namespace = text("namespace");
    refuse("namespace", if namespace.is_empty() { Vec::new() } else { name::label(namespace) });
    if let Some(number) = metadata.get("generation").filter(|number| number.as_i64().is_some_and(|n| n < 0)) {
        errors.push(FieldError::invalid(format!("{path}.generation"), number, super::NOT_NEGATIVE));
    }
    validate_labels(metadata.get("labels"), &format!("{path}.labels"), errors);
    validate_annotations(metadata, path, errors);
    validate_owners(metadata, path, errors);
    let all = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<&str> = all.filter_map(Value::as_str).collect();
    check_finalizers(&all, &format!("{path}.finalizers"), errors);
}

/// `spec.finalizers` of a namespace.
pub(crate) fn validate_namespace_finalizers(namespace: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.finalizers";
    for finalizer in super::items(namespace, path) {
        let text = finalizer.as_str().unwrap_or_default();
        for fault in name::qualified(text) {
            errors.push(FieldError::invalid(path, finalizer, &fault));
        }
        if !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            errors.push(FieldError::invalid(path, finalizer, UNQUALIFIED));
        }
    }
}

const UNQUALIFIED: &str = "name is neither a standard finalizer name nor is it fully qualified";

/// What a server warns of when finalizers are added to a custom object, where it does not refuse them.
pub(crate) fn finalizer_warnings(object: &Value, live: Option<&Value>) -> Vec<String> {
    let before = live.map(finalizers).unwrap_or_default();
    let added: BTreeSet<&str> = finalizers(object).into_iter().filter(|one| !before.contains(one)).collect();
    let mut warnings = Vec::new();
    for finalizer in added {
        let mut warn = |detail: &str| warnings.push(format!("metadata.finalizers: {finalizer:?}: {detail}"));
        for fault in name::qualified(finalizer) {
            warn(&fault);
        }
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            warn(&format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer \
                 writers"
            ));
        }
    }
    warnings
}

fn validate_owners(map: &Map<String, Value>, place: &str, errors: &mut Vec<FieldError>) {
    let path = &format!("{place}.ownerReferences");
    let owners = map.get("ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let get =
        |owner: &Value, key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut controller: Option<String> = None;
    for owner in owners {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if get(owner, key).is_empty() {
                let detail =
                    if key == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(""), detail));
            }
        }
        let (version, kind) = (get(owner, "apiVersion"), get(owner, "kind"));
        if kind == "Event" && version == "v1" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(with_text(path, &reference(owner), detail));
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

#[cfg(test)]
mod tests;
