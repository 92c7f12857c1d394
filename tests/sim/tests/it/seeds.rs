//! Many seeds over all small scenarios.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use neonvm_sim::{Invariant, Options, Outcome, Scenario, run};

use crate::common::{SMALL, report, scenario};

/// Seeds of each scenario in a run of the gate. They are always the same, so that a change which has nothing to do with decisions
/// fails no run.
const SEEDS: u64 = 30;
/// Seeds of each scenario in a soak, which begins at another seed each time.
const FRESH_SEEDS: u64 = 202;
/// Set for a soak.
const FRESH: &str = "NEONVM_SIM_FRESH";

fn is_soak() -> bool {
    std::env::var_os(FRESH).is_some()
}

/// The first seed: of the environment, else of the time in a soak, else 1.
fn first_seed() -> u64 {
    let otherwise = if is_soak() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Seeds that people can type.
        now.as_secs() % 1_000_000_000
    } else {
        1
    };
    count("NEONVM_SIM_SEED", otherwise)
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

/// Every fault at once, but those by which guests do not answer: what is lost together is what a subset rarely shows.
#[test]
fn no_node_is_overcommitted_by_many_faults_at_once() {
    let faults = "crash,api,watch,resize,bind-fails,node-loss,devices-away".parse().unwrap();
    let options = |seed| Options { seed, faults: Some(faults), ..Options::default() };
    let options: Vec<_> = (1000..1100).map(options).collect();
    let outcomes = run_all(&scenario("scheduler-restarts"), &options);
    let bad: Vec<_> = outcomes.iter().flat_map(|outcome| report("scheduler-restarts", outcome)).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// No invariant breaks, whatever the seed. `NEONVM_SIM_SEED` sets the first one, `NEONVM_SIM_SEEDS` how many; with
/// `NEONVM_SIM_FRESH` there are more of them, and other ones each time.
#[test]
fn no_invariant_breaks() {
    let seeds = count("NEONVM_SIM_SEEDS", if is_soak() { FRESH_SEEDS } else { SEEDS });
    let first = first_seed();
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
    if only.is_none() && seeds >= SEEDS {
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
