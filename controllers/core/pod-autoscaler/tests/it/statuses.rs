//! Conditions, history and readings that follow from a pass.

use jiff::{Timestamp, ToSpan};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use neonvm_api::{FieldError, PodAutoscaler, PodAutoscalerStatus, pod_autoscaler::ScalingDecision};
use neonvm_core_pod_autoscaler::{
    Missing, MissingReason, Observed, Settings,
    hpa_object::build,
    status::{Applied, Pass, after, differs, failure, push_history},
};
use serde_json::{Value, json};

use crate::world::{World, merge, object, start};

/// Type, status and reason of each condition.
fn conditions(status: &PodAutoscalerStatus) -> Vec<String> {
    status.conditions.iter().map(|one| format!("{}={} {}", one.type_, one.status, one.reason)).collect()
}

fn decided(
    old: &PodAutoscalerStatus,
    world: &mut World,
    current: i32,
    value: f64,
    applied: &Applied,
) -> PodAutoscalerStatus {
    let decision = world.mean(current, value);
    let pass = Pass::Decided { decision: &decision, settings: &world.settings, applied };
    after(old, &pass, Some(3), world.now)
}

#[test]
fn a_change_and_then_rest() {
    let mut world = World::warm(&object(&json!({})));
    let changed = decided(&PodAutoscalerStatus::default(), &mut world, 2, 15.0, &Applied::Done);
    let expected = [
        "ValidSpec=True AsExpected",
        "ScalingActive=True ReconcilingScaleDiff",
        "AbleToScale=True SucceededGetScale",
        "Ready=False ReconcilingScaleDiff",
        "ScalingLimited=False DesiredWithinRange",
        "MetricsAvailable=True AsExpected",
    ];
    assert_eq!(conditions(&changed), expected);
    assert_eq!((changed.actual_scale, changed.desired_scale, changed.recommendation), (2, 3, Some(3)));
    assert_eq!(changed.last_scale_time, Some(Time(world.now)));
    assert_eq!(changed.observed_generation, Some(3));
    let metric = serde_json::to_value(&changed.current_metrics[0]).unwrap();
    let expected = json!({"type": "custom", "name": "m", "target": {"averageValue": "10"},
        "current": {"value": "30", "averageValue": "15"}, "stable": "30", "pods": "2/2", "desiredReplicas": 3});
    assert_eq!(metric, expected);
    let history = serde_json::to_value(&changed.scaling_history).unwrap();
    let expected = json!([{"timestamp": world.now.to_string(), "previousScale": 2, "newScale": 3,
        "reason": "AboveTarget", "success": true}]);
    assert_eq!(history, expected);

    world.wait(11);
    let rest = decided(&changed, &mut world, 3, 10.0, &Applied::NotNeeded);
    assert_eq!(conditions(&rest)[1], "ScalingActive=False Stable");
    assert_eq!(conditions(&rest)[3], "Ready=True AsExpected");
    // What stayed keeps its time, what changed has a new one; upstream edits the list it compares with.
    let times: Vec<bool> =
        rest.conditions.iter().map(|one| one.last_transition_time.0 == world.now).collect();
    assert_eq!(times, [false, true, false, true, false, false]);
    assert_eq!(
        (rest.last_scale_time, rest.scaling_history),
        (changed.last_scale_time, changed.scaling_history)
    );
}

