//! Deployments, ReplicaSets, StatefulSets and DaemonSets.

pub(super) mod older;
pub(super) mod status;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{items, meta, not_negative, number, one_of, part, placement, pod, set};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};
use crate::selector::LabelSelector;

/// Claims of a StatefulSet are shown as whole objects.
pub(super) fn default_claim_templates(spec: &mut Map<String, Value>) {
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(claim) = claim.as_object_mut() {
            claim.insert("apiVersion".to_owned(), json!("v1"));
            claim.insert("kind".to_owned(), json!("PersistentVolumeClaim"));
        }
    }
}

/// The template's generation of a DaemonSet lives on in an annotation.
pub(super) fn default_template_generation(object: &mut Map<String, Value>) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let annotations =
        metadata.as_object_mut().map(|map| map.entry("annotations").or_insert_with(|| json!({})));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        set(annotations, "deprecated.daemonset.template.generation", json!("1"));
    }
}

/// An object without labels has those of its pods.
pub(super) fn default_labels(object: &mut Map<String, Value>) {
    let template = object.get("spec").and_then(|spec| spec.get("template")?.get("metadata")?.get("labels"));
    let Some(labels) =
        template.filter(|labels| labels.as_object().is_some_and(|map| !map.is_empty())).cloned()
    else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        set(metadata, "labels", labels);
    }
}

/// The oldest controller selects by the labels of its pods.
pub(super) fn default_replication_controller(object: &mut Map<String, Value>) {
    default_labels(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let labels = spec.get("template").and_then(|template| template.get("metadata")?.get("labels")).cloned();
    if let Some(labels) = labels {
        set(spec, "selector", labels);
    }
}

/// One of the kinds that keep pods running; `known` if it was there before.
pub(super) fn validate(kind: &str, object: &Value, known: bool, errors: &mut Vec<FieldError>) {
    if kind == "StatefulSet" {
        validate_stateful_set(object, known, errors);
        return;
    }
    not_negative(object, "", "spec.replicas", errors);
    not_negative(object, "", "spec.minReadySeconds", errors);
    not_negative(object, "", "spec.revisionHistoryLimit", errors);
    if validate_selector(kind, object, errors) {
        validate_template(kind, object, errors);
    }
    match kind {
        "Deployment" => {
            validate_strategy(object, errors);
            validate_progress(object, errors);
        }
        "DaemonSet" => validate_daemon_update(object, errors),
        _ => {}
    }
}

fn validate_template(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let template = at(object, "spec.template");
    meta::validate_template(template, "spec.template", errors);
    let path = "spec.template.spec";
    let spec = at(object, path).unwrap_or(&Value::Null);
    if kind == "StatefulSet" {
        pod::validate_template(&with_claims(object, spec), &format!("{path}."), errors);
        meta::validate_template(template, "spec.template", errors);
    } else {
        pod::validate_template(spec, &format!("{path}."), errors);
    }
    let policy = text_at(spec, "restartPolicy");
    if policy != "Always" {
        let field = format!("{path}.restartPolicy");
        errors.push(FieldError::not_supported(field, &json!(policy), &["Always"]));
    }
    if spec.get("activeDeadlineSeconds").is_some() {
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(format!("{path}.activeDeadlineSeconds"), &why));
    }
}

/// The pod spec as the pods of a StatefulSet have it: with the volumes of its claims, without names that are theirs.
fn with_claims(object: &Value, spec: &Value) -> Value {
    let claims = items(object, "spec.volumeClaimTemplates");
    let names: BTreeSet<&str> = claims.iter().map(crate::object::name).collect();
    let mut spec = spec.clone();
    let Some(map) = spec.as_object_mut() else { return spec };
    map.remove("subdomain");
    map.remove("hostname");
    if names.is_empty() {
        return spec;
    }
    let of_claim = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = names.iter().map(of_claim).collect();
    let own = map.remove("volumes").and_then(|own| own.as_array().cloned()).unwrap_or_default();
    volumes.extend(own.into_iter().filter(|volume| !names.contains(&text_at(volume, "name"))));
    map.insert("volumes".to_owned(), Value::Array(volumes));
    spec
}

