//! Quotas and limit ranges of namespaces.

use std::collections::BTreeSet;

use neonvm_types::Quantity;
use serde_json::{Value, json};

use super::resources::{self, Amounts};
use super::{items, name};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// Scopes by what pods are, which a selector can only require.
const OF_PODS: [&str; 5] =
    ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];
const OTHER_SCOPES: [&str; 2] = ["PriorityClass", "VolumeAttributesClass"];
/// Scopes that no object has together.
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const UNSUPPORTED: &str = "unsupported scope";

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = at(object, "spec").unwrap_or(&Value::Null);
    let hard = resources::amounts(spec, "hard");
    validate_amounts(&hard, "spec.hard", errors);
    if let Some(status) = at(object, "status") {
        for list in ["hard", "used"] {
            validate_amounts(&resources::amounts(status, list), &format!("status.{list}"), errors);
        }
    }
    validate_scopes(spec, &hard, errors);
    validate_selector(spec, &hard, errors);
}

fn validate_amounts(amounts: &Amounts, path: &str, errors: &mut Vec<FieldError>) {
    for (resource, amount) in amounts {
        let field = format!("{path}[{resource}]");
        for fault in resources::quota_name_faults(resource) {
            errors.push(FieldError::invalid(field.clone(), &json!(resource), &fault));
        }
        for fault in resources::quota_amount_faults(resource, *amount) {
            errors.push(FieldError::invalid(field.clone(), &json!(amount.to_string()), fault));
        }
    }
}

fn is_scope(scope: &str) -> bool {
    OF_PODS.contains(&scope) || OTHER_SCOPES.contains(&scope)
}

/// Whether the objects that a resource counts have the property of a scope.
fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ if OF_PODS.contains(&scope) || scope == "PriorityClass" => {
            matches!(resource, "pods" | "cpu" | "memory")
                || ["limits.", "requests."]
                    .iter()
                    .filter_map(|prefix| resource.strip_prefix(prefix))
                    .any(|rest| matches!(rest, "cpu" | "memory"))
        }
        _ => true,
    }
}

/// Refuses a scope, shown with the value at a path, for each resource that it does not apply to.
fn check_resources(scope: &str, hard: &Amounts, (path, shown): (&str, &Value), errors: &mut Vec<FieldError>) {
    for resource in hard.keys().filter(|resource| resources::is_of_quotas(resource)) {
        if !applies(scope, resource) {
            errors.push(FieldError::invalid(path, shown, "unsupported scope applied to resource"));
        }
    }
}

fn validate_scopes(spec: &Value, hard: &Amounts, errors: &mut Vec<FieldError>) {
    let scopes = items(spec, "scopes");
    let shown = json!(scopes);
    let names: BTreeSet<&str> = scopes.iter().filter_map(Value::as_str).collect();
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !is_scope(scope) {
            errors.push(FieldError::invalid("spec.scopes", &shown, UNSUPPORTED));
        }
        check_resources(scope, hard, ("spec.scopes", &shown), errors);
    }
    if CONFLICTS.iter().any(|pair| pair.iter().all(|one| names.contains(one))) {
        errors.push(FieldError::invalid("spec.scopes", &shown, "conflicting scopes"));
    }
}

fn validate_selector(spec: &Value, hard: &Amounts, errors: &mut Vec<FieldError>) {
    let path = "spec.scopeSelector.matchExpressions";
    for term in items(spec, "scopeSelector.matchExpressions") {
        let (scope, operator, values) =
            (text_at(term, "scopeName"), text_at(term, "operator"), items(term, "values"));
        if !is_scope(scope) {
            errors.push(FieldError::invalid(format!("{path}.scopeName"), &json!(scope), UNSUPPORTED));
        }
        check_resources(scope, hard, (path, spec.get("scopeSelector").unwrap_or(&Value::Null)), errors);
        if OF_PODS.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                          ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                          ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(format!("{path}.operator"), &json!(operator), detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(format!("{path}.values"), &json!(values), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), detail));
            }
        }
    }
}

/// A quota that replaces `live`: what it counts stays.
pub(super) fn validate_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.scopes";
    let of = |quota: &Value| -> BTreeSet<String> {
        items(quota, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if of(object) != of(live) {
        let shown = at(object, path).unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path, shown, super::IMMUTABLE));
    }
}