/// As an HPA: no metric is missing where there is no pod to give one.
#[test]
fn a_target_that_was_set_to_zero_is_disabled() {
    let mut world = World::warm(&object(&json!({})));
    let reading = vec![Observed::Missing(Missing::new(MissingReason::NoReadyPods, "no pods"))];
    let decision = world.see(0, 0, reading);
    let pass = Pass::Decided { decision: &decision, settings: &world.settings, applied: &Applied::NotNeeded };
    let status = after(&PodAutoscalerStatus::default(), &pass, Some(3), world.now);
    let found = conditions(&status);
    assert_eq!(found[1], "ScalingActive=False ScalingDisabled");
    assert_eq!(found.last().unwrap(), "MetricsAvailable=Unknown ScalingDisabled");
    assert!(status.conditions[1].message.contains("set replicas above 0"), "{:?}", status.conditions);

    let (_, settings, mut hpa) = wrapped(&json!({}));
    hpa.status = serde_json::from_value(json!({ "currentReplicas": 0, "desiredReplicas": 0, "conditions": [
        { "type": "AbleToScale", "status": "True", "reason": "SucceededGetScale" },
        { "type": "ScalingActive", "status": "False", "reason": "ScalingDisabled",
            "message": "scaling is disabled since the replica count of the target is zero" }] }))
    .unwrap();
    let bounds = neonvm_core_pod_autoscaler::schedule::Bounds { min: 1, max: 9, ..Default::default() };
    let pass = Pass::Wrapped { hpa: Some(&hpa), settings: &settings, bounds: &bounds, passive: false };
    let found = conditions(&after(&PodAutoscalerStatus::default(), &pass, Some(3), world.now));
    assert_eq!(found[1], "ScalingActive=False ScalingDisabled");
    assert_eq!(found.last().unwrap(), "MetricsAvailable=Unknown ScalingDisabled");
}

#[test]
fn other_readings_are_not_worth_a_write() {
    let mut world = World::warm(&object(&json!({})));
    let first = decided(&PodAutoscalerStatus::default(), &mut world, 2, 10.0, &Applied::NotNeeded);
    world.wait(11);
    let second = decided(&first, &mut world, 2, 10.5, &Applied::NotNeeded);
    assert_ne!(first, second);
    assert!(!differs(&first, &second));
    world.wait(11);
    let third = decided(&second, &mut world, 2, 15.0, &Applied::Done);
    assert!(differs(&second, &third));
}

#[test]
fn a_failure_scaled_nothing_and_washes_nothing_out() {
    let mut world = World::warm(&object(&json!({})));
    let mut status = decided(&PodAutoscalerStatus::default(), &mut world, 2, 15.0, &Applied::Done);
    let scaled = status.last_scale_time.clone();
    for count in 1..=20 {
        world.wait(11);
        status = decided(&status, &mut world, 2, 15.0, &Applied::Failed("conflict".to_owned()));
        let last = status.last_failure.as_ref().unwrap();
        assert_eq!((last.reason.as_str(), last.count), (failure::UPDATE_SCALE, count));
    }
    assert_eq!((status.scaling_history.len(), &status.last_scale_time), (2, &scaled));
    assert!(!status.scaling_history[1].success);
    assert_eq!(
        conditions(&status)[2..4],
        ["AbleToScale=False FailedUpdateScale", "Ready=False FailedUpdateScale"]
    );
    let lost = Pass::Failed { reason: failure::GET_SCALE, message: "deployments d not found" };
    let gone = after(&status, &lost, Some(3), world.now);
    assert_eq!(gone.last_failure.as_ref().map(|last| last.count), Some(1));
    assert_eq!(conditions(&gone)[2], "AbleToScale=False FailedGetScale");
    // A success in between resets the count.
    world.wait(11);
    let well = decided(&gone, &mut world, 2, 10.0, &Applied::NotNeeded);
    assert_eq!(well.last_failure, gone.last_failure);
    assert_eq!(after(&well, &lost, Some(3), world.now).last_failure.map(|last| last.count), Some(1));
    assert_eq!(after(&gone, &lost, Some(3), world.now).last_failure.map(|last| last.count), Some(2));
    assert_eq!((gone.actual_scale, gone.scaling_history), (2, status.scaling_history));
}

