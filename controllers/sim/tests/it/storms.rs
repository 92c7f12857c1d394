//! Many seeds over all small scenarios.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use neonvm_sim::{Invariant, Options, Outcome, Scenario, run};

use crate::common::{SMALL, report, scenario};

/// Seeds of each scenario in a run of the tests.
const SEEDS: u64 = 202;

/// The first seed: of the environment, or else of the commit, so that each commit looks at new ones.
fn first_seed() -> u64 {
    if let Some(seed) = std::env::var("NEONVM_SIM_SEED").ok().and_then(|text| text.parse().ok()) {
        return seed;
    }
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = commit
        .ok()
        .and_then(|output| u64::from_str_radix(String::from_utf8(output.stdout).ok()?.trim(), 16).ok());
    // Seeds that people can type.
    commit.map_or(1, |commit| commit % 1_000_000_000)
}

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `options` on all processors; the outcomes in order.
fn run_all(scenario: &Scenario, options: &[Options]) -> Vec<Outcome> {
    let next = AtomicU64::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    let Some(options) = options.get(index) else { return };
                    let outcome = run(scenario, options);
                    outcomes.lock().unwrap().insert(index, outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap().into_values().collect()
}

/// No invariant breaks, whatever the seed. `NEONVM_SIM_SEED` sets the first one, `NEONVM_SIM_SEEDS` how many.
#[test]
fn no_invariant_breaks() {
    let (first, seeds) = (first_seed(), count("NEONVM_SIM_SEEDS", SEEDS));
    let only = std::env::var("NEONVM_SIM_SCENARIO").ok();
    let mut checked: BTreeMap<Invariant, u64> = BTreeMap::new();
    let (mut bad, mut events, mut runs) = (Vec::new(), 0, 0);
    for name in SMALL.iter().filter(|name| only.as_ref().is_none_or(|only| only == *name)) {
        let scenario = scenario(name);
        let options: Vec<_> =
            (first..first + seeds).map(|seed| Options { seed, ..Options::default() }).collect();
        for outcome in run_all(&scenario, &options) {
            for (invariant, count) in &outcome.checked {
                *checked.entry(*invariant).or_default() += count;
            }
            (events, runs) = (events + outcome.events, runs + 1);
            bad.extend(report(name, &outcome));
        }
    }
    println!("{runs} runs, seeds from {first}, {events} events");
    for invariant in Invariant::ALL {
        println!("{:4} {:50} {:>12}", invariant.id(), invariant.name(), checked.get(invariant).unwrap_or(&0));
    }
    let shown: Vec<_> = bad
        .iter()
        .map(|text| text.lines().take(2).chain(text.lines().last()).collect::<Vec<_>>().join("\n"))
        .collect();
    if only.is_none() && seeds >= 100 {
        for invariant in Invariant::ALL {
            assert!(checked.get(invariant).is_some_and(|count| *count > 0), "{invariant} is never checked");
        }
    }
    assert!(
        bad.is_empty(),
        "{} runs broke an invariant; the first in full:\n{}\n\nall:\n{}",
        bad.len(),
        bad[0],
        shown.join("\n")
    );
}
