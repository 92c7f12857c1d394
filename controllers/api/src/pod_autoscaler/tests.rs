use serde_json::{Value, json};

use super::*;
use crate::schema::rules;

/// Messages of the CEL rules that a value breaks. Fields whose names are words of CEL are escaped as Kubernetes does it.
fn broken(rules: &Value, value: &Value) -> Vec<String> {
    let mut value = value.clone();
    if let Some(function) = value.get("function").cloned() {
        value["__function__"] = function;
    }
    let mut context = cel::Context::default();
    context.add_variable("self", &value).unwrap();
    let holds = |rule: &Value| {
        let program = cel::Program::compile(rule["rule"].as_str().unwrap()).unwrap();
        match program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => holds,
            other => panic!("{rule}: {other:?}"),
        }
    };
    let all = rules.as_array().unwrap().iter();
    all.filter(|rule| !holds(rule)).map(|rule| rule["message"].as_str().unwrap().to_owned()).collect()
}

/// The CRD's rules check new fields like `validate` does, for clusters where no webhook is called.
#[test]
fn rules_of_new_fields() {
    let metric = |patch: Value| {
        let mut source = json!({"metricSourceType": "pod", "protocolType": "http", "port": "1", "path": "/",
            "targetMetric": "m", "targetValue": "1"});
        source.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        broken(&rules::metric_source(), &source).len()
    };
    assert_eq!(metric(json!({"quantile": "0.9"})), 0);
    assert_eq!(metric(json!({"function": "Rate", "seriesAggregation": "Maximum"})), 0);
    assert_eq!(metric(json!({"quantile": "0.9", "function": "Mean"})), 1);
    assert_eq!(metric(json!({"quantile": "0.9", "seriesAggregation": "Sum"})), 1);
    assert_eq!(metric(json!({"targetType": "Utilization"})), 1);
    let resource =
        json!({"metricSourceType": "resource", "targetMetric": "cpu", "targetType": "Utilization"});
    assert_eq!(broken(&rules::metric_source(), &resource).len(), 0);
    let external = json!({"metricSourceType": "external", "targetMetric": "m", "function": "Rate"});
    assert_eq!(broken(&rules::metric_source(), &external).len(), 1);
    let spec = |strategy: &str| {
        let spec = json!({"maxReplicas": 3, "metricsSources": [{}], "scalingStrategy": strategy,
            "forecast": {"horizonSeconds": 60}});
        broken(&rules::pod_autoscaler(), &spec).len()
    };
    assert_eq!((spec("KPA"), spec("HPA")), (0, 1));
}

#[test]
fn periods_and_windows_have_defaults() {
    let spec = |patch: Value| -> PodAutoscalerSpec {
        let mut spec =
            json!({"scalingStrategy": "KPA", "maxReplicas": 3, "scaleTargetRef": {"kind": "A", "name": "b"}});
        spec.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    };
    let plain = spec(json!({}));
    assert_eq!((plain.observe_window(), plain.panic_window(), plain.sync_period()), (180, 60, 10));
    assert!(!plain.is_passive());
    let short = spec(json!({"observeWindowSeconds": 30, "panicWindowSeconds": 6}));
    assert_eq!(short.sync_period(), 6);
    // The panic window is read by KPA alone.
    let ratio = spec(json!({"scalingStrategy": "APA", "observeWindowSeconds": 30, "panicWindowSeconds": 6}));
    assert_eq!(ratio.sync_period(), 10);
    // Left out beside a short stable window: a tenth of it, rounded up.
    for (observe, panic) in [(1, 1), (10, 1), (11, 2), (30, 3), (59, 6), (60, 60), (90, 60)] {
        assert_eq!(spec(json!({"observeWindowSeconds": observe})).panic_window(), panic);
    }
    assert!(spec(json!({"paused": true})).is_passive() && spec(json!({"mode": "Recommend"})).is_passive());
}

#[test]
fn a_target_is_compared_with_what_the_metric_is() {
    let source = |patch: Value| -> MetricSource {
        let mut source = json!({"metricSourceType": "pod", "targetMetric": "m", "targetValue": "1"});
        source.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        serde_json::from_value(source).unwrap()
    };
    assert_eq!(source(json!({})).effective_target_type(), TargetType::AverageValue);
    assert_eq!(source(json!({"quantile": "0.99"})).effective_target_type(), TargetType::Value);
    assert_eq!(source(json!({"function": "Mean"})).effective_target_type(), TargetType::Value);
    let asked = source(json!({"function": "Mean", "targetType": "AverageValue"}));
    assert_eq!(asked.effective_target_type(), TargetType::AverageValue);
    assert_eq!(source(json!({"quantile": ".5"})).quantile_value(), Some(0.5));
    assert_eq!(source(json!({"quantile": "1.1"})).quantile_value(), None);
}
