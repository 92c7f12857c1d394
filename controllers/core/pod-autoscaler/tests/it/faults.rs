//! Outages, restarts, nonsense: what is missing never takes a replica away.

use jiff::ToSpan;
use neonvm_core_pod_autoscaler::{Finite, Limit, Memory, Missing, MissingReason, Observed, Reason, Settings};
use serde_json::json;

use crate::world::{FREE, World, annotated, external, object, settings};

fn outage() -> Observed {
    Observed::Missing(Missing::new(MissingReason::Unreachable, "connection refused"))
}

#[test]
fn an_outage_changes_nothing_while_it_lasts_and_nothing_right_after_it() {
    let spec = json!({"observeWindowSeconds": 60, "panicWindowSeconds": 20});
    for strategy in ["APA", "KPA"] {
        let mut spec = spec.clone();
        spec["scalingStrategy"] = json!(strategy);
        let mut world = World::filled(&annotated(&spec, &FREE), 80.0);
        for _ in 0..8 {
            assert_eq!(world.wait(10).mean(8, 10.0).desired, 8);
        }
        for _ in 0..30 {
            let decision = world.wait(10).see(8, 8, vec![outage()]);
            assert_eq!((decision.desired, decision.reason), (8, Reason::MetricsMissing), "{strategy}");
            assert_eq!(decision.limit, Some(Limit::MetricMissing));
        }
        // The window is empty now; one low value is not the whole story.
        for _ in 0..2 {
            let decision = world.wait(10).mean(8, 1.0);
            assert_eq!(
                (decision.desired, decision.metrics[0].limit),
                (8, Some(Limit::WarmingUp)),
                "{strategy}"
            );
        }
        world.wait(10).mean(8, 1.0);
        assert_eq!(world.wait(10).mean(8, 1.0).desired, 1, "{strategy}");
    }
}

#[test]
fn one_missing_metric_blocks_the_way_down_and_not_the_way_up() {
    let source =
        |name: &str| json!({"metricSourceType": "custom", "targetMetric": name, "targetValue": "10"});
    let object = annotated(&json!({"metricsSources": [source("a"), source("b")]}), &FREE);
    let decide = |value: f64| World::warm(&object).see(4, 4, vec![outage(), Observed::pods(&[value; 4])]);
    let down = decide(1.0);
    assert_eq!((down.desired, down.limit), (4, Some(Limit::MetricMissing)));
    assert_eq!(decide(20.0).desired, 8);
    assert_eq!(down.missing().map(|(metric, _)| metric.name.as_str()).collect::<Vec<_>>(), ["a"]);
    // A caller that forgets a metric has not read it.
    let short = World::warm(&object).see(4, 4, vec![Observed::pods(&[1.0; 4])]);
    assert_eq!(short.desired, 4);
    assert_eq!(short.metrics[1].reading.as_ref().unwrap_err().reason, MissingReason::NotRead);
}

#[test]
fn numbers_that_are_none_are_missing() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut world = World::warm(&object(&external("10")));
        assert_eq!(world.whole(4, value).reason, Reason::MetricsMissing);
        let mut world = World::warm(&object(&json!({})));
        assert_eq!(world.mean(4, value).reason, Reason::MetricsMissing);
    }
    // Upstream converts before it limits, and a huge load wraps to the smallest number of replicas.
    let mut world = World::warm(&object(&external("0.000001")));
    assert_eq!(world.whole(4, 1e300).desired, 8);
}

#[test]
fn a_restart_with_its_memory_goes_on_and_without_it_holds() {
    let spec = json!({"observeWindowSeconds": 60, "panicWindowSeconds": 20});
    let mut world = World::filled(&annotated(&spec, &FREE), 80.0);
    let stored = serde_json::to_string(&world.memory).unwrap();
    let restored: Memory = serde_json::from_str(&stored).unwrap();
    assert_eq!(restored, world.memory);
    let mut again = world.clone();
    again.memory = restored;
    assert_eq!(world.wait(10).mean(8, 1.0), again.wait(10).mean(8, 1.0));
    let mut lost = world.clone();
    lost.memory = Memory::default();
    for _ in 0..6 {
        assert_eq!(lost.mean(8, 1.0).desired, 8);
        lost.wait(10);
    }
    // A memory that slept for longer than the window is none.
    let mut slept = world.clone();
    slept.wait(3600);
    assert_eq!(slept.mean(8, 1.0).desired, 8);
    assert_eq!(slept.memory.metrics[0].since, Some(slept.now));
    // Memory that is nearly empty is read as such.
    assert_eq!(serde_json::from_str::<Memory>("{}").unwrap(), Memory::default());
}

#[test]
fn time_that_goes_back_is_the_latest_time() {
    let mut world = World::warm(&object(&json!({})));
    let first = world.mean(4, 10.0);
    world.now = world.now.checked_sub(1.hours()).unwrap();
    let second = world.mean(4, 10.0);
    assert_eq!((first.at, first.next), (second.at, second.next));
}

#[test]
fn metrics_keep_their_memory_when_the_list_changes() {
    let source = |name: &str, target: &str| json!({"metricSourceType": "custom", "targetMetric": name, "targetValue": target});
    let mut world =
        World::filled(&object(&json!({"metricsSources": [source("a", "10"), source("b", "10")]})), 7.0);
    let kept = world.memory.metrics[0].window.clone();
    // Another order, another target, one more.
    let sources = json!([source("c", "1"), source("b", "10"), source("a", "20")]);
    world.settings = settings(&object(&json!({"metricsSources": sources})));
    let missing = vec![outage(), outage(), outage()];
    let _ = world.see(4, 4, missing);
    assert_eq!(world.memory.metrics[2].window, kept);
    assert_eq!(world.memory.metrics.len(), 3);
}

/// Upstream with a load of a hundred or five and four pods: a rate up of 0 scales to one pod, a rate down of 0.5 scales
/// *up* on low load, rates of 1 freeze, a negative time holds nothing back. Each is refused here, with all others.
#[test]
fn rates_that_cannot_work_are_refused_all_at_once() {
    let bad = [
        ("max-scale-up-rate", "0"),
        ("max-scale-down-rate", "0.5"),
        ("scale-down-cooldown-window", "-5s"),
        ("panic-threshold", "Inf"),
    ];
    let faults = Settings::from_object(&annotated(&json!({}), &bad)).unwrap_err();
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert_eq!(
        Settings::from_object(&annotated(&json!({}), &[("max-scale-up-rate", "1")])).unwrap_err().len(),
        1
    );
    let faults = Settings::from_object(&object(&json!({
        "maxReplicas": 0,
        "schedules": [{"name": "a", "timezone": "Nowhere/Else", "startTime": "09:00", "endTime": "10:00", "minReplicas": 0}],
        "metricsSources": [{"metricSourceType": "pod", "protocolType": "http", "port": "1", "path": "/",
            "targetMetric": "a{b", "targetValue": "0"}],
    })))
    .unwrap_err();
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    for path in [
        "spec.maxReplicas",
        "spec.metricsSources[0].targetValue",
        "spec.metricsSources[0].targetMetric",
        "spec.schedules[0].timezone",
    ] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
    }
}

#[test]
fn negative_loads_are_no_load() {
    let mut world = World::warm(&annotated(&external("10"), &FREE));
    let decision = world.whole(4, -50.0);
    assert_eq!((decision.desired, decision.metrics[0].load), (1, Finite::new(-50.0)));
}
