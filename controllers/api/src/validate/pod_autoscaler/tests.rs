#![allow(clippy::needless_pass_by_value, reason = "cases read better without borrows")]

use crate::merge_patch::merge;
use serde_json::{Value, json};

use super::*;

/// A sound autoscaler with a patch (RFC 7386) applied.
fn errors(patch: Value) -> Vec<String> {
    let mut object = json!({
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": "pa", "namespace": "ns"},
        "spec": {
            "scalingStrategy": "KPA", "minReplicas": 1, "maxReplicas": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metricsSources": [{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "50"}],
        },
    });
    merge(&mut object, &patch);
    let object: PodAutoscaler = serde_json::from_value(object).unwrap();
    pod_autoscaler(&object).iter().map(ToString::to_string).collect()
}

fn check(patch: Value, expected: &[&str]) {
    assert_eq!(errors(patch.clone()), expected, "{patch}");
}

fn spec(patch: Value, expected: &[&str]) {
    check(json!({"spec": patch}), expected);
}

#[test]
fn target_and_bounds() {
    spec(json!({}), &[]);
    spec(
        json!({"scaleTargetRef": {"kind": "", "name": null}}),
        &["spec.scaleTargetRef.kind: must be set", "spec.scaleTargetRef.name: must be set"],
    );
    spec(json!({"scaleTargetRef": {"namespace": "ns"}}), &[]);
    spec(
        json!({"scaleTargetRef": {"namespace": "other"}}),
        &["spec.scaleTargetRef.namespace: must be the namespace of the autoscaler itself; leave it out"],
    );
    spec(json!({"minReplicas": 0}), &[]);
    spec(json!({"minReplicas": -1}), &["spec.minReplicas: -1 must not be negative"]);
    spec(json!({"maxReplicas": 0}), &["spec.maxReplicas: 0 must be above 0"]);
    spec(
        json!({"minReplicas": 11}),
        &["spec.minReplicas: 11 is above maxReplicas 10; lower it or raise maxReplicas"],
    );
}

#[test]
fn strategy_and_windows() {
    let role = "spec.subTargetSelector.roleName: cannot be used with strategy HPA; choose KPA or APA, or leave it out";
    spec(json!({"scalingStrategy": "HPA", "subTargetSelector": {"roleName": "r"}}), &[role]);
    spec(json!({"scalingStrategy": "HPA", "subTargetSelector": {}}), &[]);
    spec(json!({"scalingStrategy": "APA", "subTargetSelector": {"roleName": "r"}}), &[]);
    spec(
        json!({"observeWindowSeconds": 30, "panicWindowSeconds": 31}),
        &["spec.panicWindowSeconds: 31 must not be above observeWindowSeconds 30; set both, or leave it out"],
    );
    // Left out, it follows.
    for observe in [1, 5, 30, 59, 60, 61] {
        spec(json!({"observeWindowSeconds": observe}), &[]);
        spec(json!({"observeWindowSeconds": observe, "scalingStrategy": "APA"}), &[]);
    }
    spec(json!({"observeWindowSeconds": 30, "panicWindowSeconds": 30}), &[]);
    spec(
        json!({"observeWindowSeconds": 3601}),
        &["spec.observeWindowSeconds: 3601 must be between 1 and 3600"],
    );
    spec(json!({"panicWindowSeconds": 0}), &["spec.panicWindowSeconds: 0 must be between 1 and 3600"]);
}

fn metric_errors(source: Value, expected: &[&str]) {
    spec(json!({"metricsSources": [source]}), expected);
}