/// Checks the selector, and whether it takes the labels of the template; whether the template is to be checked too.
fn validate_selector(kind: &str, object: &Value, errors: &mut Vec<FieldError>) -> bool {
    let path = "spec.selector";
    let selector = at(object, path).filter(|selector| !selector.is_null());
    let before = errors.len();
    placement::validate_selector(selector, path, errors);
    let readable = errors.len() == before;
    let is_empty = selector.is_some_and(placement::is_empty);
    if selector.is_none() && kind != "DaemonSet" {
        errors.push(FieldError::required(path, ""));
    }
    if let Some(selector) = selector.filter(|_| is_empty) {
        let set = match kind {
            "StatefulSet" => "statefulset",
            "DaemonSet" => "daemonset",
            _ => "deployment",
        };
        errors.push(FieldError::invalid(path, selector, &format!("empty selector is invalid for {set}")));
    }
    if !readable {
        let detail = if kind == "StatefulSet" { "" } else { "invalid label selector" };
        if kind != "DaemonSet" {
            let value = selector.map_or_else(String::new, part::shown_selector);
            let end = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            let message = format!("Invalid value: {value}{end}");
            errors.push(FieldError { reason: FieldReason::Invalid, field: path.to_owned(), message });
        }
        return kind == "DaemonSet";
    }
    let labels = at(object, "spec.template.metadata.labels");
    let labelled = json!({"metadata": {"labels": labels.unwrap_or(&json!({}))}});
    let fits = selector.is_some_and(|selector| LabelSelector::from_object(selector).matches(&labelled));
    if !fits {
        let detail = "`selector` does not match template `labels`";
        let value = labels.unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template.metadata.labels", value, detail));
    }
    true
}

/// A strategy as the server holds it, by the names of its fields in Go.
fn shown_strategy(strategy: &Value, counts: &[(&str, &str)]) -> String {
    let rolling = strategy.get("rollingUpdate").map_or_else(
        || "null".to_owned(),
        |rolling| {
            let of = |(go, key): &(&str, &str)| format!("{go:?}:{}", rolling.get(*key).unwrap_or(&json!(0)));
            format!("{{{}}}", counts.iter().map(of).collect::<Vec<_>>().join(","))
        },
    );
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", json!(text_at(strategy, "type")))
}

const COUNTS: [(&str, &str); 2] = [("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")];

fn validate_strategy(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.strategy";
    let strategy = at(object, path).unwrap_or(&Value::Null);
    match text_at(strategy, "type") {
        "Recreate" => {
            if strategy.get("rollingUpdate").is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), why));
            }
        }
        "RollingUpdate" => {
            let zero = validate_counts(strategy, path, &["maxUnavailable"], errors);
            if zero == [true, true] {
                let field = format!("{path}.rollingUpdate.maxUnavailable");
                let value = at(object, &field).cloned().unwrap_or_default();
                errors.push(FieldError::invalid(field, &value, "may not be 0 when `maxSurge` is 0"));
            }
        }
        _ => errors.push(unsupported(strategy, path, &["Recreate", "RollingUpdate"])),
    }
}

fn unsupported(strategy: &Value, path: &str, known: &[&str]) -> FieldError {
    let mut error = FieldError::not_supported(path, &Value::Null, known);
    error.message = error.message.replacen("null", &shown_strategy(strategy, &COUNTS), 1);
    error
}

/// The counts of a rolling update, some of which are at most all pods; which of them are zero.
fn validate_counts(strategy: &Value, path: &str, whole: &[&str], errors: &mut Vec<FieldError>) -> [bool; 2] {
    ["maxUnavailable", "maxSurge"].map(|count| {
        let Some(value) = at(strategy, &format!("rollingUpdate.{count}")) else { return true };
        let field = format!("{path}.rollingUpdate.{count}");
        validate_count(value, &field, errors);
        if whole.contains(&count) {
            validate_share(value, &field, errors);
        }
        amount(value) == 0
    })
}

/// The number in a count or a share.
fn amount(value: &Value) -> i64 {
    let text = value.as_str().map(|text| text.strip_suffix('%').unwrap_or(text));
    text.map_or_else(|| value.as_i64(), |text| text.parse().ok()).unwrap_or(0)
}

