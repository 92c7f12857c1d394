//! Whether a definition may be stored, worded as a Kubernetes API server words it.
//!
//! Definitions are expected decoded and prepared (see [`super::prepare`]). The object's name as such, labels and other
//! metadata are checked elsewhere, as for every kind. What all versions have in common is reported at the top level of
//! `spec` (`spec.validation`, `spec.subresources`, …), where the internal form of a definition keeps it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{at, columns, list, names, schemas, status, text};
use crate::field::{FieldError, FieldReason};

/// Groups that belong to the Kubernetes project.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Checks a new definition.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(definition, &["spec"]);
    let name = text(at(definition, &["metadata"]), "name");
    let wanted = format!("{}.{}", text(at(spec, &["names"]), "plural"), text(spec, "group"));
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &json!(name), detail));
    }
    approval(definition, &mut errors);
    validate_spec(spec, &mut errors);
    if at(spec, &["preserveUnknownFields"]) == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    stored_versions(definition, None, &mut errors);
    errors
}

/// Checks a changed definition.
pub fn validate_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(definition, &["spec"]);
    if at(spec, &["versions"]) == at(old, &["spec", "versions"]) {
        // Schemas accepted earlier stay valid; the other fields are cheap to validate again.
        validate_outline(spec, &mut errors);
    } else {
        validate_spec(spec, &mut errors);
    }
    let established = status::is_true(old, "Established");
    let fixed: [(&[&str], bool); 4] = [
        (&["group"], true),
        (&["names", "plural"], true),
        (&["scope"], established),
        (&["names", "kind"], established),
    ];
    for (path, immutable) in fixed {
        let new = at(spec, path);
        if immutable && new != at(at(old, &["spec"]), path) {
            errors.push(FieldError::invalid(format!("spec.{}", path.join(".")), new, "field is immutable"));
        }
    }
    let preserves = |value: &Value| at(value, &["spec", "preserveUnknownFields"]) == true;
    if preserves(definition) && !preserves(old) {
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), "must be false"));
    }
    stored_versions(definition, Some(old), &mut errors);
    errors
}

/// Protected groups need the project's approval, as an annotation.
fn approval(definition: &Value, errors: &mut Vec<FieldError>) {
    let group = text(at(definition, &["spec"]), "group");
    let protected =
        |root: &&str| group.strip_suffix(*root).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let annotation = text(at(definition, &["metadata", "annotations"]), APPROVAL);
    if PROTECTED.iter().any(protected) && annotation.is_empty() {
        let detail = format!(
            "protected groups must have approval annotation \"{APPROVAL}\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(format!("metadata.annotations[{APPROVAL}]"), &detail));
    }
}

fn validate_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    validate_outline(spec, errors);
    schemas::check(spec, errors);
    columns::check(spec, errors);
}

fn validate_outline(spec: &Value, errors: &mut Vec<FieldError>) {
    names::group(&text(spec, "group"), errors);
    let scope = text(spec, "scope");
    if scope.is_empty() {
        errors.push(FieldError::required("spec.scope", ""));
    } else if !matches!(scope.as_str(), "Cluster" | "Namespaced") {
        errors.push(FieldError::not_supported("spec.scope", &json!(scope), &["Cluster", "Namespaced"]));
    }
    versions(spec, errors);
    names::names(at(spec, &["names"]), "spec.names", true, errors);
    conversion(spec, errors);
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = list(spec, "versions");
    let mut seen = BTreeSet::new();
    let unique = versions.iter().all(|version| seen.insert(text(version, "name")));
    let storage = versions.iter().filter(|version| at(version, &["storage"]) == true).count();
    for (index, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        let faults = names::label_faults(&name);
        if !faults.is_empty() {
            let field = format!("spec.versions[{index}].name");
            errors.push(FieldError::invalid(field, &json!(name), &faults.join(",")));
        }
        deprecation(version, &format!("spec.versions[{index}].deprecationWarning"), errors);
    }
    let shown = at(spec, &["versions"]);
    if !unique {
        errors.push(FieldError::invalid("spec.versions", shown, "must contain unique version names"));
    }
    if storage != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", shown, detail));
    }
}

fn deprecation(version: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let warning = at(version, &["deprecationWarning"]);
    let Some(words) = warning.as_str() else { return };
    if at(version, &["deprecated"]) != true {
        errors.push(FieldError::invalid(field, warning, "can only be set for deprecated versions"));
    }
    if words.len() > 256 {
        errors.push(FieldError::too_long(field, 256));
    }
    if words.is_empty() {
        errors.push(FieldError::invalid(field, warning, "must not be an empty string"));
    }
    if words.chars().any(char::is_control) {
        errors.push(FieldError::invalid(field, warning, "must only contain printable UTF-8 characters"));
    }
}

fn conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let conversion = at(spec, &["conversion"]);
    let path = "spec.conversion";
    let webhook = at(conversion, &["webhook"]);
    match text(conversion, "strategy").as_str() {
        "None" => {
            if !webhook.is_null() {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.push(FieldError::forbidden(format!("{path}.webhookClientConfig"), detail));
            }
        }
        "Webhook" => {
            if !at(webhook, &["clientConfig"]).is_object() {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(format!("{path}.webhookClientConfig"), detail));
            }
            if list(webhook, "conversionReviewVersions").is_empty() {
                errors.push(FieldError::required(format!("{path}.conversionReviewVersions"), ""));
            }
        }
        "" => errors.push(FieldError::required(format!("{path}.strategy"), "")),
        other => {
            let field = format!("{path}.strategy");
            errors.push(FieldError::not_supported(field, &json!(other), &["None", "Webhook"]));
        }
    }
}

/// Checks what versions objects are stored in; `old` is the definition as it was, if it was.
fn stored_versions(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let stored = list(at(definition, &["status"]), "storedVersions");
    if stored.is_empty() {
        let empty = FieldError::with_value(
            FieldReason::Invalid,
            path,
            &json!([]),
            "must have at least one stored version",
        );
        errors.push(empty);
        return;
    }
    let versions = list(at(definition, &["spec"]), "versions");
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| at(version, &["name"]) == name) {
            let version = name.as_str().unwrap_or_default();
            let was_there = old.is_some_and(|old| {
                let before = list(at(old, &["spec"]), "versions");
                before.iter().any(|version| at(version, &["name"]) == name)
            });
            let detail = if was_there {
                format!(
                    "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
                )
            } else {
                "must appear in spec.versions".to_owned()
            };
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name, &detail));
        }
    }
    let storage = versions.iter().find(|version| at(version, &["storage"]) == true);
    if let Some(name) = storage.map(|version| at(version, &["name"]))
        && !stored.contains(name)
    {
        let detail = format!("must have the storage version {}", name.as_str().unwrap_or_default());
        errors.push(FieldError::invalid(path, &Value::Array(stored.to_vec()), &detail));
    }
}

#[cfg(test)]
mod tests;