#[test]
fn metrics() {
    spec(json!({"metricsSources": []}), &["spec.metricsSources: must have at least one entry"]);
    for value in ["0", "-1", "", "NaN", "inf", "x", "1e999"] {
        let source = json!({"metricSourceType": "custom", "targetMetric": "m", "targetValue": value});
        let text =
            format!("spec.metricsSources[0].targetValue: {value:?} must be a number above 0, such as \"50\"");
        metric_errors(source, &[&text]);
    }
    metric_errors(
        json!({"metricSourceType": "custom", "targetMetric": "", "targetValue": "1"}),
        &["spec.metricsSources[0].targetMetric: must be set"],
    );
    metric_errors(
        json!({"metricSourceType": "pod", "targetMetric": "m", "targetValue": "1"}),
        &[
            "spec.metricsSources[0].protocolType: must be set for a metric of type pod",
            "spec.metricsSources[0].port: must be set for a metric of type pod",
            "spec.metricsSources[0].path: must be set for a metric of type pod",
        ],
    );
    metric_errors(json!({"metricSourceType": "external", "targetMetric": "m", "targetValue": "1"}), &[]);
    metric_errors(
        json!({"metricSourceType": "domain", "endpoint": "e", "targetMetric": "m", "targetValue": "1"}),
        &[
            "spec.metricsSources[0].protocolType: must be set for a metric with an endpoint",
            "spec.metricsSources[0].path: must be set for a metric with an endpoint",
        ],
    );
    metric_errors(
        json!({"metricSourceType": "resource", "path": "p", "targetMetric": "gpu", "targetValue": "1"}),
        &[
            "spec.metricsSources[0].path: must be left out for a metric of type resource",
            "spec.metricsSources[0].targetMetric: \"gpu\" must be cpu or memory for a metric of type resource",
        ],
    );
    metric_errors(
        json!({"metricSourceType": "custom", "port": "70000", "targetMetric": "m", "targetValue": "1"}),
        &["spec.metricsSources[0].port: \"70000\" must be between 1 and 65535"],
    );
}

fn schedule_errors(schedules: Value, expected: &[&str]) {
    spec(json!({"schedules": schedules}), expected);
}

fn window(name: &str, start: &str, end: &str) -> Value {
    json!({"name": name, "startTime": start, "endTime": end, "minReplicas": 2})
}

fn with(mut window: Value, key: &str, value: Value) -> Value {
    window[key] = value;
    window
}

#[test]
fn schedules_are_sound() {
    let good = window("a", "08:00", "18:00");
    schedule_errors(json!([good, window("b", "18:00", "23:59")]), &[]);
    schedule_errors(json!([]), &["spec.schedules: must not be empty; leave it out instead"]);
    schedule_errors(
        json!([with(good.clone(), "name", json!("A"))]),
        &["spec.schedules[0].name: \"A\" must be lower-case letters, digits and inner hyphens"],
    );
    schedule_errors(
        json!([good, window("a", "19:00", "20:00")]),
        &["spec.schedules[1].name: a is there twice; rename one"],
    );
    for time in ["24:00", "8:00", "08:60", "0800", "08:0", ""] {
        let text = format!("spec.schedules[0].startTime: {time:?} must be HH:MM, from 00:00 to 23:59");
        schedule_errors(json!([window("a", time, "18:00")]), &[&text]);
    }
    schedule_errors(json!([window("a", "18:00", "08:00")]), &[]);
    let same = "spec.schedules[0].endTime: must differ from startTime; a window that ends before it starts ends on the next day";
    schedule_errors(json!([window("a", "18:00", "18:00")]), &[same]);
    schedule_errors(
        json!([with(good.clone(), "daysOfWeek", json!(["MON", "sunday"]))]),
        &["spec.schedules[0].daysOfWeek: \"sunday\" must be one of Mon, Tue, Wed, Thu, Fri, Sat, Sun"],
    );
    schedule_errors(
        json!([with(good.clone(), "daysOfWeek", json!([]))]),
        &["spec.schedules[0].daysOfWeek: must not be empty; leave it out for every day"],
    );
    schedule_errors(
        json!([with(good.clone(), "timezone", json!("Local"))]),
        &["spec.schedules[0].timezone: must be an IANA time zone such as Europe/Berlin"],
    );
    schedule_errors(
        json!([good, with(window("b", "19:00", "20:00"), "timezone", json!("Etc/UTC"))]),
        &["spec.schedules[1].timezone: Etc/UTC differs from UTC of the first window; use one time zone"],
    );
    schedule_errors(json!([good, with(window("b", "19:00", "20:00"), "timezone", json!("UTC"))]), &[]);
}

