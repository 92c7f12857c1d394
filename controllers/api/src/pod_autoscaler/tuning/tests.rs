use super::*;

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn own(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("autoscaling.aibrix.ai/{key}"), (*value).to_owned())).collect()
}

/// The vector of upstream: all of them at once.
#[test]
fn all_that_is_written_holds() {
    let all = own(&[
        ("max-scale-up-rate", "3.0"),
        ("max-scale-down-rate", "3.0"),
        ("scale-up-tolerance", "0.3"),
        ("scale-down-tolerance", "0.3"),
        ("panic-threshold", "3.0"),
        ("scale-up-cooldown-window", "30s"),
        ("scale-down-cooldown-window", "30s"),
        ("scale-to-zero", "true"),
    ]);
    let (tuning, warnings) = Tuning::parse(&all).unwrap();
    let expected = Tuning {
        max_scale_up_rate: 3.0,
        max_scale_down_rate: 3.0,
        scale_up_tolerance: 0.3,
        scale_down_tolerance: 0.3,
        panic_threshold: 3.0,
        scale_up_cooldown: Duration::from_secs(30),
        scale_down_cooldown: Duration::from_secs(30),
        scale_to_zero: Some(true),
        ..Tuning::default()
    };
    assert_eq!((tuning, warnings), (expected, vec![]));
}

/// Upstream stops at the first bad one and keeps a random part of the rest.
#[test]
fn every_fault_is_reported_and_nothing_holds() {
    let bad = own(&[
        ("max-scale-up-rate", "1"),
        ("max-scale-down-rate", "0.5"),
        ("scale-down-tolerance", "1"),
        ("panic-threshold", "NaN"),
        ("scale-down-cooldown-window", "-1s"),
        ("activation-scale", "0"),
        ("metric-aggregation-algorithm", "median"),
        ("scale-up-cooldown-window", "30s"),
    ]);
    let faults = Tuning::parse(&bad).unwrap_err();
    assert_eq!(faults.len(), 7, "{faults:?}");
}

#[test]
fn older_names_are_read_with_a_warning_and_yield_to_newer_ones() {
    let old = annotations(&[
        ("kpa.autoscaling.aibrix.ai/scale-down-delay", "60s"),
        ("kpa.autoscaling.aibrix.ai/panic-window", "10s"),
        ("kpa.autoscaling.aibrix.ai/stable-window", "90s"),
        ("kpa.autoscaling.aibrix.ai/tolerance", "0.2"),
        ("kpa.autoscaling.aibrix.ai/panic-threshold", "3"),
        ("autoscaling.aibrix.ai/panic-threshold", "4"),
        ("apa.autoscaling.aibrix.ai/window", "sixty"),
        ("kpa.autoscaling.aibrix.ai/target-burst-capacity", "211"),
    ]);
    let (tuning, warnings) = Tuning::parse(&old).unwrap();
    assert_eq!(tuning.scale_down_cooldown, Duration::from_secs(60));
    assert_eq!((tuning.legacy_panic_window, tuning.legacy_stable_window), (Some(10), Some(90)));
    assert_eq!((tuning.scale_up_tolerance, tuning.scale_down_tolerance), (0.2, 0.2));
    assert!((tuning.panic_threshold - 4.0).abs() < 1e-9);
    // One each, and the tolerance speaks for both directions.
    assert_eq!(warnings.len(), 8, "{warnings:#?}");
    // What cannot be read was without effect before and stays so.
    let bad = annotations(&[("kpa.autoscaling.aibrix.ai/scale-down-delay", "often")]);
    let (tuning, warnings) = Tuning::parse(&bad).unwrap();
    assert_eq!((tuning, warnings.len()), (Tuning::default(), 1));
}
