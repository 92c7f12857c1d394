//! Cells of workloads: replicas, containers, jobs, autoscalers, budgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{list, number, or_none, pairs, plain, text_or};
use super::{age, duration};
use crate::object::{at, meta_text, text_at};

pub(super) fn node_selector(set: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(set, "spec.template.spec.nodeSelector")))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.selector")))
}

pub(super) fn cron_selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.jobTemplate.spec.selector")))
}

fn of_containers(object: &Value, path: &str, key: &str) -> Value {
    json!(list(object, path).iter().map(|c| text_at(c, key)).collect::<Vec<_>>().join(","))
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "name")
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.template.spec.containers", "image")
}

pub(super) fn cron_containers(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.jobTemplate.spec.template.spec.containers", "name")
}

pub(super) fn cron_images(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "spec.jobTemplate.spec.template.spec.containers", "image")
}

pub(super) fn template_containers(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "template.spec.containers", "name")
}

pub(super) fn template_images(object: &Value, _: Timestamp) -> Value {
    of_containers(object, "template.spec.containers", "image")
}

pub(super) fn template_labels(object: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(object, "template.metadata.labels")))
}

pub(super) fn deployment_ready(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")))
}

pub(super) fn controller(object: &Value, _: Timestamp) -> Value {
    let owner =
        list(object, "metadata.ownerReferences").iter().find(|o| o.get("controller") == Some(&json!(true)));
    or_none(&owner.map_or_else(String::new, |o| {
        let group = text_at(o, "apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = text_at(o, "kind").to_lowercase();
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", text_at(o, "name"))
    }))
}

pub(super) fn job_status(job: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| {
        list(job, "status.conditions")
            .iter()
            .any(|c| text_at(c, "type") == kind && text_at(c, "status") == "True")
    };
    let word = ["Complete", "Failed", "Suspended", "FailureTarget"].into_iter().find(|kind| has(kind));
    json!(match word {
        Some(word) => word,
        None if !meta_text(job, "deletionTimestamp").is_empty() => "Terminating",
        None => "Running",
    })
}

pub(super) fn job_completions(job: &Value, _: Timestamp) -> Value {
    let done = number(job, "status.succeeded");
    json!(match at(job, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => format!("{done}/1 of {}", number(job, "spec.parallelism").max(1)),
    })
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let Ok(start) = text_at(job, "status.startTime").parse::<Timestamp>() else { return json!("") };
    let end = text_at(job, "status.completionTime").parse().unwrap_or(now);
    json!(duration(end.as_second().saturating_sub(start.as_second())))
}

pub(super) fn timezone(object: &Value, _: Timestamp) -> Value {
    text_or(object, "spec.timeZone", "<none>")
}

pub(super) fn suspend(object: &Value, _: Timestamp) -> Value {
    json!(if at(object, "spec.suspend") == Some(&json!(true)) { "True" } else { "False" })
}

pub(super) fn last_schedule(object: &Value, now: Timestamp) -> Value {
    let last = text_at(object, "status.lastScheduleTime");
    json!(if last.is_empty() { "<none>".to_owned() } else { age(last, now) })
}

pub(super) fn hpa_reference(object: &Value, _: Timestamp) -> Value {
    let of = |key: &str| text_at(object, &format!("spec.scaleTargetRef.{key}"));
    json!(format!("{}/{}", of("kind"), of("name")))
}

pub(super) fn hpa_min(object: &Value, _: Timestamp) -> Value {
    json!(at(object, "spec.minReplicas").map_or_else(|| "<unset>".to_owned(), plain))
}

/// `cpu: <now>/<target>` per metric.
pub(super) fn hpa_targets(object: &Value, _: Timestamp) -> Value {
    let current = list(object, "status.currentMetrics");
    let mut shown: Vec<String> = Vec::new();
    for (at_index, metric) in list(object, "spec.metrics").iter().enumerate() {
        let field = match text_at(metric, "type") {
            "ContainerResource" => "containerResource",
            "Pods" => "pods",
            "Object" => "object",
            "External" => "external",
            _ => "resource",
        };
        let now = current.get(at_index).and_then(|c| at(c, &format!("{field}.current")));
        let target = at(metric, &format!("{field}.target"));
        let percent = target.and_then(|t| t.get("averageUtilization"));
        let term = match percent {
            Some(wanted) => {
                let now = now.and_then(|n| n.get("averageUtilization"));
                format!(
                    "{}/{}%",
                    now.map_or_else(|| "<unknown>".to_owned(), |n| format!("{n}%")),
                    plain(wanted)
                )
            }
            None => {
                let average = target.and_then(|t| t.get("averageValue"));
                let key = if average.is_some() { "averageValue" } else { "value" };
                let value = |of: Option<&Value>, missing: &str| {
                    of.and_then(|v| v.get(key)).map_or_else(|| missing.to_owned(), plain)
                };
                let suffix =
                    if average.is_some() && matches!(field, "object" | "external") { " (avg)" } else { "" };
                format!("{}/{}{suffix}", value(now, "<unknown>"), value(target, ""))
            }
        };
        let name = text_at(metric, &format!("{field}.name"));
        shown.push(if field == "resource" { format!("{name}: {term}") } else { term });
    }
    let more = shown.len().saturating_sub(2);
    shown.truncate(2);
    let text = shown.join(", ");
    or_none(&if more > 0 { format!("{text} + {more} more...") } else { text })
}

fn int_or_string(object: &Value, path: &str) -> Value {
    json!(at(object, path).map_or_else(|| "N/A".to_owned(), plain))
}

pub(super) fn min_available(object: &Value, _: Timestamp) -> Value {
    int_or_string(object, "spec.minAvailable")
}

pub(super) fn max_unavailable(object: &Value, _: Timestamp) -> Value {
    int_or_string(object, "spec.maxUnavailable")
}
