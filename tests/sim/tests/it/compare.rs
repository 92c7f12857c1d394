//! Rules of scaling on the work of one VM: how often it changes its size, what that costs, and how fast it is.

use std::time::Duration;

use neonvm_sim::compare::{Load, Rules, Setup, Trial, trial};

fn ours(load: Load, seed: u64) -> Trial {
    trial(load, Rules::Ours, &Setup { seed, ..Setup::default() })
}

#[test]
fn an_idle_vm_stays_small() {
    for seed in 1..4 {
        assert_eq!(ours(Load::Idle, seed).grown, 0, "{seed}");
        for load in [Load::IdleSlow, Load::IdleBusy] {
            let trial = ours(load, seed);
            assert!(
                trial.grown <= 1 && trial.cost() < 1.05,
                "{load:?} {seed}: {} {}",
                trial.grown,
                trial.cost()
            );
        }
    }
}

/// A cluster of random arrivals can fill a quarter of a CPU for 300 ms: that is one growth and its end, at most.
#[test]
fn a_steady_load_changes_the_size_once() {
    for load in [Load::Steady5, Load::Steady20, Load::Steady60] {
        let changes: Vec<u32> = (1..9).map(|seed| ours(load, seed).changed_later).collect();
        assert!(changes.iter().all(|count| *count <= 2), "{load:?} {changes:?}");
    }
}

/// At every size below the largest.
#[test]
fn a_saturated_vm_has_the_next_size_within_half_a_second() {
    for max in [4, 8] {
        let trial = trial(Load::Step, Rules::Ours, &Setup { max, ..Setup::default() });
        // Twenty steps; the hot-plug itself takes 70 ms.
        assert!(trial.grown >= 40, "{}", trial.grown);
        assert!(trial.slowest_growth <= Duration::from_millis(570), "{:?}", trial.slowest_growth);
    }
}

#[test]
fn all_loads_together_cost_little_more_than_a_perfect_forecaster() {
    let trials = |rules| Load::ALL.map(|load| trial(load, rules, &Setup::default()));
    let sum = |trials: &[Trial], of: fn(&Trial) -> f64| trials.iter().map(of).sum::<f64>();
    let (ours, upstream) = (trials(Rules::Ours), trials(Rules::Upstream));
    let cost = sum(&ours, |trial| trial.unit_seconds) / sum(&ours, |trial| trial.perfect_unit_seconds);
    let below = |trials: &[Trial]| sum(trials, |trial| trial.below.as_secs_f64());
    assert!(cost < 1.25, "{cost}");
    assert!(below(&ours) < below(&upstream) / 5.0, "{} {}", below(&ours), below(&upstream));
}

#[test]
fn the_same_seed_gives_the_same_trial() {
    assert_eq!(ours(Load::Bursts, 5), ours(Load::Bursts, 5));
    assert_ne!(ours(Load::Bursts, 5), ours(Load::Bursts, 6));
}