#[test]
fn what_is_invalid_or_taken_does_not_scale() {
    let fault = |path: &str| FieldError { path: path.to_owned(), message: "is wrong".to_owned() };
    for (path, reason) in [
        ("spec.scaleTargetRef.kind", "MissingScaleTargetRef"),
        ("spec.maxReplicas", "InvalidBounds"),
        ("spec.subTargetSelector.roleName", "InvalidScalingStrategy"),
        ("spec.metricsSources[0].targetValue", "MetricsConfigError"),
        ("spec.panicWindowSeconds", "InvalidSpec"),
        ("spec.schedules[0].endTime", "InvalidSpec"),
        ("metadata.annotations[x]", "InvalidSpec"),
    ] {
        let status = after(&PodAutoscalerStatus::default(), &Pass::Invalid(&[fault(path)]), Some(1), start());
        let expected = [
            format!("ValidSpec=False {reason}"),
            "ScalingActive=False Stable".to_owned(),
            "AbleToScale=False InvalidSpec".to_owned(),
            "Ready=False InvalidSpec".to_owned(),
        ];
        assert_eq!(conditions(&status), expected);
    }
    let conflict = after(&PodAutoscalerStatus::default(), &Pass::Conflict("taken by ns/b"), Some(1), start());
    // The polarity is upstream's: False while there is a conflict, absent otherwise.
    assert_eq!(conditions(&conflict)[1], "MultiPodAutoscalerConflict=False MultiPodAutoscalerConflict");
    assert_eq!(conditions(&conflict)[3], "AbleToScale=False InvalidSpec");
    let mut world = World::warm(&object(&json!({})));
    let free = decided(&conflict, &mut world, 1, 10.0, &Applied::NotNeeded);
    assert!(!conditions(&free).iter().any(|one| one.starts_with("MultiPodAutoscalerConflict")));
}

#[test]
fn metrics_that_are_missing_have_a_reason() {
    let mut world = World::warm(&object(&json!({})));
    let missing = |reason| vec![Observed::Missing(Missing::new(reason, "no answer"))];
    for (reason, expected) in [
        (MissingReason::Forbidden, "MetricsAvailable=False Forbidden"),
        (MissingReason::FirstReading, "MetricsAvailable=Unknown FirstReading"),
    ] {
        let decision = world.wait(11).see(2, 2, missing(reason));
        let pass =
            Pass::Decided { decision: &decision, settings: &world.settings, applied: &Applied::NotNeeded };
        let status = after(&PodAutoscalerStatus::default(), &pass, Some(3), world.now);
        assert_eq!(
            conditions(&status)[4..],
            ["ScalingLimited=True MetricMissing".to_owned(), expected.to_owned()]
        );
        assert!(status.current_metrics[0].error.ends_with("no answer"));
    }
}

#[test]
fn paused_and_recommending_objects_have_their_conditions() {
    for (spec, able, ready) in [
        (json!({"paused": true}), "AbleToScale=False Paused", "Ready=False Paused"),
        (json!({"mode": "Recommend"}), "AbleToScale=True RecommendOnly", "Ready=True AsExpected"),
    ] {
        let mut world = World::warm(&object(&spec));
        let status = decided(&PodAutoscalerStatus::default(), &mut world, 2, 20.0, &Applied::NotNeeded);
        assert_eq!(conditions(&status)[2..4], [able, ready]);
        assert_eq!((status.desired_scale, status.recommendation), (2, Some(4)));
    }
}

fn entry(second: i64, new_scale: i32, error: &str) -> ScalingDecision {
    ScalingDecision {
        timestamp: Time(start().checked_add(second.seconds()).unwrap()),
        previous_scale: 1,
        new_scale,
        reason: "AboveTarget".to_owned(),
        success: error.is_empty(),
        error: error.to_owned(),
    }
}

#[test]
fn history_is_short_and_without_repetitions() {
    let mut history = Vec::new();
    for (second, new_scale, error, length) in [
        (0, 2, "", 1),
        (5, 2, "", 1),
        (6, 2, "", 2),
        (7, 3, "", 3),
        (8, 3, "x", 4),
        (900, 3, "x", 4),
        (901, 3, "y", 5),
        (902, 4, "", 5),
    ] {
        push_history(&mut history, entry(second, new_scale, error));
        assert_eq!(history.len(), length, "at {second}");
    }
    assert_eq!(history[0].timestamp.0, start().checked_add(6.seconds()).unwrap());
}

