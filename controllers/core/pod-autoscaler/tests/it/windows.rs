//! Windows and stabilisation: the published numbers of both families.

use std::time::Duration;

use jiff::ToSpan;
use neonvm_core_pod_autoscaler::{
    Finite, Observed,
    stabilise::Stabiliser,
    tuning::Averaging,
    window::{Window, smoothing},
};
use serde_json::json;

use crate::world::{World, object, start};

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap()
}

fn values(window: &Window, second: i64, duration: i64) -> Vec<f64> {
    window.values(second, duration).map(|(_, value)| value.get()).collect()
}

fn mean(window: &Window, second: i64, duration: i64) -> Option<f64> {
    window.average(second, duration, Averaging::Linear).map(Finite::get)
}

/// Upstream: pods at 30 and 50 are one value of 40 in both windows. Here the value is the load, twice that; what an
/// average of 40 means to the ratio is the same.
#[test]
fn a_snapshot_is_one_value() {
    let mut world = World::warm(&object(&json!({"scalingStrategy": "KPA"})));
    let decision = world.see(2, 2, vec![Observed::pods(&[30.0, 50.0])]);
    let trace = &decision.metrics[0];
    assert_eq!(trace.reading.as_ref().unwrap().value, number(40.0));
    assert_eq!((trace.stable, trace.panic), (Some(number(80.0)), Some(number(80.0))));
    let decision = World::warm(&object(&json!({"scalingStrategy": "KPA"}))).mean(1, 70.0);
    assert_eq!(
        (decision.metrics[0].stable, decision.metrics[0].panic),
        (Some(number(70.0)), Some(number(70.0)))
    );
}

#[test]
fn upstream_two_windows_over_the_same_values() {
    for stable in [90, 120] {
        let mut window = Window::default();
        window.record(0, number(10.0), stable);
        window.record(60, number(70.0), stable);
        assert_eq!((mean(&window, 60, stable), mean(&window, 60, 30)), (Some(40.0), Some(70.0)));
    }
    let mut window = Window::default();
    for (minute, value) in [(0, 20.0), (1, 30.0), (2, 40.0)] {
        window.record(minute * 60, number(value), 180);
    }
    assert_eq!((values(&window, 120, 180), mean(&window, 120, 180)), (vec![20.0, 30.0, 40.0], Some(30.0)));
}

#[test]
fn upstream_buckets_of_a_minute() {
    let mut window = Window::new(60);
    let expected: [&[f64]; 8] = [
        &[10.0],
        &[20.0],
        &[20.0, 30.0],
        &[20.0, 40.0],
        &[20.0, 40.0, 50.0],
        &[20.0, 40.0, 60.0],
        &[40.0, 60.0, 70.0],
        &[40.0, 60.0, 80.0],
    ];
    for (second, contents) in (0..).step_by(30).zip(expected) {
        window.record(second, number(f64::from(i32::try_from(second).unwrap() / 3 + 10)), 120);
        assert_eq!(values(&window, second, 120), contents, "at {second}");
    }
}

/// Knative's five buckets of a second are a closed interval of four seconds here.
#[test]
fn knative_buckets() {
    let mut window = Window::default();
    window.record(1, number(1.0), 4);
    assert_eq!(mean(&window, 1, 4), Some(1.0));
    for second in 2..=5 {
        window.record(second, number(second as f64), 4);
    }
    assert_eq!(mean(&window, 5, 4), Some(3.0));
    assert_eq!(mean(&window, 7, 4), Some(4.0));
    // After silence as long as the window there is no value. Knative returns 0, and has other means to detect "no data".
    assert_eq!(mean(&window, 10, 4), None);
    // Knative: (15-1-2+91)/5 = 20.6, since a second in which no request was counted is a second without requests. Here
    // a second without a value was not measured: (3+4+5+91)/4.
    window.record(7, number(91.0), 4);
    assert_eq!(mean(&window, 7, 4), Some(25.75));
}

#[test]
fn knative_weights() {
    for (many, expected) in [(5, 0.8415), (6, 0.7846), (40, 0.2057), (42, 0.2), (1000, 0.2)] {
        assert!((smoothing(many) - expected).abs() < 1e-4, "{many}");
    }
    let mut window = Window::default();
    for second in 2..=6 {
        window.record(second, number(second as f64), 4);
    }
    let m = smoothing(5);
    let expected: f64 = (0..5).map(|i| f64::from(6 - i) * m * (1.0 - m).powi(i)).sum();
    let weighted = window.average(6, 4, Averaging::WeightedExponential).unwrap().get();
    // Knative leaves out that the weights add up to 0.9999 only.
    assert!((weighted - expected).abs() < 1e-3, "{weighted} {expected}");
}

/// Upstream keeps histories of ten times the window that nothing reads, and drops both windows when a duration changes.
#[test]
fn a_changed_window_keeps_what_fits_and_nothing_is_kept_beyond_it() {
    let mut window = Window::default();
    for second in 0..100 {
        window.record(second, number(1.0), 60);
    }
    assert_eq!(values(&window, 99, 3600).len(), 61);
    assert_eq!(values(&window, 99, 30).len(), 31);
    window.record(100, number(1.0), 30);
    assert_eq!(values(&window, 100, 3600).len(), 31);
    // Time that goes back writes into the newest bucket.
    window.record(50, number(9.0), 30);
    assert_eq!((values(&window, 100, 30).len(), values(&window, 100, 0)), (31, vec![9.0]));
}

/// Upstream's trace: recommendations each ten seconds, starting at ten replicas, five minutes for a step down. Upstream
/// goes 2, 8, 8, 2, 8, 2, 8, 8: it takes the lowest of the last while on the way down. The rule of Kubernetes takes the
/// highest.
#[test]
fn a_step_down_waits_for_the_highest() {
    let trace = [2, 8, 8, 7, 8, 7, 8, 8];
    let run = |mut memory: Stabiliser, start_at: i32| {
        let mut current = start_at;
        trace
            .into_iter()
            .enumerate()
            .map(|(index, wanted)| {
                let now = start().checked_add(i64::try_from(index).unwrap().seconds() * 10).unwrap();
                current = memory.step(now, wanted, current, Duration::ZERO, Duration::from_secs(300));
                current
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(Stabiliser::default(), 10), [2, 8, 8, 8, 8, 8, 8, 8]);
    // What a controller finds when it starts is a recommendation too.
    let mut found = Stabiliser::default();
    found.record(start().checked_sub(1.second()).unwrap(), 10);
    assert_eq!(run(found, 10), [10; 8]);
}

#[test]
fn a_step_up_waits_for_the_lowest_if_asked_to() {
    let mut memory = Stabiliser::default();
    let mut current = 2;
    let mut seen = Vec::new();
    for (second, wanted) in [(0, 2), (10, 8), (20, 5), (30, 8), (40, 8), (50, 8)] {
        let now = start().checked_add(second.seconds()).unwrap();
        current = memory.step(now, wanted, current, Duration::from_secs(30), Duration::from_secs(30));
        seen.push(current);
    }
    assert_eq!(seen, [2, 2, 2, 5, 5, 8]);
}
