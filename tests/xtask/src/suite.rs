//! Runs the tests of the workspace: one process for each test, so that a test cannot disturb another one, can be ended when it
//! hangs, and can report that it was skipped.
//!
//! `cargo nextest` works the same way but knows no tests that are skipped while they run, cannot repeat a failed test alone, and a
//! computer with only Rust would compile it for longer than the tests take.

mod binaries;
mod case;
mod outcome;
mod schedule;
mod times;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

pub(crate) use self::binaries::{Binary, Built, Case, Kind, build};
pub(crate) use self::outcome::{Results, Skipped};

/// Which tests run, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The test programs.
    pub(crate) programs: fn(&Binary) -> bool,
    /// Which of their tests, by name.
    pub(crate) names: fn(&str) -> bool,
    /// Tests at a time; 0: twice as many as there are processors, for tests that mostly wait.
    pub(crate) at_once: usize,
    /// Time after which a test is ended and counted as failed.
    pub(crate) limit: Duration,
    /// Whether a test that failed is run once more, alone.
    pub(crate) repeat: bool,
    /// Variables of the environment of each test.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// Where the runs of a lane leave what their tests print.
#[derive(Clone, Debug)]
pub(crate) struct LaneOutputs {
    pub(crate) root: PathBuf,
    pub(crate) outputs: PathBuf,
}

impl LaneOutputs {
    /// Makes the directory of a lane, without what an earlier run left there.
    pub(crate) fn new(root: &Path, target: &Path, lane: &str) -> anyhow::Result<Self> {
        let outputs = target.join("test-run").join(lane);
        let _ = std::fs::remove_dir_all(&outputs);
        std::fs::create_dir_all(&outputs).with_context(|| format!("cannot make {}", outputs.display()))?;
        Ok(Self { root: root.to_owned(), outputs })
    }
}

/// Runs the tests of a plan.
pub(crate) fn run(place: &LaneOutputs, binaries: &[Binary], plan: &Plan) -> anyhow::Result<Results> {
    let mut cases = Vec::new();
    for binary in binaries.iter().filter(|binary| (plan.programs)(binary)) {
        cases.extend(binary.cases()?.into_iter().filter(|case| (plan.names)(&case.name)));
    }
    let started = Instant::now();
    let ended = schedule::run(place, &cases, plan, 1);
    let mut results = Results::default();
    let mut failed = Vec::new();
    for (case, end) in cases.iter().zip(ended) {
        match plan.repeat && end.failed() {
            true => failed.push((case, end)),
            false => results.add(case, end),
        }
    }
    for (case, first) in failed {
        println!("  {case} failed; it is run once more, alone");
        let mut again = schedule::run(place, std::slice::from_ref(case), plan, 2);
        match again.pop() {
            Some(second) if !second.failed() => results.add_flaky(case, &first, second),
            _ => results.add(case, first),
        }
    }
    println!(
        "  {} tests of {} programs in {:.1} s",
        cases.len(),
        count(&cases),
        started.elapsed().as_secs_f64()
    );
    results.report_slowest();
    Ok(results)
}

/// The number of test programs.
fn count(cases: &[Case]) -> usize {
    let mut programs: Vec<&Path> = cases.iter().map(|case| case.binary.executable.as_path()).collect();
    programs.dedup();
    programs.len()
}
