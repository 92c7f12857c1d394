//! The ladder of one decision: bounds, zero, schedules, modes, forecasts, metrics of all kinds.

use neonvm_core_pod_autoscaler::{
    Decision, Finite, Limit, Measure, MissingReason, Observed, PodSample, Reason, explain::explain,
};
use serde_json::{Value, json};

use crate::world::{FREE, World, annotated, external, merge, object};

fn last(decision: &Decision) -> (i32, Reason, Option<Limit>) {
    (decision.desired, decision.reason, decision.limit)
}

#[test]
fn bounds_come_first_and_last() {
    let world = || World::warm(&object(&json!({"minReplicas": 2, "maxReplicas": 5})));
    assert_eq!(last(&world().mean(9, 0.0)), (5, Reason::AboveMaximum, Some(Limit::TooManyReplicas)));
    assert_eq!(last(&world().mean(1, 0.0)), (2, Reason::BelowMinimum, Some(Limit::TooFewReplicas)));
    assert_eq!(last(&world().mean(4, 100.0)), (5, Reason::AboveTarget, Some(Limit::TooManyReplicas)));
    // Whatever is missing, and whatever was recommended lately.
    let missing = vec![Observed::Missing(neonvm_core_pod_autoscaler::Missing::new(
        MissingReason::TimedOut,
        "no answer",
    ))];
    assert_eq!(world().see(9, 9, missing).desired, 5);
}

#[test]
fn zero_by_hand_stays_zero() {
    let mut world = World::warm(&object(&external("10")));
    let decision = world.see(0, 0, vec![Observed::total(500.0)]);
    assert_eq!(last(&decision), (0, Reason::DisabledAtZero, None));
}

fn queue(min: i32) -> Value {
    let mut spec = external("10");
    merge(&mut spec, &json!({"minReplicas": min}));
    spec
}

#[test]
fn zero_needs_a_whole_idle_window_and_leave() {
    let free = |annotation: Option<&'static str>, spec: Value| {
        let mut all: Vec<(&str, &str)> = FREE.to_vec();
        all.extend(annotation.map(|value| ("scale-to-zero", value)));
        annotated(&spec, &all)
    };
    let idle = |object| World::warm(&object).see(1, 1, vec![Observed::total(0.0)]);
    assert_eq!(idle(free(None, queue(0))).desired, 0);
    assert_eq!(last(&idle(free(Some("false"), queue(0)))), (1, Reason::Stable, Some(Limit::NotIdle)));
    // Without a lower bound in the object the annotation is one.
    let mut unbounded = queue(0);
    unbounded["minReplicas"] = Value::Null;
    assert_eq!(idle(free(Some("true"), unbounded.clone())).desired, 0);
    assert_eq!(idle(free(None, unbounded)).desired, 1);
    // A controller that has just started has no history yet.
    let mut world = World::fresh(&free(None, queue(0)));
    assert_eq!(world.see(1, 1, vec![Observed::total(0.0)]).desired, 1);
    // A little load within the window keeps the last replica.
    let mut world = World::warm(&free(None, queue(0)));
    assert_eq!(world.see(1, 1, vec![Observed::total(0.1)]).desired, 1);
    assert_eq!(world.wait(10).see(1, 1, vec![Observed::total(0.0)]).desired, 1);
    assert_eq!(world.wait(11).see(1, 1, vec![Observed::total(0.0)]).desired, 0);
}

#[test]
fn a_load_outside_of_the_pods_wakes_them() {
    for strategy in ["APA", "KPA"] {
        let mut spec = queue(0);
        merge(&mut spec, &json!({"scalingStrategy": strategy}));
        let mut world = World::warm(&annotated(&spec, &[("activation-scale", "2")]));
        assert_eq!(world.see(0, 0, vec![Observed::total(0.0)]).desired, 0, "{strategy}");
        // Upstream's ratio rule multiplies zero by something and stays at zero.
        assert_eq!(world.wait(11).see(0, 0, vec![Observed::total(15.0)]).desired, 2, "{strategy}");
        let little = world.wait(22).see(0, 0, vec![Observed::total(5.0)]);
        let expected = (2, Some(Limit::ActivationScale));
        assert_eq!((little.desired, little.metrics[0].limit), expected, "{strategy}");
    }
    // A metric of pods cannot.
    let mut world = World::warm(&object(&json!({"minReplicas": 0})));
    let decision = world.see(0, 0, vec![Observed::pods(&[])]);
    assert_eq!(last(&decision), (0, Reason::MetricsMissing, Some(Limit::MetricMissing)));
}

