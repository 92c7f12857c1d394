//! Whether a definition may be stored, worded as a Kubernetes API server words it.
//!
//! Definitions are expected decoded and prepared (see [`super::prepare`]). The object's name as such, labels and other
//! metadata are checked elsewhere, as for every kind. What all versions have in common is reported at the top level of
//! `spec` (`spec.validation`, `spec.subresources`, …), where the internal form of a definition keeps it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{at, columns, list, names, schemas, status, text};
use crate::field::{FieldError, FieldReason};

pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(definition, &["spec"]);
    let name = text(at(definition, &["metadata"]), "name");
    let wanted = format!("{}.{}", text(at(spec, &["names"]), "plural"), text(spec, "group"));
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &name, detail));
    }
    validate_spec(spec, &mut errors);
    preserve(definition, &mut errors);
    approval(definition, &mut errors);
    stored_versions(definition, &mut errors);
    errors
}

/// Groups of Kubernetes itself need the address of their review.
fn approval(definition: &Value, errors: &mut Vec<FieldError>) {
    const KEY: &str = "api-approved.kubernetes.io";
    let group = text(at(definition, &["spec"]), "group");
    if !["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}"))) {
        return;
    }
    let (field, given) =
        (format!("metadata.annotations[{KEY}]"), text(at(definition, &["metadata", "annotations"]), KEY));
    let detail = format!(
        "protected groups must have approval annotation {KEY:?}, see https://github.com/kubernetes/enhancements/pull/1111"
    );
    if given.is_empty() {
        errors.push(FieldError::required(field, &detail));
    } else if !given.starts_with("https://") && !given.starts_with("unapproved") {
        errors.push(FieldError::invalid(field, &given, &detail));
    }
}

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
    if at(old, &["spec", "preserveUnknownFields"]) != true {
        preserve(definition, &mut errors);
    }
    stored_versions(definition, &mut errors);
    errors
}

fn preserve(definition: &Value, errors: &mut Vec<FieldError>) {
    if at(definition, &["spec", "preserveUnknownFields"]) == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &true, detail));
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
        errors.push(FieldError::not_supported("spec.scope", &scope, &["Cluster", "Namespaced"]));
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
        let faults = crate::builtin::label_1035(&name);
        if !faults.is_empty() {
            // The first one stands in two places.
            let places = [
                Some(format!("spec.versions[{index}].name")),
                (index == 0 && !name.is_empty()).then(|| "spec.version".to_owned()),
            ];
            for field in places.into_iter().flatten() {
                errors.push(FieldError::invalid(field, &name, &faults.join(",")));
            }
        }
        if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
            let detail = match warning {
                "" => "must not be an empty string",
                _ if at(version, &["deprecated"]) != true => "can only be set for deprecated versions",
                long if long.len() > 256 => "must be <= 256 characters long",
                text if text.contains(char::is_control) => {
                    "must only contain printable UTF-8 characters; non-printable character found"
                }
                _ => continue,
            };
            let field = format!("spec.versions[{index}].deprecationWarning");
            errors.push(FieldError::invalid(field, &warning, detail));
        }
    }
    let mut refuse = |detail: &str| {
        errors.push(FieldError::bare(FieldReason::Invalid, "spec.versions", detail));
    };
    if !unique {
        refuse("must contain unique version names");
    }
    if storage != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

fn conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let conversion = at(spec, &["conversion"]);
    let path = "spec.conversion";
    let strategy = text(conversion, "strategy");
    match strategy.as_str() {
        "None" | "Webhook" => {}
        "" => errors.push(FieldError::required(format!("{path}.strategy"), "")),
        other => {
            let field = format!("{path}.strategy");
            errors.push(FieldError::not_supported(field, &other, &["None", "Webhook"]));
        }
    }
    let client = at(conversion, &["webhook", "clientConfig"]);
    let versions = list(at(conversion, &["webhook"]), "conversionReviewVersions");
    let (client_field, field) =
        (format!("{path}.webhookClientConfig"), format!("{path}.conversionReviewVersions"));
    if strategy != "Webhook" {
        for (field, given) in [(client_field, client.is_object()), (field, !versions.is_empty())] {
            if given {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.push(FieldError::forbidden(field, detail));
            }
        }
        return;
    }
    if client.is_object() {
        crate::builtin::webhook::validate_client(client, &client_field, errors);
    } else {
        errors.push(FieldError::required(client_field, "required when strategy is set to Webhook"));
    }
    for (index, version) in versions.iter().enumerate() {
        if versions.iter().take(index).any(|other| other == version) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), version, "duplicate version"));
        }
    }
    if versions.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(field, &versions, detail));
    }
}

fn stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let stored = list(at(definition, &["status"]), "storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = list(at(definition, &["spec"]), "versions");
    for version in versions.iter().filter(|version| at(version, &["storage"]) == true) {
        let name = at(version, &["name"]);
        if !stored.contains(name) {
            let detail = format!("must have the storage version {}", name.as_str().unwrap_or_default());
            errors.push(FieldError::invalid(path, &stored, &detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| at(version, &["name"]) == name) {
            let version = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name, &detail));
        }
    }
}

#[cfg(test)]
mod tests;
