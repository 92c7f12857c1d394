//! `podautoscaler describe`

use crate::commands::resource::{document, name_of};
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::{CurrentMetric, MetricSource, ScalingMode, Schedule};
use neonvm_core_pod_autoscaler::Settings;

use super::events::{of_object, story};
use super::show::{self, Word};
use crate::args::podautoscaler::Describe;
use crate::commands::resource::NamespaceClient;
use crate::commands::vm::events::Event;
use crate::connect::block_on;
use crate::error::Result;
use crate::render::one_line;
use crate::report::{Document, Report};
use crate::settings;

pub(crate) fn run(settings: &settings::Settings, args: &Describe) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let object = client.find(&args.name).await?;
        let events = of_object(&client, &object).await?;
        let text = describe(&object, &events, args.events, Timestamp::now());
        let document = document(&[object]);
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

fn describe(object: &PodAutoscaler, events: &[Event], most: usize, now: Timestamp) -> String {
    let mut lines = basics(object);
    lines.extend(bounds(object, now));
    lines.extend(decided(object));
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    let mut text: String = shown.map(|(key, value)| format!("{key:<13} {}\n", one_line(value))).collect();
    text.push_str(&happened(object, events, most));
    text.trim_end().to_owned()
}

/// A key and a text; without a text nothing is shown.
type Line = (&'static str, String);

fn basics(object: &PodAutoscaler) -> Vec<Line> {
    let (spec, status) = (&object.spec, show::status(object));
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let word = Word::from_object(object);
    let mode = if spec.mode == Some(ScalingMode::Recommend) {
        "Recommend: the target is not scaled"
    } else {
        "Auto"
    };
    let message = show::message(object);
    let separator = if message.is_empty() { "" } else { ": " };
    let mut lines = vec![
        ("Name", format!("{} (namespace {namespace})", name_of(object))),
        ("Target", show::target(object)),
        ("Strategy", format!("{}, mode {mode}", show::strategy(spec.scaling_strategy))),
        ("Status", format!("{}{separator}{message}", word.text())),
    ];
    if word != Word::New {
        let asked = status.recommendation.map(|count| format!(", {count} recommended")).unwrap_or_default();
        lines.push(("Replicas", format!("{}{asked}", show::replicas(object))));
    }
    lines
}

fn bounds(object: &PodAutoscaler, now: Timestamp) -> Vec<Line> {
    let status = show::status(object);
    let active = status.scheduled_bounds.as_ref().map(|bounds| bounds.active_schedule.as_str());
    let by = active.filter(|name| !name.is_empty()).map(|name| format!(" by schedule {name}"));
    let mut lines = vec![("Range", format!("{}{}", show::range(object), by.unwrap_or_default()))];
    lines.extend(object.spec.schedules.iter().flatten().map(|schedule| ("Schedule", scheduled(schedule))));
    if let Ok((settings, _)) = Settings::from_object(object)
        && let Some(at) = settings.schedules.next_transition(now)
    {
        let bounds = settings.bounds(at);
        let seconds = u64::try_from(at.as_second() - now.as_second()).unwrap_or(0);
        lines.push((
            "Next bounds",
            format!("{}..{} in {}", bounds.min, bounds.max, crate::render::span(seconds)),
        ));
    }
    lines
}

/// Metrics, rules and problems.
fn decided(object: &PodAutoscaler) -> Vec<Line> {
    let (spec, status) = (&object.spec, show::status(object));
    let mut lines: Vec<Line> = if status.current_metrics.is_empty() {
        let wanted =
            |source: &MetricSource| format!("{}, target {}", source.target_metric, source.target_value);
        spec.metrics_sources.iter().map(|source| ("Metric", wanted(source))).collect()
    } else {
        let metrics = status.current_metrics.iter();
        let without = |metric: &CurrentMetric| {
            let pods = metric.pods_without_value.iter();
            pods.map(|pod| ("No value", format!("{} of pod {}: {}", metric.name, pod.pod, pod.reason)))
                .collect::<Vec<_>>()
        };
        let lines =
            metrics.map(|metric| (("Metric", measured(metric, status.actual_scale)), without(metric)));
        lines.flat_map(|(first, more)| std::iter::once(first).chain(more)).collect()
    };
    match Settings::from_object(object) {
        Ok((settings, warnings)) => {
            lines.push(("Rules", rules(&settings)));
            lines.extend(warnings.iter().map(|warning| ("Warning", warning.to_string())));
        }
        Err(faults) => lines.extend(faults.iter().map(|fault| ("Fault", fault.to_string()))),
    }
    if let Some(forecast) = &status.forecast {
        let asks = forecast.desired_replicas.map(|count| format!("; calls for {count}")).unwrap_or_default();
        lines.push(("Forecast", format!("{}{asks}", forecast.message)));
    }
    if let Some(failure) = &status.last_failure {
        let age = crate::render::age(failure.time.0);
        let text = format!("{age} ago, x{}: {}: {}", failure.count, failure.reason, failure.message);
        lines.push(("Last failure", text));
    }
    let condition = |condition: &Condition| {
        let message =
            if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        format!("{} {} ({}){message}", condition.type_, condition.status, condition.reason)
    };
    lines.extend(status.conditions.iter().map(|found| ("Condition", condition(found))));
    lines
}

fn scheduled(schedule: &Schedule) -> String {
    let zone = if schedule.timezone.is_empty() { "UTC" } else { &schedule.timezone };
    let days = schedule.days_of_week.as_ref().map_or_else(|| "every day".to_owned(), |days| days.join(","));
    let bound = |count: Option<i32>| count.map_or_else(|| "spec".to_owned(), |count| count.to_string());
    let (min, max) = (bound(schedule.min_replicas), bound(schedule.max_replicas));
    format!("{}: {days} {}-{} {zone}, {min}..{max}", schedule.name, schedule.start_time, schedule.end_time)
}

fn measured(metric: &CurrentMetric, replicas: i32) -> String {
    let (current, target) = show::reading(metric, replicas);
    let pods = metric.pods.as_ref().map(|pods| format!(" of {pods} pods")).unwrap_or_default();
    let asks = metric.desired_replicas.map(|count| format!(", calls for {count}")).unwrap_or_default();
    let why = if metric.error.is_empty() { String::new() } else { format!(": {}", metric.error) };
    let current = current.unwrap_or_else(|| "?".to_owned());
    format!("{} ({}) {current}{pods}, target {target}{asks}{why}", metric.name, metric.kind)
}

/// Windows, steps, tolerances.
fn rules(settings: &Settings) -> String {
    let (up, down) = settings.cooldowns();
    let (rates, tolerance) = (settings.rates(), settings.tolerance());
    format!(
        "every {} s; windows {} s and {} s; steps up x{} after {} s, down /{} after {} s; tolerance +{}% -{}%",
        settings.sync_period,
        settings.stable_window,
        settings.panic_window,
        rates.up,
        up.as_secs(),
        rates.down,
        down.as_secs(),
        percent(tolerance.up),
        percent(tolerance.down)
    )
}

fn percent(share: f64) -> String {
    neonvm_core_pod_autoscaler::number::render(share * 100.0)
}

/// The last changes and events.
fn happened(object: &PodAutoscaler, events: &[Event], most: usize) -> String {
    let story = story(object, events);
    let shown = story.len().min(most);
    let mut text = format!("{:<13} last {shown}\n", "Events");
    for entry in story.iter().take(most) {
        let cells: Vec<String> = entry.cells().iter().map(|cell| one_line(cell)).collect();
        let [age, change, result, reason, message] = <[String; 5]>::try_from(cells).unwrap_or_default();
        let _ = writeln!(text, "  {age:>5}  {result:<7}  {change:<6}  {reason:<20}  {message}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::podautoscaler::show::tests::{condition, object};

    #[test]
    fn one_in_words() {
        let mut found = object(&json!({ "actualScale": 3, "desiredScale": 5, "recommendation": 5,
            "scheduledBounds": { "activeSchedule": "office", "effectiveMinReplicas": 2, "effectiveMaxReplicas": 8 },
            "currentMetrics": [
                { "type": "pod", "name": "queue", "target": { "averageValue": "40" }, "pods": "2/3", "desiredReplicas": 5,
                  "podsWithoutValue": [{ "pod": "web-1", "reason": "Unreachable: status 404" }],
                  "current": { "value": "156", "averageValue": "52" }, "stable": "148" },
                { "type": "external", "name": "lag", "target": { "averageValue": "10" }, "error": "TimedOut: no answer" }],
            "conditions": [condition("ValidSpec", "True", ""), condition("ScalingActive", "True", "5 replicas wanted, 3 there")],
            "scalingHistory": [{ "timestamp": "2026-01-01T00:00:00Z", "previousScale": 3, "newScale": 5,
                "reason": "AboveTarget", "success": true }] }));
        found.spec.schedules = Some(vec![Schedule {
            name: "office".to_owned(),
            days_of_week: Some(vec!["mon".to_owned()]),
            start_time: "08:00".to_owned(),
            end_time: "18:00".to_owned(),
            min_replicas: Some(2),
            ..Schedule::default()
        }]);
        // A Monday.
        let text = describe(&found, &[], 5, "2026-01-05T17:30:00Z".parse().unwrap());
        let flat: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "Name web (namespace shop)",
            "Target deployment/web",
            "Strategy APA, mode Auto",
            "Status Scaling: 5 replicas wanted, 3 there",
            "Replicas 3->5, 5 recommended",
            "Range 2..8 by schedule office",
            "Schedule office: mon 08:00-18:00 UTC, 2..spec",
            "Next bounds 1..10 in 30m",
            "Metric queue (pod) 52 of 2/3 pods, target 40, calls for 5",
            "No value queue of pod web-1: Unreachable: status 404",
            "Metric lag (external) ?, target 10: TimedOut: no answer",
            "Rules every 10 s; windows 60 s and 60 s; steps up x2 after 0 s, down /2 after 300 s; tolerance +10% -10%",
            "Condition ValidSpec True (AsExpected)",
            "Events last 1",
        ] {
            assert!(flat.iter().any(|own| own == line), "{line}\n{text}");
        }
        assert!(flat.last().unwrap().ends_with("done 3->5 AboveTarget -"), "{text}");
    }
}
