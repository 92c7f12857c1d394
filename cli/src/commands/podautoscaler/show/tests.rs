use serde_json::{Value, json};

use super::*;

pub(crate) fn object(status: &Value) -> PodAutoscaler {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": { "name": "web", "namespace": "shop", "generation": 1 },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 1, "maxReplicas": 10, "scalingStrategy": "APA", "observeWindowSeconds": 60,
            "metricsSources": [{ "metricSourceType": "pod", "protocolType": "http", "path": "/metrics", "port": "8080",
                "targetMetric": "queue", "targetValue": "40" }] },
        "status": status }))
    .unwrap()
}

pub(crate) fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "AsExpected", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn with(conditions: &[(&str, &str, &str)]) -> PodAutoscaler {
    let conditions: Vec<Value> =
        conditions.iter().map(|(kind, status, message)| condition(kind, status, message)).collect();
    object(&json!({ "actualScale": 3, "desiredScale": 3, "recommendation": 5, "conditions": conditions }))
}

#[test]
fn the_word_is_what_matters_most() {
    let all = [
        ("ValidSpec", "False", "spec.maxReplicas: must be at least minReplicas", "Invalid"),
        ("MultiPodAutoscalerConflict", "False", "shop/api has it", "Conflict"),
        ("AbleToScale", "False", "deployments.apps \"web\" not found", "Failed"),
        ("MetricsAvailable", "False", "queue: TimedOut", "Blind"),
        ("ScalingActive", "True", "5 replicas wanted, 3 there", "Scaling"),
        ("ScalingLimited", "True", "held at the upper bound", "Limited"),
        ("Ready", "True", "", "Ready"),
    ];
    for first in 0..all.len() {
        // Whatever else is true.
        let conditions: Vec<_> =
            all[first..].iter().map(|(kind, status, text, _)| (*kind, *status, *text)).collect();
        let found = with(&conditions);
        assert_eq!(
            (Word::from_object(&found).text(), message(&found).as_str()),
            (all[first].3, all[first].2)
        );
    }
}

#[test]
fn what_the_spec_switches_off() {
    let mut found = with(&[("Ready", "True", "")]);
    found.spec.mode = Some(ScalingMode::Recommend);
    assert_eq!(
        (Word::from_object(&found), message(&found).as_str()),
        (Word::Recommend, "the target is not scaled; 5 replicas recommended")
    );
    found.spec.paused = Some(true);
    assert_eq!(
        (Word::from_object(&found), message(&found).as_str()),
        (Word::Paused, "the target is not scaled; 5 replicas recommended")
    );
    found.spec.paused = None;
    found.spec.mode = None;
    found.metadata.generation = Some(2);
    let text = "the latest spec has not been reconciled yet";
    found.status.as_mut().unwrap().observed_generation = Some(1);
    assert_eq!((Word::from_object(&found), message(&found).as_str()), (Word::Ready, text));
}

#[test]
fn one_that_kubernetes_has_not_decided_about() {
    let text = "Kubernetes has decided nothing yet";
    let mut open = condition("ScalingActive", "False", text);
    open["reason"] = json!("NotDecided");
    let conditions = json!([condition("ValidSpec", "True", ""), open, condition("Ready", "True", "")]);
    for (there, shown) in [(0, "-"), (2, "2")] {
        let found = object(&json!({ "actualScale": there, "desiredScale": there, "conditions": conditions }));
        let seen = (Word::from_object(&found).text(), message(&found), replicas(&found));
        assert_eq!(seen, ("New", text.to_owned(), shown.to_owned()));
    }
}

#[test]
fn one_that_is_not_reconciled_yet() {
    let mut new = object(&json!({}));
    new.status = None;
    assert_eq!((Word::from_object(&new), message(&new).as_str()), (Word::New, UNSEEN));
    assert_eq!(
        (replicas(&new).as_str(), range(&new).as_str(), target(&new).as_str()),
        ("-", "1..10", "deployment/web")
    );
    assert_eq!(metrics(&status(&new)), "-");
}

#[test]
fn the_decisive_metric_in_the_form_of_its_target() {
    let metric = |name: &str, target: Value, current: Value, replicas: Option<i32>| {
        json!({ "type": "pod", "name": name,
        "target": target, "current": current, "desiredReplicas": replicas })
    };
    let shown =
        |all: Vec<Value>| metrics(&status(&object(&json!({ "actualScale": 3, "currentMetrics": all }))));
    let each = metric(
        "queue",
        json!({ "averageValue": "40" }),
        json!({ "value": "156", "averageValue": "52" }),
        Some(4),
    );
    let whole = metric("lag", json!({ "averageValue": "40" }), json!({ "value": "150" }), Some(4));
    let share =
        metric("cpu", json!({ "averageUtilization": 70 }), json!({ "averageUtilization": 63 }), Some(5));
    let value = metric("latency", json!({ "value": "0.5" }), json!({ "value": "0.75" }), Some(1));
    let blind = metric("blind", json!({ "value": "1" }), Value::Null, None);
    assert_eq!(shown(vec![each.clone(), whole.clone()]), "queue 52/40 +1");
    assert_eq!(shown(vec![whole, each]), "lag 50/40 +1");
    assert_eq!(shown(vec![value.clone(), share]), "cpu 63%/70% +1");
    assert_eq!(shown(vec![blind.clone(), value]), "latency 0.75/0.5 +1");
    assert_eq!(shown(vec![blind]), "blind ?/1");
}

#[test]
fn replicas_on_their_way() {
    let moving = object(
        &json!({ "actualScale": 3, "desiredScale": 5, "conditions": [condition("Ready", "False", "")] }),
    );
    assert_eq!(replicas(&moving), "3->5");
    let zero = object(&json!({ "conditions": [condition("Ready", "True", "")] }));
    assert_eq!(replicas(&zero), "0");
}
