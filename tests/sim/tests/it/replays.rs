//! Recorded loads, replayed.

use neonvm_core_pod_autoscaler::{Finite, Settings};
use neonvm_sim::replay::{Error, Outcome, Plan, Point, Rule, Trace, TraceError, replay};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The settings of an autoscaler with these fields in its spec and these annotations.
fn settings(spec: &Value, annotations: &[(&str, &str)]) -> Settings {
    let mut object = json!({
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": "pa", "namespace": "ns", "annotations": {}},
        "spec": {
            "minReplicas": 1, "maxReplicas": 1000, "panicWindowSeconds": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metricsSources": [{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "10"}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    for (key, value) in annotations {
        object["metadata"]["annotations"][format!("autoscaling.aibrix.ai/{key}")] = json!(value);
    }
    Settings::from_object(&serde_json::from_value(object).unwrap()).unwrap().0
}

fn trace(points: &[(u32, f64)]) -> Trace {
    let point = |(second, load): &(u32, f64)| Point { second: *second, loads: vec![Finite::new(*load)] };
    Trace::new(points.iter().map(point).collect()).unwrap()
}

fn plan(replicas: i32) -> Plan {
    let start = "2026-08-03T12:00:00Z".parse().unwrap();
    Plan { start, replicas, startup: 30, outages: Vec::new() }
}

fn run(spec: &Value, trace: &Trace, plan: &Plan) -> Outcome {
    let quick = [("scale-down-cooldown-window", "60s")];
    replay(&settings(spec, &quick), trace, plan).unwrap()
}

fn windows(strategy: &str) -> Value {
    json!({"scalingStrategy": strategy, "observeWindowSeconds": 60, "panicWindowSeconds": 10})
}

/// Of the decision at that second or the last one before.
fn at(outcome: &Outcome, second: u32) -> (i32, i32) {
    let row = outcome.rows.iter().rev().find(|row| row.second <= second).unwrap();
    (row.desired, row.ready)
}

#[test]
fn replicas_follow_the_load_and_pods_take_their_time() {
    for strategy in ["KPA", "APA"] {
        let outcome =
            run(&windows(strategy), &trace(&[(0, 20.0), (600, 100.0), (1800, 20.0), (3600, 0.0)]), &plan(2));
        assert_eq!(at(&outcome, 590), (2, 2), "{strategy}");
        assert_eq!(at(&outcome, 1700), (10, 10), "{strategy}");
        assert_eq!(at(&outcome, 3590), (2, 2), "{strategy}");
        assert_eq!(outcome.broken, [], "{strategy}");
        let summary = outcome.summary;
        assert_eq!((summary.most, summary.fewest, summary.flaps), (10, 2, 0), "{strategy}");
        // Until the first new pods are ready the load is too much, and not much longer than a few steps.
        assert!((30..400).contains(&summary.above_target_seconds), "{strategy}: {summary:?}");
        assert!(outcome.rows.iter().any(|row| row.ready < row.replicas), "{strategy}");
    }
}

#[test]
fn pods_are_counted_by_the_second() {
    let outcome = run(&windows("APA"), &trace(&[(0, 30.0), (100, 0.0)]), &plan(3));
    assert_eq!((outcome.summary.seconds, outcome.summary.pod_seconds), (100, 300));
    assert_eq!((outcome.summary.above_target_seconds, outcome.summary.changes), (0, 0));
    assert_eq!(outcome.summary.decisions, 10);
}

#[test]
fn an_outage_changes_nothing() {
    let outages = std::iter::once(600..1500).collect();
    let plan = Plan { outages, ..plan(10) };
    let outcome = run(&windows("KPA"), &trace(&[(0, 100.0), (650, 10.0), (3000, 0.0)]), &plan);
    let hidden = outcome.rows.iter().filter(|row| (600..1500).contains(&row.second));
    assert!(hidden.clone().count() > 50 && hidden.clone().all(|row| row.missing == 1 && row.desired == 10));
    assert_eq!(outcome.summary.blind_decisions, hidden.count() as u64);
    assert_eq!(at(&outcome, 2990).0, 1);
    assert!(outcome.checked[&Rule::MissingTakesNothing] > 50 && outcome.broken.is_empty());
}

#[test]
fn a_whole_load_wakes_from_zero() {
    let spec = json!({
        "scalingStrategy": "APA", "minReplicas": 0, "observeWindowSeconds": 60,
        "metricsSources": [{"metricSourceType": "external", "targetMetric": "m", "targetValue": "10"}],
    });
    let outcome = run(
        &spec,
        &trace(&[(0, 0.0), (300, 35.0), (900, 0.0), (2400, 0.0)]),
        &Plan { startup: 5, ..plan(0) },
    );
    assert_eq!((at(&outcome, 290).0, at(&outcome, 890).0, at(&outcome, 2390).0), (0, 4, 0));
    assert_eq!((outcome.summary.fewest, outcome.broken.len()), (0, 0));
}

#[test]
fn what_does_not_fit_is_refused() {
    let two = Trace::new(vec![
        Point { second: 0, loads: vec![None, None] },
        Point { second: 10, loads: vec![None, None] },
    ])
    .unwrap();
    let settings = settings(&windows("APA"), &[]);
    assert_eq!(replay(&settings, &two, &plan(1)), Err(Error::Loads { trace: 2, object: 1 }));
    let one = trace(&[(0, 1.0), (10, 1.0)]);
    assert_eq!(replay(&settings, &one, &plan(-1)), Err(Error::Pods(-1)));
    let bad = |points: &[(u32, f64)]| {
        let point = |(second, load): &(u32, f64)| Point { second: *second, loads: vec![Finite::new(*load)] };
        Trace::new(points.iter().map(point).collect()).unwrap_err()
    };
    assert_eq!(bad(&[(0, 1.0)]), TraceError::Empty);
    assert_eq!(bad(&[(1, 1.0), (2, 1.0)]), TraceError::Start);
    assert_eq!(bad(&[(0, 1.0), (5, 1.0), (5, 1.0)]), TraceError::Order(3));
    assert_eq!(bad(&[(0, 1.0), (5, -1.0)]), TraceError::Negative(2));
    assert_eq!(bad(&[(0, 1.0), (4_000_000_000, 1.0)]), TraceError::Long(2));
}

proptest! {
    /// Whatever the load does, no rule is broken, and the same run comes out again.
    #[test]
    fn no_load_breaks_a_rule(
        strategy in prop_oneof![Just("KPA"), Just("APA"), Just("HPA")],
        steps in prop::collection::vec((1_u32..200, prop::option::of(0.0_f64..500.0)), 2..20),
        outage in (0_u32..2000, 0_u32..600),
        (replicas, startup) in (0_i32..60, 0_u32..120),
        (min, more) in (0_i32..5, 1_i32..40),
    ) {
        let mut second = 0;
        let mut points = Vec::new();
        for (wait, load) in steps {
            points.push(Point { second, loads: vec![load.and_then(Finite::new)] });
            second += wait;
        }
        let trace = Trace::new(points).unwrap();
        let mut spec = windows(strategy);
        spec["minReplicas"] = json!(min);
        spec["maxReplicas"] = json!(min + more);
        let outages = std::iter::once(outage.0..outage.0 + outage.1).collect();
        let plan = Plan { outages, startup, ..plan(replicas) };
        let settings = settings(&spec, &[("scale-down-cooldown-window", "30s")]);
        let outcome = replay(&settings, &trace, &plan).unwrap();
        prop_assert_eq!(&outcome.broken, &[]);
        prop_assert_eq!(replay(&settings, &trace, &plan).unwrap(), outcome);
    }
}