/// An object with strategy HPA, and its `HorizontalPodAutoscaler`.
fn wrapped(spec: &Value) -> (PodAutoscaler, Settings, HorizontalPodAutoscaler) {
    let mut all = json!({"scalingStrategy": "HPA", "observeWindowSeconds": null, "panicWindowSeconds": null});
    merge(&mut all, spec);
    let object = object(&all);
    let (settings, _) = Settings::from_object(&object).unwrap();
    let hpa = build(&object, start()).unwrap();
    (object, settings, hpa)
}

#[test]
fn metrics_of_a_wrapped_object_are_those_of_the_wrapper() {
    let source = |kind: &str, metric: &str, value: &str| json!({"metricSourceType": kind, "targetMetric": metric, "targetValue": value});
    let mut milli = source("resource", "cpu", "250");
    milli["targetType"] = json!("AverageValue");
    let mut whole = source("external", "lag", "100");
    whole["targetType"] = json!("Value");
    let sources = json!([
        source("resource", "cpu", "50"),
        milli,
        source("custom", "queue", "10"),
        whole,
        source("external", "backlog", "5")
    ]);
    let (_, settings, mut hpa) = wrapped(&json!({"metricsSources": sources}));
    // The one about milli-cores is missing, so all behind it are at another place.
    let status = json!({"currentReplicas": 4, "desiredReplicas": 8,
        "conditions": [{"type": "ScalingLimited", "status": "True", "reason": "ScaleUpLimit", "message": "too fast"},
            {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "no cpu"}],
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 80, "averageValue": "160m"}}},
            {"type": "Pods", "pods": {"metric": {"name": "queue"}, "current": {"averageValue": "10500m"}}},
            {"type": "External", "external": {"metric": {"name": "lag"}, "current": {"value": "300"}}}]});
    hpa.status = Some(serde_json::from_value(status).unwrap());
    let bounds = neonvm_core_pod_autoscaler::schedule::Bounds { min: 1, max: 9, ..Default::default() };
    let pass = Pass::Wrapped { hpa: Some(&hpa), settings: &settings, bounds: &bounds, passive: false };
    let status = after(&PodAutoscalerStatus::default(), &pass, Some(1), start());
    let shown = serde_json::to_value(&status.current_metrics).unwrap();
    assert_eq!(
        shown,
        json!([
            {"type": "resource", "name": "cpu", "target": {"averageUtilization": 50},
                "current": {"averageUtilization": 80, "averageValue": "160"}, "desiredReplicas": 7},
            {"type": "resource", "name": "cpu", "target": {"averageValue": "250"},
                "current": {"averageUtilization": 80, "averageValue": "160"}, "desiredReplicas": 3},
            {"type": "custom", "name": "queue", "target": {"averageValue": "10"},
                "current": {"averageValue": "10.5"}, "desiredReplicas": 4},
            {"type": "external", "name": "lag", "target": {"value": "100"}, "current": {"value": "300"}, "desiredReplicas": 12},
            {"type": "external", "name": "backlog", "target": {"averageValue": "5"}, "error": "no cpu"},
        ])
    );
    let steps: Vec<String> = status
        .explanation
        .iter()
        .map(|step| format!("{} {}: {}", step.step, step.replicas, step.message))
        .collect();
    assert_eq!(
        steps,
        [
            "Observed 4: bounds 1 to 9",
            "Metric 7: value 80 percent of the request, target 50 percent of the request; asks for 7 by the ratio of the two",
            "Metric 3: value 160 for each pod, target 250 for each pod; asks for 3 by the ratio of the two",
            "Metric 4: value 10.5 for each pod, target 10 for each pod; asks for 4 by the ratio of the two",
            "Metric 12: value 300, target 100; asks for 12 by the ratio of the two",
            "Metric 4: no value: no cpu",
            "Result 8: decided by Kubernetes: too fast",
        ]
    );
    // Other readings alone are not urgent.
    let mut other = hpa.clone();
    let metrics = other.status.as_mut().unwrap().current_metrics.as_mut().unwrap();
    metrics[0].resource.as_mut().unwrap().current.average_utilization = Some(90);
    let pass = Pass::Wrapped { hpa: Some(&other), settings: &settings, bounds: &bounds, passive: false };
    let next = after(&status, &pass, Some(1), start());
    assert!(next != status && !differs(&status, &next));
}

