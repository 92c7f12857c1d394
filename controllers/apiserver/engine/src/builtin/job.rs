//! Jobs. CronJobs are in [`cron`].

pub(super) mod cron;
pub(crate) mod own;
mod policy;

use serde_json::{Map, Value, json};

use super::unchanged::{unchanged, unchanged_selector, unchanged_type};
use super::{internal, meta, name, not_negative, number, one_of, part, placement, pod, set, workload};
use crate::field::FieldError;
use crate::object::{at, text_at};

/// Longest domain and path of a controller that manages a Job.
const LONGEST_MANAGER: usize = 63;

/// Defaults of a Job, which the template of one in a CronJob does not get. With neither count given, a Job runs one pod
/// once.
pub(super) fn default_job(job: &mut Map<String, Value>) {
    workload::default_labels(job);
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    set(spec, "parallelism", json!(1));
    let each = spec.contains_key("backoffLimitPerIndex");
    set(spec, "backoffLimit", json!(if each { i32::MAX } else { 6 }));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
    set(spec, "manualSelector", json!(false));
    let policy = spec.contains_key("podFailurePolicy");
    set(spec, "podReplacementPolicy", json!(if policy { "Failed" } else { "TerminatingOrFailed" }));
}

/// A new Job.
pub(super) fn validate_job(object: &Value, errors: &mut Vec<FieldError>) {
    own::validate(object, errors);
    validate_with_selector(at(object, "spec").unwrap_or(&Value::Null), errors);
    let last = number(object, "spec.completions").filter(|count| *count > 0).map(|count| count - 1);
    if let Some(last) = last.filter(|_| text_at(object, "spec.completionMode") == "Indexed") {
        let job = crate::object::name(object);
        let host = format!("{job}-{last}");
        if !name::label(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(FieldError::invalid("metadata.name", &json!(job), &detail));
        }
    }
}

/// The spec of a Job, whose selector takes the labels of its pods.
fn validate_with_selector(spec: &Value, errors: &mut Vec<FieldError>) {
    validate_job_spec(spec, "spec.", errors);
    let selector = spec.get("selector");
    let before = errors.len();
    match selector {
        Some(_) => placement::validate_selector(selector, "spec.selector", errors),
        None => errors.push(FieldError::required("spec.selector", "")),
    }
    let readable = selector.is_none() || errors.len() == before;
    if readable && !own::selects(selector, at(spec, "template.metadata.labels")) {
        let labels = at(spec, "template.metadata.labels").unwrap_or(&Value::Null);
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
    }
}

/// The spec of a Job or of the template of one. The order of the faults is that of a real server.
fn validate_job_spec(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    for count in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(spec, prefix, count, errors);
    }
    if spec.get("maxFailedIndexes").is_some() && spec.get("backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(format!("{prefix}backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
        validate_manager(manager, &format!("{prefix}managedBy"), errors);
    }
    one_of(spec, prefix, "completionMode", &["NonIndexed", "Indexed"], errors);
    match text_at(spec, "completionMode") {
        "Indexed" => validate_indexed(spec, prefix, errors),
        "" | "NonIndexed" => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = spec.get(key) {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(format!("{prefix}{key}"), value, detail));
                }
            }
        }
        _ => {}
    }
    policy::validate(spec, prefix, errors);
    meta::validate_template(spec.get("template"), &format!("{prefix}template"), errors);
    let template = at(spec, "template.spec").unwrap_or(&Value::Null);
    pod::validate_template(template, &format!("{prefix}template.spec."), errors);
    let field = format!("{prefix}template.spec.restartPolicy");
    match text_at(template, "restartPolicy") {
        "" | "Always" => errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.get("podFailurePolicy").is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(field, &json!("OnFailure"), detail));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(field, &json!(other), &["OnFailure", "Never"])),
    }
}

/// The controller that a Job is left to: `<domain>/<path>`.
fn validate_manager(manager: &str, field: &str, errors: &mut Vec<FieldError>) {
    part::check_domain_path(manager, field, errors);
    if manager.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long(field, LONGEST_MANAGER as u64));
    }
}