/// The limits of a limit range, of which there is one for each type of object.
pub(super) fn validate_limits(object: &Value, errors: &mut Vec<FieldError>) {
    let mut types = Vec::new();
    for (index, limit) in items(object, "spec.limits").iter().enumerate() {
        let (path, kind) = (format!("spec.limits[{index}]"), text_at(limit, "type"));
        let field = format!("{path}.type");
        let faults = name::qualified(kind);
        if faults.is_empty()
            && !kind.contains('/')
            && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind)
        {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(field.clone(), &json!(kind), detail));
        }
        for fault in faults {
            errors.push(FieldError::invalid(field.clone(), &json!(kind), &fault));
        }
        if types.contains(&kind) {
            errors.push(FieldError::duplicate(field, &json!(kind)));
        }
        types.push(kind);
        validate_limit(limit, kind, &path, errors);
    }
}

fn validate_limit(limit: &Value, kind: &str, path: &str, errors: &mut Vec<FieldError>) {
    let mut keys = BTreeSet::new();
    let mut names = |list: &str, errors: &mut Vec<FieldError>| {
        for resource in resources::amounts(limit, list).into_keys() {
            for fault in resources::limit_name_faults(kind, &resource) {
                errors.push(FieldError::invalid(
                    format!("{path}.{list}[{resource}]"),
                    &json!(resource),
                    &fault,
                ));
            }
            keys.insert(resource);
        }
    };
    names("max", errors);
    names("min", errors);
    for list in ["default", "defaultRequest"] {
        if kind != "Pod" {
            names(list, errors);
        } else if limit.get(list).and_then(Value::as_object).is_some_and(|map| !map.is_empty()) {
            let why = "may not be specified when `type` is 'Pod'";
            errors.push(FieldError::forbidden(format!("{path}.{list}"), why));
        }
    }
    names("maxLimitRequestRatio", errors);
    if kind == "PersistentVolumeClaim"
        && ["max", "min"].iter().all(|list| !resources::amounts(limit, list).contains_key("storage"))
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required("spec.limits", detail));
    }
    for resource in keys {
        compare(limit, &resource, path, errors);
    }
}

/// How the amounts of one resource have to follow each other.
fn compare(limit: &Value, resource: &str, path: &str, errors: &mut Vec<FieldError>) {
    let of = |list: &str| resources::amounts(limit, list).get(resource).copied();
    let (least, most, usual, asked) = (of("min"), of("max"), of("default"), of("defaultRequest"));
    let mut refuse = |list: &str, shown: Quantity, detail: String| {
        errors.push(FieldError::invalid(
            format!("{path}.{list}[{resource}]"),
            &json!(shown.to_string()),
            &detail,
        ));
    };
    let above =
        |one: Option<Quantity>, other: Option<Quantity>| one.zip(other).filter(|(one, other)| one > other);
    if let Some((least, most)) = above(least, most) {
        refuse("min", least, format!("min value {least} is greater than max value {most}"));
    }
    if let Some((least, asked)) = above(least, asked) {
        refuse(
            "defaultRequest",
            asked,
            format!("min value {least} is greater than default request value {asked}"),
        );
    }
    if let Some((asked, most)) = above(asked, most) {
        refuse(
            "defaultRequest",
            asked,
            format!("default request value {asked} is greater than max value {most}"),
        );
    }
    if let Some((asked, usual)) = above(asked, usual) {
        let detail = format!("default request value {asked} is greater than default limit value {usual}");
        refuse("defaultRequest", asked, detail);
    }
    if let Some((least, usual)) = above(least, usual) {
        refuse("default", usual, format!("min value {least} is greater than default value {usual}"));
    }
    if let Some((usual, most)) = above(usual, most) {
        refuse("default", most, format!("default value {usual} is greater than max value {most}"));
    }
    let Some(ratio) = of("maxLimitRequestRatio") else { return };
    if ratio < Quantity::from_units(1, ratio.format()) {
        refuse("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
    }
    if let Some((least, most)) = least.zip(most) {
        let (ratio_limit, own) = (most.as_float() / least.as_float(), ratio.as_float());
        if own > ratio_limit {
            let detail = format!("ratio {ratio} is greater than max/min = {ratio_limit:.6}");
            refuse("maxLimitRequestRatio", ratio, detail);
        }
    }
}
