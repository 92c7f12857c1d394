//! Jobs and CronJobs.

use serde_json::{Map, Value, json};

use super::{meta, not_negative, number, one_of, pod, set, unchanged};
use crate::field::FieldError;
use crate::object::{at, text_at};

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

pub(super) fn validate_job(object: &Value, errors: &mut Vec<FieldError>) {
    validate_job_spec(at(object, "spec").unwrap_or(&Value::Null), "spec.", errors);
}

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
    one_of(spec, prefix, "completionMode", &["NonIndexed", "Indexed"], errors);
    validate_indexes(spec, prefix, errors);
    let labels = at(spec, "template.metadata.labels");
    meta::validate_labels(labels, &format!("{prefix}template.labels"), errors);
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

/// What jobs whose pods have numbers need, and others may not have.
fn validate_indexes(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let of = |key: &str| number(spec, key);
    let mut required = |key: &str, detail: &str| {
        errors.push(FieldError::required(format!("{prefix}{key}"), detail));
    };
    let (failed, each) = (of("maxFailedIndexes"), of("backoffLimitPerIndex"));
    if failed.is_some() && each.is_none() {
        required("backoffLimitPerIndex", "when maxFailedIndexes is specified");
    }
    let mode = text_at(spec, "completionMode");
    if mode == "Indexed" && of("completions").is_none() {
        required("completions", "when completion mode is Indexed");
    }
    let mut refuse = |key: &str, value: i64, detail: &str| {
        errors.push(FieldError::invalid(format!("{prefix}{key}"), &json!(value), detail));
    };
    if mode == "Indexed" {
        if let Some(count) = of("parallelism").filter(|count| *count > 100_000) {
            let detail = "must be less than or equal to 100000 when completion mode is Indexed";
            refuse("parallelism", count, detail);
        }
        if let (Some(failed), Some(all)) = (failed, of("completions"))
            && failed > all
        {
            refuse("maxFailedIndexes", failed, "must be less than or equal to completions");
        }
    } else {
        for (key, value) in [("backoffLimitPerIndex", each), ("maxFailedIndexes", failed)] {
            if let Some(value) = value {
                refuse(key, value, "requires indexed completion mode");
            }
        }
    }
}

pub(super) fn validate_job_update(object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    if text_at(object, "spec.completionMode") == "Indexed" {
        let (new, old) = (number(object, "spec.completions"), number(live, "spec.completions"));
        if let Some(count) = new.filter(|_| new != old && new != number(object, "spec.parallelism")) {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(FieldError::invalid("spec.completions", &json!(count), detail));
        }
    } else {
        unchanged("spec.completions", object, live, errors);
    }
    for field in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        unchanged(&format!("spec.{field}"), object, live, errors);
    }
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
