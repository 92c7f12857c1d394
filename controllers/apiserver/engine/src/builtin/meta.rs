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
const FINALIZERS: &str = "metadata.finalizers";

/// What is wrong with the metadata of a new object, or of a change from `live`.
pub fn validate(kind: &Kind, object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let found = &mut errors;
    let Some(live) = live else {
        validate_name(name_rule(kind), object, found);
        // A CronJob's Jobs have its name plus eleven characters, and Jobs have the names of labels.
        let text = meta_text(object, "name");
        if kind.kind == "CronJob" && kind.is_builtin() && text.len() > 52 {
            let detail = "must be no more than 52 characters";
            found.push(FieldError::invalid("metadata.name", &json!(text), detail));
        }
        validate_new(object, kind.is_builtin() && qualifies_finalizers(&kind.group, &kind.kind), found);
        return errors;
    };
    // Whatever the kind is, changed metadata are looked at as those of a new object, then as a change.
    validate_prefix(name::path_segment, object, found);
    validate_new(object, false, found);
    // Those of custom objects are looked at as a change twice.
    for _ in 0..=usize::from(kind.custom.is_some()) {
        validate_kept(object, live, found);
        validate_parts(meta(object), found);
    }
    errors
}

/// Metadata of a built-in kind as those of a new object; its name is known to be fine.
pub(super) fn validate_whole(group: &str, kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    validate_prefix(builtin_rule(group, kind), object, errors);
    validate_new(object, qualifies_finalizers(group, kind), errors);
}

/// Metadata of a built-in kind that replace those of `live`.
pub(super) fn validate_change(
    (group, kind): (&str, &str),
    object: &Value,
    live: &Value,
    errors: &mut Vec<FieldError>,
) {
    validate_kept(object, live, errors);
    validate_parts(meta(object), errors);
    if qualifies_finalizers(group, kind) {
        check_qualified(&finalizers(object), errors);
    }
}

/// Metadata of a new object but its name; whether finalizers have to be known or qualified.
fn validate_new(object: &Value, qualified: bool, errors: &mut Vec<FieldError>) {
    validate_parts(meta(object), errors);
    let all = finalizers(object);
    check_finalizers(&all, FINALIZERS, errors);
    if qualified {
        check_qualified(&all, errors);
    }
}

/// What is looked at in new and in changed metadata.
fn validate_parts(map: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    validate_labels(map.get("labels"), "metadata.labels", errors);
    validate_annotations(map, "metadata", errors);
    validate_owners(map, "metadata", errors);
}

/// Whether finalizers of a built-in kind have to be known or qualified.
fn qualifies_finalizers(group: &str, kind: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "apiextensions.k8s.io",
        "admissionregistration.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    !OTHERS.contains(&group) && (group, kind) != ("", "Event")
}

fn check_qualified(all: &[&str], errors: &mut Vec<FieldError>) {
    let plain = |finalizer: &&str| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer);
    for (at, finalizer) in all.iter().enumerate().filter(|(_, finalizer)| plain(finalizer)) {
        errors.push(FieldError::invalid(format!("{FINALIZERS}[{at}]"), &json!(finalizer), UNQUALIFIED));
    }
}

type Rule = fn(&str) -> Vec<String>;

/// What names of a kind must look like.
fn name_rule(kind: &Kind) -> Rule {
    if kind.is_builtin() { builtin_rule(&kind.group, &kind.kind) } else { name::subdomain }
}

fn builtin_rule(group: &str, kind: &str) -> Rule {
    match (group, kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => name::label,
        (crate::access::GROUP | "apiregistration.k8s.io", _) => name::path_segment,
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
        errors.push(FieldError::invalid("metadata.name", &json!(text), &fault));
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
        errors.push(FieldError::invalid("metadata.generateName", &json!(prefix), &fault));
    }
}

/// Labels and annotations of the pods of the template at `path`, where messages leave out its metadata.
pub(super) fn validate_template(template: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map) = template.and_then(|template| template.get("metadata")?.as_object()) else { return };
    validate_labels(map.get("labels"), &format!("{path}.labels"), errors);
    validate_annotations(map, path, errors);
}

/// A map of labels at `path`.
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

/// The names of finalizers, and two that exclude each other.
fn check_finalizers(all: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for finalizer in all {
        name::check(finalizer, path, name::qualified, errors);
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