#[test]
fn schedules_have_bounds_and_do_not_overlap() {
    let good = window("a", "08:00", "18:00");
    schedule_errors(
        json!([{"name": "a", "startTime": "08:00", "endTime": "18:00"}]),
        &["spec.schedules[0]: must set minReplicas, maxReplicas or both"],
    );
    schedule_errors(
        json!([with(good.clone(), "minReplicas", json!(11))]),
        &[concat!(
            "spec.schedules[0]: minReplicas 11 is above maxReplicas 10; ",
            "what a window leaves out comes from the spec"
        )],
    );
    // Over midnight: of Sunday's window a part is on Monday.
    let night = |name: &str, day: &str| with(window(name, "22:00", "06:00"), "daysOfWeek", json!([day]));
    let morning = |day: &str| with(window("m", "05:59", "07:00"), "daysOfWeek", json!([day]));
    schedule_errors(json!([night("a", "sun"), night("b", "mon"), morning("sun")]), &[]);
    for windows in [json!([night("a", "sun"), morning("mon")]), json!([morning("mon"), night("a", "sun")])] {
        let other = if windows[0]["name"] == "a" { "a" } else { "m" };
        let text = format!("spec.schedules[1]: overlaps {other}; windows may touch but not overlap");
        schedule_errors(windows, &[&text]);
    }
    schedule_errors(json!([window("a", "22:00", "06:00"), window("b", "06:00", "22:00")]), &[]);
    schedule_errors(
        json!([good, window("b", "17:59", "19:00")]),
        &["spec.schedules[1]: overlaps a; windows may touch but not overlap"],
    );
    let monday = with(good.clone(), "daysOfWeek", json!(["mon"]));
    let tuesday = with(window("b", "08:00", "18:00"), "daysOfWeek", json!(["Tue"]));
    schedule_errors(json!([monday, tuesday]), &[]);
}

#[test]
fn annotations_are_refused_when_they_are_wrong() {
    let annotated = |key: &str, value: &str| {
        errors(json!({"metadata": {"annotations": {format!("autoscaling.aibrix.ai/{key}"): value}}}))
    };
    for (key, value) in [
        ("max-scale-up-rate", "3.0"),
        ("panic-threshold", "2e0"),
        ("scale-up-cooldown-window", "0"),
        ("scale-down-cooldown-window", "1m30s"),
        ("scale-to-zero", "True"),
        ("storm-service-mode", "anything"),
    ] {
        assert!(annotated(key, value).is_empty(), "{key} {value}");
    }
    for (key, value, rest) in [
        ("max-scale-up-rate", "0", "must be a number above 1, such as 2"),
        ("max-scale-up-rate", "1", "must be a number above 1, such as 2"),
        ("max-scale-down-rate", "0.5", "must be a number above 1, such as 2"),
        ("scale-up-tolerance", "NaN", "must be a number of at least 0, such as 0.1"),
        ("scale-down-tolerance", "-0.1", "must be a number from 0 to below 1, such as 0.1"),
        ("panic-threshold", "inf", "must be a number above 1, such as 2"),
        ("scale-up-cooldown-window", "300", "must be a duration from 0s to 1h, such as 300s or 5m"),
        ("scale-down-cooldown-window", "-1s", "must be a duration from 0s to 1h, such as 300s or 5m"),
        ("scale-to-zero", "yes", "must be true or false"),
    ] {
        let text = format!("metadata.annotations[autoscaling.aibrix.ai/{key}]: {value:?} {rest}");
        assert_eq!(annotated(key, value), [text]);
    }
}

