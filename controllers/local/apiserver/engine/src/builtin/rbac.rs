//! Roles and bindings.

use serde_json::{Value, json};

use super::items;
use crate::field::FieldError;
use crate::object::{at, text_at};

pub(super) fn validate(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in items(object, "rules").iter().enumerate() {
                validate_rule(rule, &format!("rules[{index}]"), kind == "Role", errors);
            }
            validate_aggregation(object, errors);
        }
        _ => validate_binding(kind, object, errors),
    }
}

fn validate_aggregation(role: &Value, errors: &mut Vec<FieldError>) {
    let Some(rule) = role.get("aggregationRule") else { return };
    let path = "aggregationRule.clusterRoleSelectors";
    let selectors = items(rule, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    for (index, selector) in selectors.iter().enumerate() {
        let before = errors.len();
        let path = format!("{path}[{index}]");
        super::meta::validate_labels(selector.get("matchLabels"), &format!("{path}.matchLabels"), errors);
        if errors.len() > before {
            // The real server shows no value here.
            errors.push(FieldError::invalid(path, &Value::Null, "invalid label selector."));
        }
    }
}

fn validate_rule(rule: &Value, path: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    let urls = items(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let field = format!("{path}.nonResourceURLs");
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(field.clone(), &urls, detail));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|list| !items(rule, list).is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(field, &urls, detail));
        }
        return;
    }
    for (list, thing) in [("apiGroups", "api group"), ("resources", "resource")] {
        if items(rule, list).is_empty() {
            let detail = format!("resource rules must supply at least one {thing}");
            errors.push(FieldError::required(format!("{path}.{list}"), &detail));
        }
    }
}

fn validate_binding(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let roles: &[&str] = if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let role = text_at(object, "roleRef.kind");
    if !roles.contains(&role) {
        errors.push(FieldError::not_supported("roleRef.kind", &role, roles));
    }
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        validate_subject(subject, &format!("subjects[{index}]"), kind == "RoleBinding", errors);
    }
}

fn validate_subject(subject: &Value, path: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    let (kind, group) = (text_at(subject, "kind"), text_at(subject, "apiGroup"));
    match kind {
        "ServiceAccount" => {
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &group, &[""]));
            }
            let name = text_at(subject, "name");
            for fault in if name.is_empty() { Vec::new() } else { super::name::subdomain(name) } {
                errors.push(FieldError::invalid(format!("{path}.name"), &name, &fault));
            }
            if !namespaced && text_at(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != crate::access::GROUP {
                let supported = [crate::access::GROUP];
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &group, &supported));
            }
        }
        _ => {
            let supported = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{path}.kind"), &kind, &supported));
        }
    }
}

/// The role of a binding stays.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (at(object, "roleRef"), at(live, "roleRef"));
    if new != old {
        let part = |key: &str| new.map_or("", |new| text_at(new, key));
        let shown = json!({ "APIGroup": part("apiGroup"), "Kind": part("kind"), "Name": part("name") });
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
}