/// Noon in UTC is within the window.
fn scheduled(bounds: Value) -> Value {
    let mut window = json!({"name": "noon", "startTime": "11:00", "endTime": "13:00"});
    merge(&mut window, &bounds);
    json!({"schedules": [window], "minReplicas": 1, "maxReplicas": 10})
}

#[test]
fn a_schedule_wakes_only_with_its_own_lower_bound() {
    let decide =
        |bounds: Value| World::warm(&object(&scheduled(bounds))).see(0, 0, vec![Observed::pods(&[])]);
    let woken = decide(json!({"minReplicas": 4}));
    assert_eq!((woken.desired, woken.bounds.schedule.as_deref()), (4, Some("noon")));
    assert_eq!(decide(json!({"maxReplicas": 12})).desired, 0);
}

#[test]
fn the_next_look_is_after_the_period_or_when_bounds_change() {
    let mut world = World::warm(&object(&scheduled(json!({"minReplicas": 4}))));
    assert_eq!(world.mean(4, 10.0).next.duration_since(world.now).as_secs(), 10);
    world.wait(3600 - 3);
    world.memory.latest = Some(world.now);
    assert_eq!(world.mean(4, 10.0).next.duration_since(world.now).as_secs(), 3);
}

#[test]
fn nothing_is_written_when_paused_or_asked_for_advice() {
    let mut world = World::warm(&object(&json!({"paused": true})));
    let decision = world.mean(2, 50.0);
    assert_eq!((decision.desired, decision.recommendation, decision.scales()), (2, 4, false));
    let mut world = World::warm(&object(&json!({"mode": "Recommend"})));
    let decision = world.mean(2, 50.0);
    assert_eq!((decision.desired, decision.recommendation), (2, 4));
    let text = explain(&decision, &world.settings);
    assert!(text.last().unwrap().message.contains("the recommendation is 4"), "{text:?}");
}

fn slo(patch: Value) -> Value {
    let mut source = json!({"metricSourceType": "pod", "protocolType": "http", "port": "80", "path": "/metrics",
        "targetMetric": "latency_seconds", "quantile": "0.5", "targetValue": "0.2"});
    merge(&mut source, &patch);
    json!({"metricsSources": [source]})
}

fn latency(buckets: &[(f64, f64)]) -> Result<Measure, neonvm_core_pod_autoscaler::Missing> {
    let mut histogram = neonvm_core_pod_autoscaler::histogram::Histogram::default();
    for (bound, count) in buckets {
        histogram.add_bucket(Finite::new(*bound), *count);
        histogram.count = histogram.count.max(*count);
    }
    Ok(Measure::Histogram(histogram))
}

fn pod(uid: &str, measure: Result<Measure, neonvm_core_pod_autoscaler::Missing>) -> PodSample {
    PodSample { uid: uid.to_owned(), name: String::new(), ready: true, measure, request: None }
}

#[test]
fn a_latency_target_follows_all_requests_together() {
    // One pod serves 90 requests within 0.1 s, the other 10 within 0.9 s.
    let pods = || {
        vec![Observed::Pods(vec![
            pod("a", latency(&[(0.1, 90.0), (1.0, 90.0), (f64::INFINITY, 90.0)])),
            pod("b", latency(&[(0.1, 0.0), (1.0, 10.0), (f64::INFINITY, 10.0)])),
        ])]
    };
    let value = |patch| {
        let mut world = World::warm(&annotated(&slo(patch), &FREE));
        let decision = world.see(2, 2, pods());
        (decision.metrics[0].reading.as_ref().unwrap().value.get(), decision.desired)
    };
    let (median, replicas) = value(json!({}));
    assert!((median - 0.1 * 50.0 / 90.0).abs() < 1e-9);
    assert_eq!(replicas, 1);
    // The slowest pod alone: 0.55 s is two and three quarters of the target.
    let (slowest, replicas) = value(json!({"aggregation": "Maximum"}));
    assert!((slowest - 0.55).abs() < 1e-9);
    assert_eq!(replicas, 6);
    // No request is no slow request.
    let mut world = World::warm(&annotated(&slo(json!({})), &FREE));
    let quiet = vec![Observed::Pods(vec![pod("a", latency(&[(0.1, 0.0), (f64::INFINITY, 0.0)]))])];
    assert_eq!(world.see(1, 1, quiet).metrics[0].load, Some(Finite::ZERO));
}

