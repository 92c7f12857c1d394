//! The ratio rule: upstream's numbers, and the ones it gets wrong.

use neonvm_core_pod_autoscaler::{
    Limit, Observed,
    apa::{self, load_of_average},
    want::{Fleet, Rates, Tolerance},
};
use serde_json::json;

use crate::world::{FREE, World, annotated, external, object};

const TEN: Tolerance = Tolerance { up: 0.1, down: 0.1 };

/// Columns: replicas, average, target, rate up, rate down, answer. (With a target of 0 upstream keeps what is there; here
/// validation refuses it.)
#[test]
fn upstream_vectors() {
    for (current, value, target, up, down, expected) in [
        (2, 45.0, 30.0, 2.0, 2.0, 3),
        (2, 35.0, 30.0, 2.0, 2.0, 3),
        (2, 90.0, 30.0, 2.0, 2.0, 4),
        (2, 90.0, 30.0, 2.5, 2.0, 5),
        (6, 20.0, 30.0, 2.0, 2.0, 4),
        (6, 18.0, 30.0, 2.0, 2.0, 4),
        (6, 10.0, 30.0, 2.0, 2.0, 3),
        (6, 5.0, 30.0, 2.0, 2.5, 2),
        (2, 33.0, 30.0, 2.0, 2.0, 2),
        (2, 27.0, 30.0, 2.0, 2.0, 2),
    ] {
        let load = load_of_average(current, value, target);
        let answer = apa::replicas(&load, Fleet::all_ready(current), TEN, Rates { up, down });
        assert_eq!(answer, expected, "{current} pods at {value} of {target}");
    }
}

/// The same numbers, as pods that are read and a decision that is made.
#[test]
fn upstream_vectors_from_end_to_end() {
    for (current, value, up, down, expected) in [
        (2, 45.0, "2", "2", 3),
        (2, 90.0, "2.5", "2", 5),
        (6, 18.0, "2", "2", 4),
        (6, 5.0, "2", "2.5", 2),
        (2, 33.0, "2", "2", 2),
        (2, 27.0, "2", "2", 2),
    ] {
        let rates =
            [("max-scale-up-rate", up), ("max-scale-down-rate", down), ("scale-down-cooldown-window", "0s")];
        let source = json!([{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "30"}]);
        let mut world = World::warm(&annotated(&json!({"metricsSources": source}), &rates));
        assert_eq!(world.mean(current, value).desired, expected, "{current} pods at {value}");
    }
}

/// A mean of 0.9 with a target of 0.5. Upstream's KPA takes the mean of one pod for the whole load and requires two
/// pods, whatever there are; the ratio rule always had it right.
#[test]
fn overload_asks_for_more_with_both_strategies() {
    for strategy in ["APA", "KPA"] {
        for (current, expected) in [(2, 4), (3, 6), (5, 9), (8, 15)] {
            let source = json!([{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "0.5"}]);
            let spec = json!({"scalingStrategy": strategy, "metricsSources": source});
            let mut world = World::warm(&object(&spec));
            assert_eq!(world.mean(current, 0.9).desired, expected, "{strategy} {current}");
        }
    }
}

/// A constant whole load of 100 at 40 for each pod needs 3 pods. Upstream multiplies it by the replicas each time:
/// 1, 3, 8, 20.
#[test]
fn a_constant_whole_load_does_not_run_away() {
    let mut spec = external("40");
    spec["maxReplicas"] = json!(20);
    let mut world = World::warm(&annotated(&spec, &[("max-scale-up-rate", "4")]));
    let mut current = 1;
    for _ in 0..3 {
        current = world.wait(11).whole(current, 100.0).desired;
        assert_eq!(current, 3);
    }
}