/// Fields that upstream does not have; each has an effect or is refused.
#[test]
fn what_is_new_has_an_effect_or_is_refused() {
    let source = |patch: Value| {
        let mut source = json!({"metricSourceType": "pod", "protocolType": "http", "port": "80", "path": "m",
            "targetMetric": "m", "targetValue": "1"});
        merge(&mut source, &patch);
        source
    };
    metric_errors(source(json!({"quantile": "0.99", "aggregation": "Maximum"})), &[]);
    metric_errors(
        source(json!({"function": "Rate", "seriesAggregation": "Maximum", "targetType": "Value"})),
        &[],
    );
    metric_errors(
        source(json!({"quantile": "1.5", "function": "Mean", "seriesAggregation": "Sum"})),
        &[
            "spec.metricsSources[0].quantile: \"1.5\" must be a number from 0 to 1, such as \"0.99\"",
            "spec.metricsSources[0].function: must be left out with a quantile, which is a function itself",
            concat!(
                "spec.metricsSources[0].seriesAggregation: must be left out with a quantile: ",
                "histograms are added before the quantile is taken"
            ),
        ],
    );
    let external = json!({"metricSourceType": "external", "targetMetric": "m", "targetValue": "1"});
    metric_errors(with(external.clone(), "selector", json!({"matchLabels": {"queue": "a"}})), &[]);
    metric_errors(
        with(external.clone(), "targetType", json!("Utilization")),
        &[concat!(
            "spec.metricsSources[0].targetType: Utilization is for a metric of type resource; ",
            "use AverageValue or Value"
        )],
    );
    assert_eq!(
        errors(json!({"spec": {"metricsSources": [with(external, "aggregation", json!("P90"))]}})).len(),
        1
    );
    spec(json!({"mode": "Recommend", "paused": true, "forecast": {"horizonSeconds": 60}}), &[]);
    spec(
        json!({"syncPeriodSeconds": 61}),
        &["spec.syncPeriodSeconds: 61 must be between 1 and 60, the smallest window in use"],
    );
    spec(
        json!({"forecast": {"horizonSeconds": 0}}),
        &["spec.forecast.horizonSeconds: 0 must be between 1 and 900"],
    );
    let hpa = json!({"scalingStrategy": "HPA", "forecast": {"horizonSeconds": 60}, "syncPeriodSeconds": 5,
        "metricsSources": [source(json!({"quantile": "0.5"}))]});
    assert_eq!(errors(json!({"spec": hpa})).len(), 3);
}

#[test]
fn warnings_name_fields_without_effect() {
    let warnings = |patch: Value| {
        let mut object = json!({
            "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": {"name": "pa"},
            "spec": {"scalingStrategy": "KPA", "minReplicas": 1, "maxReplicas": 10,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metricsSources": [{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "50"}]},
        });
        merge(&mut object, &patch);
        let object: PodAutoscaler = serde_json::from_value(object).unwrap();
        crate::pod_autoscaler::warnings(&object).into_iter().map(|warning| warning.path).collect::<Vec<_>>()
    };
    assert!(warnings(json!({})).is_empty());
    assert_eq!(warnings(json!({"spec": {"minReplicas": 0}})), ["spec.metricsSources"]);
    assert_eq!(warnings(json!({"spec": {"minReplicas": 0, "scalingStrategy": "HPA"}})), ["spec.minReplicas"]);
    let zero = json!({"metadata": {"annotations": {"autoscaling.aibrix.ai/scale-to-zero": "true"}}});
    assert_eq!(warnings(zero)[0], "metadata.annotations[autoscaling.aibrix.ai/scale-to-zero]");
    let old = json!({"metadata": {"annotations": {"kpa.autoscaling.aibrix.ai/panic-window": "10s"}}});
    assert_eq!(warnings(old), ["metadata.annotations[kpa.autoscaling.aibrix.ai/panic-window]"]);
}
