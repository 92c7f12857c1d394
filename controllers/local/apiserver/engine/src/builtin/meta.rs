//! Validation of `metadata`, for every kind.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{IMMUTABLE, name};
use crate::field::{FieldError, FieldReason};
use crate::kinds::Kind;
use crate::object::{finalizers, is_deleting, meta, meta_text};

/// The annotation of a pod that stands for one that a node runs by itself.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
/// Bytes that all annotations together may take.
const MAX_ANNOTATIONS: usize = 256 << 10;
const FINALIZERS: &str = "metadata.finalizers";

/// What is wrong with the metadata of a new object, or of a change from `live`.
pub fn validate(kind: &Kind, object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    match live {
        None => validate_name(name_rule(kind), object, found),
        Some(live) => {
            validate_prefix(name_rule(kind), object, found);
            validate_kept(object, live, found);
        }
    }
    validate_parts(meta(object), found);
    let all = finalizers(object);
    check_finalizers(&all, FINALIZERS, found);
    if kind.is_builtin() && qualifies_finalizers(&kind.group, &kind.kind) {
        check_qualified(&all, found);
    }
    errors
}

/// What is looked at in new and in changed metadata.
fn validate_parts(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    validate_labels(map.get("labels"), "metadata.labels", errors);
    validate_annotations(map, "metadata", errors);
    validate_owners(map, "metadata", errors);
}

/// Whether finalizers of a built-in kind have to be known or qualified.
fn qualifies_finalizers(group: &str, kind: &str) -> bool {
    const OTHERS: [&str; 4] =
        ["apiextensions.k8s.io", "admissionregistration.k8s.io", "coordination.k8s.io", "policy"];
    !OTHERS.contains(&group) && (group, kind) != ("", "Event")
}

fn check_qualified(all: &[&str], errors: &mut Vec<FieldError>) {
    let plain = |finalizer: &&str| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer);
    for (at, finalizer) in all.iter().enumerate().filter(|(_, finalizer)| plain(finalizer)) {
        errors.push(FieldError::invalid(format!("{FINALIZERS}[{at}]"), &finalizer, UNQUALIFIED));
    }
}

type Rule = fn(&str) -> Vec<String>;

fn name_rule(kind: &Kind) -> Rule {
    if kind.is_builtin() { builtin_rule(&kind.group, &kind.kind) } else { name::subdomain }
}

fn builtin_rule(group: &str, kind: &str) -> Rule {
    match (group, kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => name::label,
        (crate::access::GROUP, _) => name::path_segment,
        // Only the newer group looks at the names of events.
        ("", "Event") | ("policy", "PodDisruptionBudget") => name::path_segment,
        _ => name::subdomain,
    }
}

fn validate_name(rule: Rule, object: &Value, errors: &mut Vec<FieldError>) {
    validate_prefix(rule, object, errors);
    let text = meta_text(object, "name");
    if text.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    for fault in rule(text) {
        errors.push(FieldError::invalid("metadata.name", &text, &fault));
    }
}

fn validate_prefix(rule: Rule, object: &Value, errors: &mut Vec<FieldError>) {
    let prefix = meta_text(object, "generateName");
    if prefix.is_empty() {
        return;
    }
    // A dash at the end is fine in a prefix: something follows.
    let masked = match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => prefix.to_owned(),
    };
    for fault in rule(&masked) {
        errors.push(FieldError::invalid("metadata.generateName", &prefix, &fault));
    }
}

pub(super) fn validate_labels(labels: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        name::check(key, path, name::qualified, errors);
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
            errors.push(FieldError::invalid(path, &key, &fault));
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

/// The names of finalizers, and two that exclude each other.
fn check_finalizers(all: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for finalizer in all {
        name::check(finalizer, path, name::qualified, errors);
    }
    if all.contains(&"orphan") && all.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, &all, detail));
    }
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
                errors.push(FieldError::invalid(format!("{path}.{key}"), "", detail));
            }
        }
        let (version, kind) = (get(owner, "apiVersion"), get(owner, "kind"));
        if version.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(format!("{path}.apiVersion"), &version, &detail));
        }
        if kind == "Event" && version == "v1" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner, detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let own = format!("{kind}/{}", get(owner, "name"));
            match &controller {
                None => controller = Some(own),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {own}"
                    );
                    errors.push(FieldError::invalid(path, &owners, &detail));
                }
            }
        }
    }
}

/// What stays in the life of an object.
fn validate_kept(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
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
            errors.push(FieldError::forbidden(FINALIZERS, &detail));
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
