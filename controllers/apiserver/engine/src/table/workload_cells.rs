//! Cells of workloads: replicas, containers, jobs, autoscalers, budgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{list, number, or_none, pairs, plain};
use super::duration;
use crate::object::{at, is_deleting, text_at};

pub(super) fn node_selector(set: &Value, _: Timestamp) -> Value {
    or_none(&pairs(at(set, "spec.template.spec.nodeSelector")))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    or_none(&crate::selector::text_of(at(object, "spec.selector")))
}

/// As [`selector`], but nothing is shown as nothing.
pub(super) fn deployment_selector(object: &Value, _: Timestamp) -> Value {
    json!(crate::selector::text_of(at(object, "spec.selector")))
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

pub(super) fn deployment_ready(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")))
}

pub(super) fn job_status(job: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| {
        list(job, "status.conditions")
            .iter()
            .any(|c| text_at(c, "type") == kind && text_at(c, "status") == "True")
    };
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| has(kind));
    let ended = first(&["Complete", "Failed"]).or_else(|| is_deleting(job).then_some("Terminating"));
    let held = || first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]);
    json!(ended.or_else(held).unwrap_or("Running"))
}

pub(super) fn job_completions(job: &Value, _: Timestamp) -> Value {
    let done = number(job, "status.succeeded");
    let side_by_side = number(job, "spec.parallelism");
    json!(match at(job, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{done}/{wanted}"),
        None if side_by_side > 1 => format!("{done}/1 of {side_by_side}"),
        None => format!("{done}/1"),
    })
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let Ok(start) = text_at(job, "status.startTime").parse::<Timestamp>() else { return json!("") };
    let end = text_at(job, "status.completionTime").parse().unwrap_or(now);
    json!(duration(end.as_second().saturating_sub(start.as_second())))
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
    let metrics = list(object, "spec.metrics").iter().enumerate();
    let mut shown: Vec<String> =
        metrics.map(|(index, metric)| hpa_target(metric, current.get(index))).collect();
    let more = shown.len().saturating_sub(2);
    shown.truncate(2);
    let text = shown.join(", ");
    or_none(&if more > 0 { format!("{text} + {more} more...") } else { text })
}

fn hpa_target(metric: &Value, current: Option<&Value>) -> String {
    let field = match text_at(metric, "type") {
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        "Resource" => "resource",
        _ => return "<unknown type>".to_owned(),
    };
    let named = matches!(field, "resource" | "containerResource");
    let target = |key: &str| at(metric, &format!("{field}.target.{key}"));
    let now = |key: &str| {
        let now = current.and_then(|current| at(current, &format!("{field}.current.{key}")));
        now.map_or_else(|| "<unknown>".to_owned(), plain)
    };
    let term = match target("averageValue") {
        Some(average) if named || field == "pods" => format!("{}/{}", now("averageValue"), plain(average)),
        Some(average) => format!("{}/{} (avg)", now("averageValue"), plain(average)),
        None if named => {
            let percent = |text: String| if text.starts_with('<') { text } else { format!("{text}%") };
            let wanted = target("averageUtilization").map_or_else(|| "<auto>".to_owned(), plain);
            format!("{}/{}", percent(now("averageUtilization")), percent(wanted))
        }
        None => format!("{}/{}", now("value"), target("value").map_or_else(String::new, plain)),
    };
    if named { format!("{}: {term}", text_at(metric, &format!("{field}.name"))) } else { term }
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