/// What jobs whose pods have numbers need, and the most of it.
fn validate_indexed(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    const MOST: i64 = 100_000;
    const MOST_OF_LARGE: i64 = 10_000;
    let of = |key: &str| number(spec, key);
    let (completions, parallelism, failed) = (of("completions"), of("parallelism"), of("maxFailedIndexes"));
    let field = |key: &str| format!("{prefix}{key}");
    if completions.is_none() {
        errors.push(FieldError::required(field("completions"), "when completion mode is Indexed"));
    }
    let mut most = |key: &str, value: Option<i64>, most: i64, detail: String| {
        if let Some(value) = value.filter(|value| *value > most) {
            errors.push(FieldError::invalid(field(key), &json!(value), &detail));
        }
    };
    let detail = format!("must be less than or equal to {MOST} when completion mode is Indexed");
    most("parallelism", parallelism, MOST, detail);
    if let Some(completions) = completions {
        let detail = "must be less than or equal to completions".to_owned();
        most("maxFailedIndexes", failed, completions, detail);
    }
    most("maxFailedIndexes", failed, MOST, format!("must be less than or equal to {MOST}"));
    if completions.is_none_or(|count| count <= MOST) || of("backoffLimitPerIndex").is_none() {
        return;
    }
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MOST}");
        errors.push(FieldError::required(field("maxFailedIndexes"), &detail));
    }
    for (key, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
        if let Some(value) = value.filter(|value| *value > MOST_OF_LARGE) {
            let detail = format!(
                "must be less than or equal to {MOST_OF_LARGE} when completions are above {MOST} and used with backoff \
                 limit per index"
            );
            errors.push(FieldError::invalid(field(key), &json!(value), &detail));
        }
    }
}

/// A Job that replaces `live`, besides what is wrong with any Job. The spec is looked at once more.
pub(super) fn validate_job_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    validate_with_selector(at(object, "spec").unwrap_or(&Value::Null), errors);
    if text_at(object, "spec.completionMode") == "Indexed" {
        let (new, old) = (number(object, "spec.completions"), number(live, "spec.completions"));
        if let Some(count) = new.filter(|_| new != old && new != number(object, "spec.parallelism")) {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(FieldError::invalid("spec.completions", &json!(count), detail));
        }
    } else {
        unchanged("spec.completions", object, live, errors);
    }
    unchanged_selector("spec.selector", object, live, errors);
    validate_kept_template(object, live, errors);
    unchanged("spec.completionMode", object, live, errors);
    unchanged_type("PodFailurePolicy", "spec.podFailurePolicy", object, live, errors);
    unchanged("spec.backoffLimitPerIndex", object, live, errors);
    unchanged("spec.managedBy", object, live, errors);
    unchanged_type("SuccessPolicy", "spec.successPolicy", object, live, errors);
}

/// The template stays while the Job runs. While it is suspended, resources may change; also where its pods run, if it
/// never began. The labels of its pods are then not looked at.
fn validate_kept_template(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.template";
    let (new, old) = (at(object, path).unwrap_or(&Value::Null), at(live, path).unwrap_or(&Value::Null));
    if at(live, "spec.suspend") != Some(&json!(true)) {
        if new != old {
            let shown = internal::held_template(new).shown();
            errors.push(FieldError::invalid_shown(path, &shown, super::IMMUTABLE));
        }
        return;
    }
    let began = at(live, "status.startTime").is_some();
    if kept_spec(new, began) != kept_spec(old, began) {
        let shown = internal::held_spec(new.get("spec").unwrap_or(&json!({}))).shown();
        errors.push(FieldError::invalid_shown("spec.template.spec", &shown, super::IMMUTABLE));
    }
}

/// The spec of a template without what may change while the Job is suspended.
fn kept_spec(template: &Value, began: bool) -> Value {
    let mut spec = template.get("spec").cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            crate::object::drop_key(container, "resources");
        }
    }
    let Some(map) = spec.as_object_mut().filter(|_| !began) else { return spec };
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        map.remove(key);
    }
    if let Some(affinity) = map.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
    }
    if map.get("affinity").is_some_and(placement::is_empty) {
        map.remove("affinity");
    }
    spec
}

#[cfg(test)]
mod tests;
