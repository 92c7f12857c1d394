//! The state machine: upstream's numbers, Knative's numbers.

use jiff::{Timestamp, ToSpan};
use neonvm_core_pod_autoscaler::{
    Finite,
    kpa::{KpaRecommendation, Panic, Rules},
    want::{Fleet, Load, Rates, Tolerance},
};
use serde_json::json;

use crate::world::{FREE, World, annotated, external, object, start};

fn rules(up: f64, down: f64) -> Rules {
    let (rates, tolerance) = (Rates { up, down }, Tolerance::NONE);
    Rules { rates, tolerance, threshold: 2.0, activation: 1, stable_window: 60 }
}

fn load(value: f64, target: f64) -> Load {
    Load::known(Finite::new(value).unwrap(), Finite::new(target).unwrap())
}

fn at(seconds: i64) -> Timestamp {
    start().checked_add(seconds.seconds()).unwrap()
}

struct Machine {
    panic: Panic,
    rules: Rules,
    target: f64,
}

impl Machine {
    fn calm(target: f64) -> Self {
        Self { panic: Panic::default(), rules: rules(10.0, 10.0), target }
    }

    fn step(&mut self, seconds: i64, ready: i32, stable: f64, surge: f64) -> KpaRecommendation {
        let (stable, surge) = (load(stable, self.target), load(surge, self.target));
        self.panic.step(&stable, &surge, Fleet::all_ready(ready), &self.rules, at(seconds))
    }
}

/// Columns: replicas, stable, panic, rate up, activation scale, in panic with so many, answer. Target 10, rate down 2.
#[test]
fn upstream_vectors() {
    for (current, stable, surge, up, activation, most, expected) in [
        (2, 20.0, 20.0, 2.0, 1, None, 2),
        (2, 30.0, 40.0, 2.0, 1, Some(2), 4),
        (5, 20.0, 20.0, 2.0, 1, Some(5), 5),
        (1, 0.0, 0.0, 2.0, 1, None, 0),
        (0, 15.0, 15.0, 2.0, 3, None, 3),
        (2, 100.0, 100.0, 1.5, 1, None, 3),
        (4, 5.0, 5.0, 2.0, 1, None, 2),
    ] {
        let mut panic = most.map_or_else(Panic::default, |most| Panic { since: Some(start()), most });
        let rules = Rules { activation, ..rules(up, 2.0) };
        let fleet = Fleet::all_ready(current);
        let answer = panic.step(&load(stable, 10.0), &load(surge, 10.0), fleet, &rules, at(1));
        assert_eq!(answer.replicas, expected, "{current} pods, {stable}, {surge}");
    }
}

/// Upstream's derived numbers with four pods, a target of 10 and values that are means of one pod. Corrected: the load is
/// the mean times four, panic begins at twice what the ready pods can carry (not at twice the other window), an idle
/// workload does not panic.
#[test]
fn upstream_vectors_corrected() {
    let mut rules = rules(2.0, 2.0);
    rules.tolerance = Tolerance { up: 0.1, down: 0.1 };
    for (current, stable, surge, expected, panicking) in [
        // Upstream: 4, panic. Twice the capacity is wanted: panic it is, and more pods.
        (4, 10.0, 25.0, 8, true),
        // Upstream: 4, calm, because 2 is not above 2. Knative: twice is enough.
        (4, 10.0, 20.0, 8, true),
        (4, 10.0, 20.1, 8, true),
        // Upstream: 2 and 0, in panic. No load is no surge.
        (4, 0.0, 0.0, 2, false),
        (1, 0.0, 0.0, 0, false),
        // A surge above the other window that the pods can carry is none.
        (4, 2.0, 9.0, 2, false),
    ] {
        let pods = f64::from(current);
        let (stable, surge) = (load(stable * pods, 10.0), load(surge * pods, 10.0));
        let answer = Panic::default().step(&stable, &surge, Fleet::all_ready(current), &rules, at(0));
        assert_eq!(
            (answer.replicas, answer.panicking),
            (expected, panicking),
            "{current} {stable:?} {surge:?}"
        );
    }
}

