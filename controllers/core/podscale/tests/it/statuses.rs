//! Conditions, history and readings that follow from a pass.

use jiff::{Timestamp, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use neonvm_api::{FieldError, PodAutoscalerStatus, pod_autoscaler::ScalingDecision};
use neonvm_core_podscale::{
    Missing, MissingReason, Observed,
    status::{Applied, Pass, after, differs, failure, push_history},
};
use serde_json::{Value, json};

use crate::world::{World, object, start};

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
    // What works in between begins the count anew.
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
fn paused_and_recommending_objects_say_so() {
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
fn history_is_short_and_says_nothing_twice() {
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

#[test]
fn the_status_of_a_wrapped_object_is_that_of_the_wrapper_in_our_words() {
    let theirs = json!({"currentReplicas": 2, "desiredReplicas": 3, "lastScaleTime": "2026-08-03T11:00:00Z",
    "conditions": [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "100% ready"},
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "no metrics"},
        {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": ""},
    ]});
    let theirs = serde_json::from_value(theirs).unwrap();
    let bounds = neonvm_core_podscale::schedule::Bounds { min: 1, max: 5, ..Default::default() };
    let pass = Pass::Wrapped { status: Some(&theirs), bounds: &bounds, passive: false };
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
    // The same again is the same: upstream's transition times never come to rest.
    let later: Timestamp = start().checked_add(60.seconds()).unwrap();
    assert_eq!(after(&first, &pass, Some(3), later), first);
    let stored: Value = serde_json::to_value(&first).unwrap();
    assert_eq!(stored["scheduledBounds"], json!({"effectiveMinReplicas": 1, "effectiveMaxReplicas": 5}));
}