/// A share is at most all.
pub(super) fn validate_share(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let is_share = value.as_str().is_some_and(|text| text.ends_with('%'));
    if is_share && amount(value) > 100 {
        errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}

fn validate_daemon_update(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.updateStrategy";
    let strategy = at(object, path).unwrap_or(&Value::Null);
    match text_at(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let zero = validate_counts(strategy, path, &["maxUnavailable", "maxSurge"], errors);
            let rolling = format!("{path}.rollingUpdate");
            match zero {
                [false, false] => {
                    let field = format!("{rolling}.maxSurge");
                    let value = at(object, &field).cloned().unwrap_or_default();
                    errors.push(FieldError::invalid(
                        field,
                        &value,
                        "may not be set when maxUnavailable is non-zero",
                    ));
                }
                [true, true] => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(format!("{rolling}.maxUnavailable"), detail));
                }
                _ => {}
            }
        }
        _ => errors.push(unsupported(strategy, path, &["RollingUpdate", "OnDelete"])),
    }
}

fn validate_progress(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.progressDeadlineSeconds";
    not_negative(object, "", path, errors);
    let ready = number(object, "spec.minReadySeconds").unwrap_or(0);
    if let Some(seconds) = number(object, path).filter(|seconds| *seconds <= ready) {
        errors.push(FieldError::invalid(path, &json!(seconds), "must be greater than minReadySeconds"));
    }
}

/// The claims and the service of a set that was there before cannot be others.
fn validate_stateful_set(object: &Value, known: bool, errors: &mut Vec<FieldError>) {
    let policy = text_at(object, "spec.podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", &json!(policy), detail));
    }
    let path = "spec.updateStrategy";
    let strategy = at(object, path).unwrap_or(&Value::Null);
    let counts = [("Partition", "partition"), ("MaxUnavailable", "maxUnavailable")];
    match text_at(strategy, "type") {
        "RollingUpdate" => {
            not_negative(object, "", &format!("{path}.rollingUpdate.partition"), errors);
            if let Some(value) = at(strategy, "rollingUpdate.maxUnavailable") {
                validate_count(value, &format!("{path}.rollingUpdate.maxUnavailable"), errors);
            }
        }
        "OnDelete" if strategy.get("rollingUpdate").is_none() => {}
        other => {
            let whole =
                shown_strategy(strategy, &counts).replace("\"MaxUnavailable\":0", "\"MaxUnavailable\":null");
            let rolling = whole.split_once("\"RollingUpdate\":").and_then(|(_, rest)| rest.strip_suffix('}'));
            let (field, value, detail) = if other == "OnDelete" {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                (format!("{path}.rollingUpdate"), rolling.unwrap_or("null"), detail)
            } else {
                (path.to_owned(), whole.as_str(), "must be 'RollingUpdate' or 'OnDelete'")
            };
            let message = format!("Invalid value: {value}: {detail}");
            errors.push(FieldError { reason: FieldReason::Invalid, field, message });
        }
    }
    let retention = "spec.persistentVolumeClaimRetentionPolicy.";
    for when in ["whenDeleted", "whenScaled"] {
        one_of(object, "", &format!("{retention}{when}"), &["Retain", "Delete"], errors);
    }
    let claims = if known { &[][..] } else { items(object, "spec.volumeClaimTemplates") };
    for (index, claim) in claims.iter().enumerate() {
        super::volume::validate_claim_spec(claim, &format!("spec.volumeClaimTemplates[{index}]."), errors);
    }
    for number in ["spec.replicas", "spec.minReadySeconds", "spec.ordinals.start"] {
        not_negative(object, "", number, errors);
    }
    let service = text_at(object, "spec.serviceName");
    for fault in if known || service.is_empty() { Vec::new() } else { super::name::label(service) } {
        errors.push(FieldError::invalid("spec.serviceName", &json!(service), &fault));
    }
    if validate_selector("StatefulSet", object, errors) {
        validate_template("StatefulSet", object, errors);
    }
}

/// A number of pods, or a share of them.
pub(super) fn validate_count(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => {
            let digits = text.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                              '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
        _ if value.as_i64().is_some_and(|number| number < 0) => {
            errors.push(FieldError::invalid(path, value, super::NOT_NEGATIVE));
        }
        _ => {}
    }
}

pub(super) fn validate_stateful_set_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |object: &Value| {
        let spec = object.get("spec").and_then(Value::as_object).into_iter().flatten();
        let rest = spec.filter(|(key, _)| !FREE.contains(&key.as_str()));
        rest.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
    };
    if fixed(object) != fixed(live) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

#[cfg(test)]
mod tests;