/// A whole load beside eight pods, target 100. The band is around what eight pods carry, not around one pod's target:
/// with 790 and 810 upstream changes by one; both are within a tenth of 800.
#[test]
fn tolerances_are_about_the_whole() {
    let mut rules = rules(2.0, 2.0);
    rules.tolerance = Tolerance { up: 0.1, down: 0.1 };
    for (value, expected) in
        [(100.0, 4), (89.0, 4), (111.0, 4), (250.0, 4), (790.0, 8), (810.0, 8), (890.0, 9)]
    {
        let load = load(value, 100.0);
        let answer = Panic::default().step(&load, &load, Fleet::all_ready(8), &rules, at(0));
        assert_eq!(answer.replicas, expected, "{value}");
    }
}

#[test]
fn knative_steady_load() {
    let mut machine = Machine::calm(10.0);
    assert_eq!(machine.step(0, 1, 50.0, 0.0).replicas, 5);
    assert_eq!(Machine::calm(10.0).step(0, 1, 100.0, 0.0).replicas, 10);
    let mut machine = Machine::calm(10.0);
    assert_eq!(machine.step(0, 8, 100.0, 0.0).replicas, 10);
    assert_eq!(machine.step(1, 8, 50.0, 0.0).replicas, 5);
    assert_eq!(Machine::calm(10.0).step(0, 1, 0.0, 0.0).replicas, 0);
}

#[test]
fn knative_rates() {
    assert_eq!(Machine::calm(10.0).step(0, 1, 1000.0, 0.0).replicas, 10);
    assert_eq!(Machine::calm(10.0).step(0, 10, 1000.0, 0.0).replicas, 100);
    assert_eq!(Machine::calm(10.0).step(0, 100, 1.0, 0.0).replicas, 10);
    assert_eq!(Machine::calm(10.0).step(0, 10, 1.0, 0.0).replicas, 1);
    // Rounding up to the next whole number allows a small rate to change the replicas at all.
    let mut machine = Machine { rules: rules(1.1, 10.0), ..Machine::calm(1.0) };
    assert_eq!(machine.step(0, 2, 3.0, 0.0).replicas, 3);
    let mut machine = Machine { rules: rules(10.0, 1.1), ..Machine::calm(10.0) };
    assert_eq!(machine.step(0, 100, 1.0, 0.0).replicas, 90);
}

#[test]
fn knative_panic() {
    let panicking = || Machine { panic: Panic { since: Some(at(0)), most: 5 }, ..Machine::calm(1.0) };
    assert_eq!(panicking().step(1, 5, 50.0, 30.0).replicas, 50);
    assert_eq!(panicking().step(1, 5, 20.0, 30.0).replicas, 30);
    let mut machine = Machine::calm(10.0);
    assert_eq!(
        machine.step(0, 10, 0.0, 1000.0),
        KpaRecommendation { replicas: 100, stable: 0, panic: 100, panicking: true }
    );
    assert_eq!(machine.step(30, 10, 1.0, 1.0).replicas, 100);
    let calm = machine.step(61, 10, 1.0, 1.0);
    assert_eq!((calm.replicas, calm.panicking), (1, false));
}

#[test]
fn knative_panic_ends_after_a_slow_rise() {
    let mut machine = Machine::calm(1.0);
    assert_eq!(machine.step(0, 10, 11.0, 25.0).replicas, 25);
    assert_eq!(machine.step(30, 40, 30.0, 41.0).replicas, 41);
    assert_eq!(machine.panic.since, Some(at(0)));
    let calm = machine.step(62, 55, 50.0, 56.0);
    assert_eq!((calm.replicas, calm.panicking), (50, false));
    // Passing the threshold again restarts the panic.
    let mut machine = Machine::calm(1.0);
    let _ = machine.step(0, 10, 11.0, 25.0);
    assert_eq!(machine.step(30, 40, 30.0, 80.0).replicas, 80);
    assert_eq!(machine.panic.since, Some(at(30)));
}