#[test]
fn ready_pods_without_a_value_are_named_with_the_reason() {
    let absent = |name: &str, ready: bool| {
        let missing = neonvm_core_pod_autoscaler::Missing::new(MissingReason::Unreachable, "status 404");
        PodSample { name: name.to_owned(), ready, ..pod("uid", Err(missing)) }
    };
    let good = pod("a", latency(&[(0.1, 9.0), (f64::INFINITY, 9.0)]));
    let mut pods = vec![good, absent("starts", false)];
    pods.extend((0..12).map(|number| absent(&format!("web-{number}"), true)));
    let mut world = World::warm(&annotated(&slo(json!({})), &FREE));
    let decision = world.see(14, 13, vec![Observed::Pods(pods)]);
    let named = &decision.metrics[0].without_value;
    assert_eq!(named.len(), 10);
    assert_eq!((named[0].0.as_str(), named[0].1.to_string().as_str()), ("web-0", "Unreachable: status 404"));
}

#[test]
fn utilization_is_percent_of_the_request() {
    let source = json!([{"metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "50",
        "targetType": "Utilization"}]);
    let mut world = World::warm(&annotated(&json!({"metricsSources": source}), &FREE));
    let sample = |uid: &str, used: f64, request: Option<f64>| PodSample {
        request: request.and_then(Finite::new),
        ..pod(uid, Ok(Measure::Value(Finite::new(used).unwrap())))
    };
    let pods = vec![Observed::Pods(vec![sample("a", 900.0, Some(1000.0)), sample("b", 100.0, Some(1000.0))])];
    let decision = world.see(2, 2, pods);
    let reading = decision.metrics[0].reading.as_ref().unwrap();
    assert_eq!((reading.utilization, decision.desired), (Finite::new(50.0), 2));
    let pods = vec![Observed::Pods(vec![sample("a", 900.0, None), sample("b", 100.0, None)])];
    let decision = world.wait(11).see(2, 2, pods);
    assert_eq!(decision.metrics[0].reading.as_ref().unwrap_err().reason, MissingReason::NoRequest);
    assert_eq!(decision.desired, 2);
}

#[test]
fn the_busiest_pods_can_count() {
    let source = |aggregation: &str| {
        json!({"metricsSources": [{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "10",
            "aggregation": aggregation}]})
    };
    let values: Vec<f64> = (1..=10).map(f64::from).collect();
    for (aggregation, expected) in [("Average", 5.5), ("Maximum", 10.0), ("P90", 9.0)] {
        let mut world = World::warm(&object(&source(aggregation)));
        let decision = world.see(10, 10, vec![Observed::pods(&values)]);
        assert_eq!(decision.metrics[0].reading.as_ref().unwrap().value, Finite::new(expected).unwrap());
    }
}

#[test]
fn a_rising_load_is_met_early_and_a_falling_one_is_not_believed_early() {
    let run = |forecast: Value, slope: f64| {
        let mut spec = external("10");
        merge(
            &mut spec,
            &json!({"observeWindowSeconds": 60, "panicWindowSeconds": 10, "forecast": forecast}),
        );
        let mut world = World::warm(&annotated(&spec, &FREE));
        let mut decision = None;
        for step in 0..10 {
            decision = Some(world.wait(10).whole(10, 100.0 + slope * f64::from(step * 10)));
        }
        decision.unwrap()
    };
    let rising = run(json!({"horizonSeconds": 60}), 1.0);
    // 190 now, 250 in a minute; the window alone gives 160.
    assert_eq!((rising.desired, rising.reason), (25, Reason::ForecastAboveTarget));
    assert_eq!(run(Value::Null, 1.0).desired, 16);
    let falling = run(json!({"horizonSeconds": 60}), -1.0);
    assert_eq!(falling.desired, run(Value::Null, -1.0).desired);
    assert!(falling.metrics[0].forecast.is_some());
}

#[test]
fn an_explanation_has_every_number() {
    let mut world = World::warm(&annotated(&json!({"maxReplicas": 3}), &[("max-scale-up-rate", "3")]));
    let decision = world.mean(2, 40.0);
    let text: Vec<String> = explain(&decision, &world.settings)
        .iter()
        .map(|step| format!("{} {} {}: {}", step.step, step.metric, step.replicas, step.message))
        .collect();
    let expected = [
        "Observed  2: 2 ordered, 2 ready; bounds 1 to 3; one step goes from 1 to 6",
        concat!(
            "Metric m 6: value 40 of 2/2 pods, target 10 for each pod; whole load 80, over 10 s 80; asks for 8; ",
            "held back by the largest step up"
        ),
        "Largest  6: the metric that asks for most counts; held back by the largest step up",
        "Stabilization  6: up over 0 s, down over 300 s",
        "Bounds  3: 1 to 3; held at the upper bound",
        "Result  3: a metric is above its target",
    ];
    assert_eq!(text, expected);
}
