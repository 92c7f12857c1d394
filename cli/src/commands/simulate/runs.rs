//! Runs of many seeds, some beside one another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use neonvm_sim::{Options, Outcome, Record, Scenario, run};

/// All of them, in the order of their seeds. The first is recorded as asked for, the others are not.
pub(super) fn all(
    scenario: &Scenario,
    options: &Options,
    seeds: &std::ops::Range<u64>,
    parallel: usize,
    show: bool,
) -> Vec<Outcome> {
    let total = seeds.end.saturating_sub(seeds.start);
    let bar = if show { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..parallel.min(usize::try_from(total).unwrap_or(usize::MAX)) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let record = if seed == seeds.start { options.record } else { Record::None };
                    let outcome = run(scenario, &Options { seed, record, ..options.clone() });
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut outcomes = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}
