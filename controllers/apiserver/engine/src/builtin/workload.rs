//! Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs.

use serde_json::{Map, Value, json};

use super::{meta, not_negative, one_of, pod, set, unchanged};
use crate::field::FieldError;
use crate::object::{at, text_at};
use crate::selector::LabelSelector;

/// Claims of a StatefulSet are shown as whole objects.
pub(super) fn default_claim_templates(spec: &mut Map<String, Value>) {
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(claim) = claim.as_object_mut() {
            set(claim, "apiVersion", json!("v1"));
            set(claim, "kind", json!("PersistentVolumeClaim"));
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

/// With neither count given, a Job runs one pod once.
pub(super) fn default_job(spec: &mut Map<String, Value>) {
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    set(spec, "parallelism", json!(1));
    let each = spec.contains_key("backoffLimitPerIndex");
    set(spec, "backoffLimit", json!(if each { i32::MAX } else { 6 }));
    let policy = spec.contains_key("podFailurePolicy");
    set(spec, "podReplacementPolicy", json!(if policy { "Failed" } else { "TerminatingOrFailed" }));
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

/// One of the kinds that keep pods running.
pub(super) fn validate(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    not_negative(object, "", "spec.replicas", errors);
    not_negative(object, "", "spec.minReadySeconds", errors);
    not_negative(object, "", "spec.revisionHistoryLimit", errors);
    let labels = at(object, "spec.template.metadata.labels");
    meta::validate_labels(labels, "spec.template.metadata.labels", errors);
    validate_selector(object, labels, errors);
    let spec = at(object, "spec.template.spec").unwrap_or(&Value::Null);
    pod::validate_template(spec, "spec.template.spec.", errors);
    let policy = text_at(spec, "restartPolicy");
    if policy != "Always" {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, &json!(policy), &["Always"]));
    }
    if spec.get("activeDeadlineSeconds").is_some() {
        let path = "spec.template.spec.activeDeadlineSeconds";
        errors
            .push(FieldError::forbidden(path, &format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
    let field = if kind == "Deployment" { "strategy" } else { "updateStrategy" };
    let path = format!("spec.{field}");
    match kind {
        "Deployment" => one_of(object, "", "spec.strategy.type", &["Recreate", "RollingUpdate"], errors),
        "ReplicaSet" => {}
        _ => one_of(object, "", "spec.updateStrategy.type", &["OnDelete", "RollingUpdate"], errors),
    }
    if text_at(object, &format!("{path}.type")) == "Recreate"
        && at(object, &format!("{path}.rollingUpdate")).is_some()
    {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), why));
    }
    for count in ["maxSurge", "maxUnavailable"] {
        let path = format!("{path}.rollingUpdate.{count}");
        if let Some(value) = at(object, &path) {
            validate_count(value, &path, errors);
        }
    }
    validate_budgets(object, &path, kind, errors);
}

/// A rollout that may neither add nor remove a pod would never end.
fn validate_budgets(object: &Value, path: &str, kind: &str, errors: &mut Vec<FieldError>) {
    let zero = |count: &str| {
        let value = at(object, &format!("{path}.rollingUpdate.{count}"));
        value.is_some_and(|value| value == &json!(0) || value == &json!("0%"))
    };
    if matches!(kind, "Deployment" | "DaemonSet") && zero("maxSurge") && zero("maxUnavailable") {
        let field = format!("{path}.rollingUpdate.maxUnavailable");
        let value = at(object, &field).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(field, &value, "may not be 0 when `maxSurge` is 0"));
    }
}

fn validate_selector(object: &Value, labels: Option<&Value>, errors: &mut Vec<FieldError>) {
    let selector = at(object, "spec.selector").filter(|selector| !selector.is_null());
    let empty = json!({});
    match selector {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) if selector.as_object().is_some_and(Map::is_empty) => {
            let detail = "empty selector is invalid for deployment";
            errors.push(FieldError::invalid("spec.selector", selector, detail));
        }
        Some(_) => {}
    }
    let labelled = json!({"metadata": {"labels": labels.unwrap_or(&empty)}});
    let fits = selector.is_some_and(|selector| LabelSelector::from_object(selector).matches(&labelled));
    if !fits {
        let detail = "`selector` does not match template `labels`";
        let value = labels.unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template.metadata.labels", value, detail));
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

/// Status counts are never negative.
pub(super) fn validate_status(object: &Value, errors: &mut Vec<FieldError>) {
    for count in ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"] {
        not_negative(object, "", &format!("status.{count}"), errors);
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

pub(super) fn validate_job(object: &Value, errors: &mut Vec<FieldError>) {
    validate_job_spec(at(object, "spec").unwrap_or(&Value::Null), "spec.", errors);
}

fn validate_job_spec(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    for count in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        not_negative(spec, prefix, count, errors);
    }
    one_of(spec, prefix, "completionMode", &["Indexed", "NonIndexed"], errors);
    let template = at(spec, "template.spec").unwrap_or(&Value::Null);
    pod::validate_template(template, &format!("{prefix}template.spec."), errors);
    let policy = text_at(template, "restartPolicy");
    if !matches!(policy, "Never" | "OnFailure") {
        let path = format!("{prefix}template.spec.restartPolicy");
        errors.push(match policy {
            "" => FieldError::required(path, "valid values: \"OnFailure\", \"Never\""),
            _ => FieldError::not_supported(path, &json!(policy), &["OnFailure", "Never"]),
        });
    }
}

pub(super) fn validate_job_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    unchanged("spec.selector", object, live, errors);
    unchanged("spec.completionMode", object, live, errors);
    if at(live, "spec.suspend") != Some(&json!(true)) {
        unchanged("spec.template", object, live, errors);
    }
}

pub(super) fn validate_cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    let schedule = text_at(object, "spec.schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if let Err(why) = check_schedule(schedule) {
        errors.push(FieldError::invalid("spec.schedule", &json!(schedule), &why));
    }
    one_of(object, "", "spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"], errors);
    for count in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(object, "", &format!("spec.{count}"), errors);
    }
    let job = at(object, "spec.jobTemplate.spec").unwrap_or(&Value::Null);
    validate_job_spec(job, "spec.jobTemplate.spec.", errors);
}

/// Five fields of lists of `*`, numbers, ranges and steps, or one of the short names.
fn check_schedule(schedule: &str) -> Result<(), String> {
    const NAMES: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    const RANGES: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    const WORDS: [&str; 19] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon",
        "tue", "wed", "thu", "fri", "sat",
    ];
    if NAMES.contains(&schedule) || schedule.starts_with("@every ") {
        return Ok(());
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != RANGES.len() {
        let quoted: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), quoted.join(" ")));
    }
    for (field, (low, high)) in fields.into_iter().zip(RANGES) {
        for part in field.split(',') {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let ends = range.split_once('-').unwrap_or((range, range));
            for end in [ends.0, ends.1] {
                let word = WORDS.contains(&end.to_lowercase().as_str()) || end == "*" || end == "?";
                let fits = end.parse::<u32>().is_ok_and(|number| (low..=high).contains(&number));
                if !word && !fits {
                    return Err(format!(
                        "failed to parse int from {end}: strconv.Atoi: parsing {end:?}: invalid syntax"
                    ));
                }
            }
            if step.parse::<u32>().is_ok_and(|step| step > 0) {
                continue;
            }
            return Err(format!("step of range should be a positive number: {part}"));
        }
    }
    Ok(())
}
