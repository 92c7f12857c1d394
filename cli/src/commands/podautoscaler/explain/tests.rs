use serde_json::json;

use super::*;
use crate::commands::podautoscaler::show::tests::{condition, object};

fn seen() -> PodAutoscaler {
    object(&json!({ "actualScale": 3, "desiredScale": 4, "recommendation": 4, "observedGeneration": 1,
        "scheduledBounds": { "effectiveMinReplicas": 1, "effectiveMaxReplicas": 10 },
        "currentMetrics": [{ "type": "pod", "name": "queue", "target": { "averageValue": "40" }, "pods": "3/3",
            "current": { "value": "156", "averageValue": "52" }, "stable": "148", "desiredReplicas": 4 }],
        "conditions": [condition("ValidSpec", "True", ""), condition("ScalingActive", "True", "4 replicas wanted, 3 there")],
        "explanation": [
            { "step": "Observed", "replicas": 3, "message": "3 ordered, 3 ready; bounds 1 to 10; one step goes from 1 to 6" },
            { "step": "Metric", "metric": "queue", "replicas": 4,
              "message": "value 52 of 3/3 pods, target 40 for each pod; whole load 156, over 60 s 148; asks for 4" },
            { "step": "Largest", "replicas": 4, "message": "the metric that asks for most counts" },
            { "step": "Stabilization", "replicas": 4, "message": "up over 0 s, down over 300 s" },
            { "step": "Bounds", "replicas": 4, "message": "1 to 10" },
            { "step": "Result", "replicas": 4, "message": "a metric is above its target" }] }))
}

fn now() -> Timestamp {
    "2026-01-05T17:30:00Z".parse().unwrap()
}