#[test]
fn knative_exponential_load() {
    let mut machine = Machine::calm(1.0);
    let mut ready = 1;
    for (second, value) in [6, 36, 216, 1296].into_iter().enumerate() {
        let answer = machine.step(i64::try_from(second).unwrap(), ready, f64::from(value), f64::from(value));
        assert_eq!(answer.replicas, value);
        ready = value;
    }
}

#[test]
fn knative_activation_scale() {
    let mut machine = Machine { rules: Rules { activation: 2, ..rules(10.0, 10.0) }, ..Machine::calm(10.0) };
    assert_eq!(machine.step(0, 1, 0.0, 0.0).replicas, 0);
    assert_eq!(machine.step(1, 1, 1.0, 1.0).replicas, 2);
}

#[test]
fn knative_start() {
    for (ready, expected) in [(0, None), (1, None), (2, Some(2)), (9, Some(9))] {
        let panic = Panic::start(Fleet::all_ready(ready), start());
        assert_eq!(panic.since.map(|_| panic.most), expected);
    }
    // What is ordered counts too: the answer of a controller that starts amid a rollout is not less than that.
    assert_eq!(Panic::start(Fleet { current: 10, ready: 2 }, start()).most, 10);
}

/// Knative's delay of a step down is the highest recommendation of a sliding window, as is ours.
#[test]
fn knative_delay_of_a_step_down() {
    let mut spec = external("1");
    merge(
        &mut spec,
        &json!({"scalingStrategy": "KPA", "minReplicas": 0, "observeWindowSeconds": 2,
        "panicWindowSeconds": 2, "syncPeriodSeconds": 2}),
    );
    let mut annotations = FREE;
    annotations[0] = ("scale-down-cooldown-window", "5m");
    let mut world = World::warm(&annotated(&spec, &annotations));
    let begin = world.now;
    let mut at = |seconds: i64, load: f64, current: i32| {
        world.now = begin.checked_add(seconds.seconds()).unwrap();
        // Keeps the memory awake between the moments that matter.
        world.memory.latest = Some(world.now);
        world.whole(current, load).desired
    };
    assert_eq!(at(2, 4.0, 4), 4);
    // Zero at a whole stable window without load only; that window has one value at a time here.
    assert_eq!(at(300, 0.0, 4), 4);
    assert_eq!(at(303, 0.0, 4), 0);
    assert_eq!(at(540, 4.0, 4), 4);
    assert_eq!(at(600, 3.0, 4), 4);
    assert_eq!(at(660, 0.0, 4), 4);
    assert_eq!(at(840, 0.0, 4), 3);
    assert_eq!(at(900, 0.0, 3), 0);
}

use crate::world::merge;

#[test]
fn a_controller_that_starts_holds_what_it_finds() {
    let spec = json!({"scalingStrategy": "KPA", "observeWindowSeconds": 60, "panicWindowSeconds": 10});
    let mut world = World::fresh(&annotated(&spec, &FREE));
    for _ in 0..6 {
        let decision = world.mean(8, 1.0);
        assert_eq!(decision.desired, 8);
        assert!(decision.metrics[0].answer.unwrap().panicking);
        world.wait(10);
    }
    assert_eq!(world.wait(10).mean(8, 1.0).desired, 1);
}

/// In panic nothing is taken away even from what was ordered by hand.
#[test]
fn panic_does_not_take_back_what_is_ordered() {
    let mut world = World::warm(&object(&json!({"scalingStrategy": "KPA"})));
    // Two of ten are ready and overloaded.
    let decision = world.see(10, 2, vec![neonvm_core_pod_autoscaler::Observed::pods(&[25.0, 25.0])]);
    assert!(decision.metrics[0].answer.unwrap().panicking);
    assert_eq!(decision.desired, 10);
    // More by hand, in the middle of it.
    let decision = world.wait(5).see(20, 20, vec![neonvm_core_pod_autoscaler::Observed::pods(&[0.1; 20])]);
    assert!(decision.metrics[0].answer.unwrap().panicking);
    assert_eq!(decision.desired, 20);
}
