//! The `HorizontalPodAutoscaler` that stands for an object.

use neonvm_core_pod_autoscaler::hpa_object::{build, name};
use serde_json::{Value, json};

use crate::world::{annotated, merge, start};

fn wrapped(spec: Value, annotations: &[(&str, &str)]) -> Value {
    let mut all = json!({"scalingStrategy": "HPA", "minReplicas": 1, "maxReplicas": 5,
        "observeWindowSeconds": null, "panicWindowSeconds": null});
    merge(&mut all, &spec);
    serde_json::to_value(build(&annotated(&all, annotations), start()).unwrap()).unwrap()
}

fn source(kind: &str, metric: &str, value: &str) -> Value {
    json!({"metricSourceType": kind, "targetMetric": metric, "targetValue": value})
}

#[test]
fn upstream_vector() {
    let mut pod = source("pod", "gpu_cache_usage_perc", "50");
    merge(&mut pod, &json!({"protocolType": "http", "port": "8000", "path": "metrics"}));
    let sources = json!([pod, source("resource", "cpu", "30"), source("resource", "memory", "128")]);
    let hpa = wrapped(json!({"metricsSources": sources}), &[]);
    let expected = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "pa-hpa", "namespace": "ns", "ownerReferences": [{
            "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "name": "pa", "uid": "u-pa",
            "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {
            "minReplicas": 1, "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "gpu_cache_usage_perc"},
                    "target": {"type": "AverageValue", "averageValue": "50"}}},
                {"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 30}}},
                {"type": "Resource", "resource": {"name": "memory",
                    "target": {"type": "AverageValue", "averageValue": "128Mi"}}},
            ],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 60}]},
                "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min",
                    "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]},
            },
        },
    });
    assert_eq!(hpa, expected);
}

#[test]
fn bounds_in_force_and_zero() {
    let window = json!([{"name": "noon", "startTime": "11:00", "endTime": "13:00", "minReplicas": 3, "maxReplicas": 12}]);
    let spec = wrapped(json!({"schedules": window}), &[])["spec"].clone();
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(3), &json!(12)));
    assert_eq!(wrapped(json!({"minReplicas": 0}), &[])["spec"].get("minReplicas"), None);
    let spec = wrapped(json!({"minReplicas": 2, "maxReplicas": 10}), &[])["spec"].clone();
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(2), &json!(10)));
}

/// Upstream cuts off: 1.15 becomes 14 %. Rates of 1 and below are refused before they get here.
#[test]
fn rates_are_rounded() {
    for (rate, up, down) in [
        ("1.1", 10, 9),
        ("1.15", 15, 13),
        ("1.5", 50, 33),
        ("2", 100, 50),
        ("2.5", 150, 60),
        ("3", 200, 67),
        ("4", 300, 75),
        ("10", 900, 90),
        ("1.001", 1, 1),
    ] {
        let behavior = wrapped(json!({}), &[("max-scale-up-rate", rate), ("max-scale-down-rate", rate)])["spec"]["behavior"].clone();
        let value = |side: &str| behavior[side]["policies"][0]["value"].clone();
        assert_eq!((value("scaleUp"), value("scaleDown")), (json!(up), json!(down)), "{rate}");
    }
}

#[test]
fn fractions_sources_selectors_and_tolerances_survive() {
    let metric =
        |source: Value| wrapped(json!({"metricsSources": [source]}), &[])["spec"]["metrics"][0].clone();
    let half = metric(source("custom", "load", "0.5"));
    assert_eq!(half["pods"]["target"]["averageValue"], "500m");
    let mut external = source("external", "queue", "12.25");
    external["selector"] = json!({"matchLabels": {"queue": "a"}});
    let expected = json!({"type": "External", "external": {
        "metric": {"name": "queue", "selector": {"matchLabels": {"queue": "a"}}},
        "target": {"type": "AverageValue", "averageValue": "12250m"}}});
    assert_eq!(metric(external.clone()), expected);
    external["targetType"] = json!("Value");
    assert_eq!(metric(external)["external"]["target"], json!({"type": "Value", "value": "12250m"}));
    let mut cpu = source("resource", "cpu", "250");
    assert_eq!(metric(cpu.clone())["resource"]["target"]["averageUtilization"], 250);
    cpu["targetType"] = json!("AverageValue");
    assert_eq!(metric(cpu)["resource"]["target"]["averageValue"], "250m");
    let memory = metric(source("resource", "memory", "0.5"));
    assert_eq!(memory["resource"]["target"]["averageValue"], "524288");
    let behavior = wrapped(json!({}), &[("scale-up-tolerance", "0.05")])["spec"]["behavior"].clone();
    assert_eq!(behavior["scaleUp"]["tolerance"], "50m");
    assert_eq!(behavior["scaleDown"].get("tolerance"), None);
}

#[test]
fn a_paused_object_only_shows_what_it_would_do() {
    for spec in [json!({"paused": true}), json!({"mode": "Recommend"})] {
        let behavior = wrapped(spec, &[])["spec"]["behavior"].clone();
        let policy = |side: &str| behavior[side]["selectPolicy"].clone();
        assert_eq!((policy("scaleUp"), policy("scaleDown")), (json!("Disabled"), json!("Disabled")));
    }
}

#[test]
fn names_and_copies() {
    assert_eq!(name("a"), "a-hpa");
    let (long, other) = (format!("{}x", "a".repeat(252)), format!("{}y", "a".repeat(252)));
    assert!(name(&long).len() <= 253 && name(&long).ends_with("-hpa"));
    assert_ne!(name(&long), name(&other));
    let mut object = annotated(&json!({"scalingStrategy": "HPA", "observeWindowSeconds": 180}), &[]);
    object.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    object.metadata.annotations = Some(
        [
            ("note".to_owned(), "b".to_owned()),
            ("kubectl.kubernetes.io/last-applied-configuration".to_owned(), "{}".to_owned()),
        ]
        .into(),
    );
    let hpa = build(&object, start()).unwrap();
    assert_eq!(hpa.metadata.labels, object.metadata.labels);
    assert_eq!(hpa.metadata.annotations, Some([("note".to_owned(), "b".to_owned())].into()));
}