/// Before its first decision the status of Kubernetes' autoscaler has a zero, which is not a recommendation.
#[test]
fn what_kubernetes_has_not_decided_is_not_shown_as_decided() {
    let (_, settings, hpa) = wrapped(&json!({}));
    let shown = |min: i32, theirs: Option<Value>| {
        let mut hpa = hpa.clone();
        hpa.status = theirs.map(|theirs| serde_json::from_value(theirs).unwrap());
        let bounds = neonvm_core_pod_autoscaler::schedule::Bounds { min, max: 5, ..Default::default() };
        let pass = Pass::Wrapped { hpa: Some(&hpa), settings: &settings, bounds: &bounds, passive: false };
        let status = after(&PodAutoscalerStatus::default(), &pass, Some(2), start());
        let active = status.conditions.iter().find(|one| one.type_ == "ScalingActive").unwrap();
        assert_eq!(active.status, "False");
        let result = status.explanation.last().map_or_else(String::new, |step| step.message.clone());
        format!("{} | {result} | {}: {}", status.desired_scale, active.reason, active.message)
    };
    // As it is made.
    assert_eq!(shown(1, None), "0 |  | NotDecided: Kubernetes has decided nothing yet");
    let made = json!({"desiredReplicas": 0, "currentMetrics": null});
    // Without metrics it stays so.
    let mut found = json!({"currentReplicas": 2, "desiredReplicas": 0,
        "conditions": [{"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric"}]});
    let nothing = "Kubernetes has decided nothing yet";
    for min in [0, 1] {
        assert_eq!(shown(min, Some(made.clone())), format!("0 | {nothing} | NotDecided: {nothing}"));
        let there = format!("2 | {nothing} | NotDecided: {nothing}, 2 replicas there");
        assert_eq!(shown(min, Some(found.clone())), there);
    }
    // Zero is a decision where it is permitted.
    found["conditions"][0]["status"] = json!("True");
    found["currentReplicas"] = json!(0);
    assert_eq!(shown(0, Some(found)), "0 | decided by Kubernetes | Stable: 0 replicas wanted, 0 there");
}

#[test]
fn the_status_of_a_wrapped_object_is_that_of_the_wrapper_in_our_words() {
    let (_, settings, mut hpa) = wrapped(&json!({}));
    let theirs = json!({"currentReplicas": 2, "desiredReplicas": 3, "lastScaleTime": "2026-08-03T11:00:00Z",
    "conditions": [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "100% ready"},
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "no metrics"},
        {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": ""},
    ]});
    hpa.status = Some(serde_json::from_value(theirs).unwrap());
    let bounds = neonvm_core_pod_autoscaler::schedule::Bounds { min: 1, max: 5, ..Default::default() };
    let pass = Pass::Wrapped { hpa: Some(&hpa), settings: &settings, bounds: &bounds, passive: false };
    let first = after(&PodAutoscalerStatus::default(), &pass, Some(3), start());
    let expected = [
        "ValidSpec=True AsExpected",
        "ScalingActive=True ReconcilingScaleDiff",
        "AbleToScale=True Configured",
        "Ready=False ReconcilingScaleDiff",
        "ScalingLimited=True TooFewReplicas",
        "MetricsAvailable=False FailedGetResourceMetric",
    ];
    assert_eq!(conditions(&first), expected);
    assert_eq!((first.actual_scale, first.desired_scale), (2, 3));
    // The same again is the same: upstream's transition times change with every pass.
    let later: Timestamp = start().checked_add(60.seconds()).unwrap();
    assert_eq!(after(&first, &pass, Some(3), later), first);
    let stored: Value = serde_json::to_value(&first).unwrap();
    assert_eq!(stored["scheduledBounds"], json!({"effectiveMinReplicas": 1, "effectiveMaxReplicas": 5}));
}