/// With upstream's averages of one pod's value, each step up multiplies values from before it. Sixty in all at ten for
/// each pod needs six pods, however long the window.
#[test]
fn the_window_does_not_overshoot_while_pods_are_added() {
    let mut world = World::warm(&object(&json!({"observeWindowSeconds": 180, "panicWindowSeconds": 60})));
    let mut current = 2;
    let mut seen = Vec::new();
    for _ in 0..6 {
        current = world.wait(10).mean(current, 60.0 / f64::from(current)).desired;
        seen.push(current);
    }
    assert_eq!(seen, [4, 6, 6, 6, 6, 6]);
}

/// Upstream: one replica, at most six, rate 4, all values 70. A target of 50 gives 2; targets 50 and 30 give the larger
/// of 2 and 3.
#[test]
fn the_largest_of_several_metrics_counts() {
    let one = json!({"metricSourceType": "custom", "targetMetric": "a", "targetValue": "50"});
    let two = json!({"metricSourceType": "custom", "targetMetric": "b", "targetValue": "30"});
    let spec = |sources| json!({"maxReplicas": 6, "metricsSources": sources});
    let rate = [("max-scale-up-rate", "4")];
    let mut world = World::warm(&annotated(&spec(json!([one])), &rate));
    assert_eq!(world.mean(1, 70.0).desired, 2);
    let mut world = World::warm(&annotated(&spec(json!([one, two])), &rate));
    let seventy = || Observed::pods(&[70.0]);
    assert_eq!(world.see(1, 1, vec![seventy(), seventy()]).desired, 3);
    // The same metric twice with two targets is two metrics; upstream mixes their windows.
    let mut same = two;
    same["targetMetric"] = json!("a");
    let mut world = World::warm(&annotated(&spec(json!([one, same])), &rate));
    assert_eq!(world.see(1, 1, vec![seventy(), seventy()]).desired, 3);
}

/// Starting pods are capacity that is ordered: two pods of four carry a load for six. Upstream doubles again each time
/// (2, 4, 8, 16) while only two are ready.
#[test]
fn pods_that_are_starting_are_waited_for() {
    let mut world = World::warm(&object(&json!({})));
    let load = || vec![Observed::pods(&[30.0, 30.0])];
    assert_eq!(world.see(2, 2, load()).desired, 4);
    for _ in 0..3 {
        let decision = world.wait(11).see(4, 2, load());
        assert_eq!((decision.desired, decision.metrics[0].limit), (4, Some(Limit::ScaleUpRate)));
    }
    assert_eq!(world.wait(11).see(4, 4, vec![Observed::pods(&[15.0; 4])]).desired, 6);
}

/// Ready pods without a value: at their target when less is required, idle when more is required.
#[test]
fn pods_without_a_value_count_for_staying() {
    let pods = |values: &[f64], missing: usize| {
        let Observed::Pods(mut pods) = Observed::pods(values) else { unreachable!() };
        for index in 0..missing {
            let mut pod = pods[0].clone();
            pod.uid = format!("silent-{index}");
            pod.measure = Err(neonvm_core_pod_autoscaler::Missing::new(
                neonvm_core_pod_autoscaler::MissingReason::TimedOut,
                "no answer within 1 s",
            ));
            pods.push(pod);
        }
        vec![Observed::Pods(pods)]
    };
    let decide =
        |current, metrics| World::warm(&annotated(&json!({}), &FREE)).see(current, current, metrics).desired;
    // Three at 3, one silent at 10: nineteen in all.
    assert_eq!(decide(4, pods(&[3.0; 3], 1)), 2);
    assert_eq!(decide(4, pods(&[3.0; 4], 0)), 2);
    assert_eq!(decide(3, pods(&[4.0; 2], 1)), 2);
    // Two at 20, two silent: forty in all can be carried by four.
    assert_eq!(decide(4, pods(&[20.0; 2], 2)), 4);
    assert_eq!(decide(4, pods(&[20.0; 4], 0)), 8);
    // Fewer than half: unknown, so no change.
    assert_eq!(decide(4, pods(&[0.0], 3)), 4);
    assert_eq!(decide(4, pods(&[90.0], 3)), 4);
}