fn text(object: &PodAutoscaler) -> String {
    let text = Account::from_object(object, now()).text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// Without the time since a condition holds, which depends on the clock.
fn timeless(text: &str) -> String {
    let lines = text.lines().map(|line| match (line.find(" for "), line.find(": ")) {
        (Some(from), Some(to)) if line.starts_with("  status") && from < to => {
            format!("{}{}", &line[..from], &line[to..])
        }
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn from_metric_to_result() {
    let wanted = "\
podautoscaler/web scales deployment/web
  replicas        3 replicas, 4 desired
  status          Scaling: 4 replicas wanted, 3 there
  rules           APA, window of 60 s, every 10 s
queue (pod)
  metric          52 per pod of 3/3 pods, target 40; 156 in total
  window          load 148 over 60 s
  recommendation  4 replicas: asks for 4
decision
  observed        3: 3 ordered, 3 ready; bounds 1 to 10; one step goes from 1 to
                  6
  constraint      4 after largest: the metric that asks for most counts
  constraint      4 after stabilization: up over 0 s, down over 300 s
  constraint      4 after bounds: 1 to 10
  result          4: a metric is above its target
what would change the number of replicas
  more            queue above 44 per pod (132 in total): 4, averaged over 60 s;
                  at most 6 in one step
  fewer           queue at most 26.67 per pod (80 in total), averaged over 60 s:
                  2; at least 1 in one step, 300 s after the last higher
                  recommendation
  bounds          1..10 by the spec";
    let text = timeless(&text(&seen()));
    assert!(text == wanted, "{text}");
}

#[test]
fn what_keeps_it_from_changing() {
    let mut found = seen();
    let status = found.status.as_mut().unwrap();
    let metric = &mut status.current_metrics[0];
    (metric.current, metric.stable, metric.desired_replicas) = (None, None, None);
    metric.error = "TimedOut: no answer within 2 s".to_owned();
    status.conditions = vec![
        serde_json::from_value(condition(
            "MetricsAvailable",
            "False",
            "queue: TimedOut: no answer within 2 s",
        ))
        .unwrap(),
    ];
    let blind = text(&found);
    let flat = blind.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "status Blind for ",
        "metric no value for ",
        ", target 40: TimedOut: no answer within 2 s",
        "fewer not while queue has no value",
    ] {
        assert!(flat.contains(part), "{part}\n{blind}");
    }
    found.spec.max_replicas = 3;
    found.status.as_mut().unwrap().scheduled_bounds = None;
    assert!(text(&found).contains("nothing: 3 is the upper bound"));
    found.status = None;
    let new = text(&found);
    assert!(new.contains("New: not reconciled yet; is pod-autoscaler running?"), "{new}");
    assert!(!new.contains("  more"), "{new}");
}

#[test]
fn other_bounds_and_panic_are_announced() {
    let mut found = seen();
    found.spec.scaling_strategy = neonvm_api::pod_autoscaler::ScalingStrategy::Kpa;
    found.spec.schedules = Some(vec![neonvm_api::pod_autoscaler::Schedule {
        name: "night".to_owned(),
        start_time: "18:00".to_owned(),
        end_time: "23:00".to_owned(),
        min_replicas: Some(0),
        max_replicas: Some(2),
        ..neonvm_api::pod_autoscaler::Schedule::default()
    }]);
    let shown = text(&found);
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "next bounds 0..2 by schedule night from 2026-01-05 18:00 UTC, in 30m",
        "panic queue above 66.67 per pod (200 in total), averaged over 60 s; then no replica is removed for 60 s",
        "rules KPA, windows of 60 s and 60 s, every 10 s",
    ] {
        assert!(flat.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn kubernetes_own_autoscaler_is_named() {
    let mut found = seen();
    found.spec.scaling_strategy = neonvm_api::pod_autoscaler::ScalingStrategy::Hpa;
    let status = found.status.as_mut().unwrap();
    status.current_metrics.clear();
    status.explanation.clear();
    let shown = text(&found);
    assert!(shown.contains("kubectl describe hpa web-hpa"), "{shown}");
}

#[test]
fn what_kubernetes_decided_by_is_shown_as_for_the_other_strategies() {
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
    use neonvm_core_pod_autoscaler::status::{Pass, after};
    let mut found = seen();
    found.spec.scaling_strategy = neonvm_api::pod_autoscaler::ScalingStrategy::Hpa;
    found.spec.sync_period_seconds = None;
    found.spec.metrics_sources = serde_json::from_value(json!([
        { "metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "50" }
    ]))
    .unwrap();
    let (settings, _) = Settings::from_object(&found).unwrap();
    let mut hpa = neonvm_core_pod_autoscaler::hpa_object::build(&found, now()).unwrap();
    let status: HorizontalPodAutoscalerStatus = serde_json::from_value(json!({
        "currentReplicas": 3, "desiredReplicas": 5,
        "currentMetrics": [{ "type": "Resource", "resource": {
            "name": "cpu", "current": { "averageUtilization": 80, "averageValue": "160m" } } }],
    }))
    .unwrap();
    hpa.status = Some(status);
    let bounds = settings.bounds(now());
    let pass = Pass::Wrapped { hpa: Some(&hpa), settings: &settings, bounds: &bounds, passive: false };
    found.status = Some(after(&found.status.clone().unwrap_or_default(), &pass, Some(1), now()));
    let shown = text(&found);
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "cpu (resource) metric 80%, target 50% recommendation 5 replicas: asks for 5 by the ratio of the two",
        "result 5: decided by Kubernetes",
    ] {
        assert!(flat.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn the_same_in_json() {
    let found = seen();
    let value = Account::from_object(&found, now()).json();
    assert_eq!(value["kind"], "PodAutoscalerExplanation");
    assert_eq!(value["metrics"][0]["moreAbove"], json!({ "load": 132.0, "inclusive": false, "replicas": 4 }));
    assert_eq!(value["metrics"][0]["fewerBelow"], json!({ "load": 80.0, "inclusive": true, "replicas": 2 }));
    assert_eq!(value["replicas"], json!({ "actual": 3, "desired": 4, "recommended": 4 }));
    assert_eq!(value["steps"].as_array().map(Vec::len), Some(6));
}

/// What the core writes is read as it was meant, whatever is ready.
#[test]
fn ready_pods_are_read_from_the_status() {
    use neonvm_core_pod_autoscaler::status::{Applied, Pass, after};
    use neonvm_core_pod_autoscaler::{Memory, Observation, Observed, decide};
    let mut found = seen();
    let (settings, _) = Settings::from_object(&found).unwrap();
    for ready in [0, 1, 2, 5] {
        let metrics = vec![Observed::total(250.0)];
        let observation = Observation { current: 5, ready: Some(ready), metrics };
        let decision = decide(&settings, &mut Memory::default(), &observation, now());
        let pass = Pass::Decided { decision: &decision, settings: &settings, applied: &Applied::NotNeeded };
        found.status = Some(after(&PodAutoscalerStatus::default(), &pass, Some(1), now()));
        let account = Account::from_object(&found, now());
        assert_eq!(account.fleet, Fleet { current: 5, ready });
        assert_eq!(settings.rates().ceiling(account.fleet), decision.ceiling);
    }
    found.status.as_mut().unwrap().explanation.clear();
    assert_eq!(Account::from_object(&found, now()).fleet, Fleet { current: 5, ready: 5 });
}
