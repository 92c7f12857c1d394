//! Several tests at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::outcome::{End, How};
use super::times::{self, Times};
use super::{Case, LaneOutputs, Plan};

/// Tests that take so long are reported when they end.
const WORTH_A_LINE: Duration = Duration::from_secs(5);

/// Runs tests; their ends, in the order of the tests.
pub(super) fn run(place: &LaneOutputs, cases: &[Case], plan: &Plan, attempt: u32) -> Vec<End> {
    let names: Vec<String> = cases.iter().map(ToString::to_string).collect();
    let order = Times::from_outputs(&place.outputs).order(names.iter().map(String::as_str));
    let next = AtomicUsize::new(0);
    let ends = Mutex::new(BTreeMap::new());
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let at_once = if plan.at_once == 0 { processors * 2 } else { plan.at_once };
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(cases.len()) {
            scope.spawn(|| {
                loop {
                    let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let Some(case) = cases.get(index) else { return };
                    let end = case.run(place, attempt, plan.limit, plan.environment);
                    announce(case, &end);
                    ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(index, end);
                }
            });
        }
    });
    let ends: Vec<End> =
        ends.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect();
    times::keep(&place.outputs, cases, &ends);
    ends
}

fn announce(case: &Case, end: &End) {
    let word = match end.how {
        How::Passed if end.took >= WORTH_A_LINE => "ok  ",
        How::Passed | How::Skipped(_) => return,
        How::Failed(_) | How::Late | How::Broken(_) => "FAIL",
    };
    println!("  {word} {:6.1} s  {case}", end.took.as_secs_f64());
}
