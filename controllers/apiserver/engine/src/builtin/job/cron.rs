//! CronJobs.

use serde_json::{Value, json};

use super::validate_job_spec;
use crate::builtin::{not_negative, one_of, part};
use crate::field::FieldError;
use crate::object::{at, text_at};

pub(in crate::builtin) fn validate(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_schedule(object, live, errors);
    not_negative(object, "", "spec.startingDeadlineSeconds", errors);
    let zone = |object| at(object, "spec.timeZone").and_then(Value::as_str);
    if let Some(own) = zone(object).filter(|_| live.is_none_or(|live| zone(live) != zone(object))) {
        validate_zone(own, errors);
    }
    one_of(object, "", "spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"], errors);
    let job = at(object, "spec.jobTemplate.spec").unwrap_or(&Value::Null);
    let prefix = "spec.jobTemplate.spec.";
    validate_job_spec(job, prefix, errors);
    if let Some(selector) = job.get("selector") {
        let shown = part::shown_selector(selector);
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid_shown(format!("{prefix}selector"), &shown, detail));
    }
    if job.get("manualSelector") == Some(&json!(true)) {
        let field = format!("{prefix}manualSelector");
        errors.push(FieldError::not_supported(field, &json!(true), &["nil", "false"]));
    }
    not_negative(object, "", "spec.successfulJobsHistoryLimit", errors);
    not_negative(object, "", "spec.failedJobsHistoryLimit", errors);
}

fn validate_schedule(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let field = "spec.schedule";
    let schedule = text_at(object, field);
    if schedule.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, &json!(schedule), detail));
    if let Err(why) = check_schedule(without_zone(schedule)) {
        refuse(&why);
    }
    let had_zone = live.is_some_and(|live| text_at(live, field).contains("TZ"));
    match (schedule.contains("TZ"), had_zone) {
        (true, false) => refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        (true, true) if at(object, "spec.timeZone").is_some() => {
            refuse("cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
        _ => {}
    }
}

/// A schedule may begin with a time zone.
fn without_zone(schedule: &str) -> &str {
    let zoned = ["TZ=", "CRON_TZ="].iter().any(|start| schedule.starts_with(start));
    schedule.split_once(' ').filter(|_| zoned).map_or(schedule, |(_, rest)| rest.trim_start())
}

/// The form of a time zone's name. Whether there is one of that name is for the controller to find.
fn validate_zone(zone: &str, errors: &mut Vec<FieldError>) {
    let field = "spec.timeZone";
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    let fine = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.len() <= 14
            && !part.starts_with('-')
            && part.chars().all(plain)
    };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, &json!(zone), detail));
    if zone.is_empty() {
        refuse("timeZone must be nil or non-empty string");
    } else if !zone.split('/').all(fine) {
        refuse(&format!("unknown time zone {zone}"));
    } else if zone.eq_ignore_ascii_case("Local") {
        refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
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
