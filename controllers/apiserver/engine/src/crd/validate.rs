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
    errors.extend(approval(definition));
    validate_spec(spec, &mut errors);
    preserve(definition, &mut errors);
    stored_versions(definition, &mut errors);
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
    if at(old, &["spec", "preserveUnknownFields"]) != true {
        preserve(definition, &mut errors);
    }
    let approved = approval(definition);
    if approved != approval(old) {
        errors.extend(approved);
    }
    stored_versions(definition, &mut errors);
    errors
}

fn preserve(definition: &Value, errors: &mut Vec<FieldError>) {
    if at(definition, &["spec", "preserveUnknownFields"]) == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
}

/// Protected groups need the project's approval, as an annotation: an address, or why there is none.
fn approval(definition: &Value) -> Option<FieldError> {
    let group = text(at(definition, &["spec"]), "group");
    let protected =
        |root: &&str| group.strip_suffix(*root).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !PROTECTED.iter().any(protected) {
        return None;
    }
    let annotation = text(at(definition, &["metadata", "annotations"]), APPROVAL);
    let field = format!("metadata.annotations[{APPROVAL}]");
    let why = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    let more = "see https://github.com/kubernetes/enhancements/pull/1111";
    let address = annotation.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && host.split('/').next().is_some_and(|host| !host.is_empty())
    });
    if annotation.is_empty() {
        return Some(FieldError::required(field, &format!("{why}, {more}")));
    }
    if address || annotation.starts_with("unapproved") {
        return None;
    }
    let detail = format!("{why} with either a URL or a reason starting with \"unapproved\", {more}");
    Some(FieldError::invalid(field, &json!(annotation), &detail))
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
    let mut refuse = |detail: &str| {
        let message = format!("Invalid value: {}: {detail}", super::go::versions(spec));
        errors.push(FieldError { reason: FieldReason::Invalid, field: "spec.versions".to_owned(), message });
    };
    if !unique {
        refuse("must contain unique version names");
    }
    if storage != 1 {
        refuse("must have exactly one version marked as storage version");
    }
    // The first version is also that of the definition as a whole.
    let first = versions.first().map(|version| text(version, "name")).unwrap_or_default();
    let faults = if first.is_empty() { Vec::new() } else { names::label_faults(&first) };
    if !faults.is_empty() {
        errors.push(FieldError::invalid("spec.version", &json!(first), &faults.join(",")));
    }
}

fn deprecation(version: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let warning = at(version, &["deprecationWarning"]);
    let Some(words) = warning.as_str() else { return };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, warning, detail));
    if at(version, &["deprecated"]) != true {
        refuse("can only be set for deprecated versions");
        return;
    }
    if words.len() > 256 {
        refuse("must be <= 256 characters long");
    }
    if words.is_empty() {
        refuse("must not be an empty string");
    }
    let hidden = |c: char| c.is_control() || c.is_whitespace() && c != ' ';
    if let Some((index, _)) = words.char_indices().find(|(_, c)| hidden(*c)) {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
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
            errors.push(FieldError::not_supported(field, &json!(other), &["None", "Webhook"]));
        }
    }
    let webhook = at(conversion, &["webhook"]);
    let (client, reviews) = (at(webhook, &["clientConfig"]), list(webhook, "conversionReviewVersions"));
    let place = format!("{path}.webhookClientConfig");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_object() {
            errors.push(FieldError::forbidden(place, detail));
        }
        if !reviews.is_empty() {
            errors.push(FieldError::forbidden(format!("{path}.conversionReviewVersions"), detail));
        }
        return;
    }
    let (url, service) = (at(client, &["url"]), at(client, &["service"]));
    if !client.is_object() {
        errors.push(FieldError::required(place, "required when strategy is set to Webhook"));
    } else if url.is_null() == service.is_null() {
        errors.push(FieldError::required(place, "exactly one of url or service is required"));
    } else {
        crate::builtin::webhook::validate_client(client, &place, errors);
    }
    review_versions(reviews, &format!("{path}.conversionReviewVersions"), errors);
}

/// Versions of the reviews that a webhook understands: one of those that the server sends must be among them.
fn review_versions(reviews: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if reviews.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, review) in reviews.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if reviews.iter().take(index).any(|other| other == review) {
            errors.push(FieldError::invalid(field, review, "duplicate version"));
            continue;
        }
        for fault in names::label_faults(review.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field.clone(), review, &fault));
        }
    }
    if !reviews.iter().any(|review| review == "v1" || review == "v1beta1") {
        errors.push(FieldError::invalid(path, &json!(reviews), "must include at least one of v1, v1beta1"));
    }
}

/// Checks what versions objects are stored in.
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
            errors.push(FieldError::invalid(path, &json!(stored), &detail));
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
