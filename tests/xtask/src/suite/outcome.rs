//! How tests ended, counted and reported.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::binaries::Case;
use crate::failures;
use crate::tally::Tally;

/// How many of the slowest tests of a lane are named.
const SLOWEST: usize = 5;
/// Tests that are faster are not named among the slowest.
const SLOW: Duration = Duration::from_secs(10);

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Passed,
    Skipped(String),
    Failed(String),
    /// It was ended because its time had passed.
    Late,
    /// It could not be run, or did not run a test.
    Broken(String),
}

/// The end of a test.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) how: How,
    pub(crate) took: Duration,
    /// The file with what it printed, unless it passed.
    pub(crate) output: PathBuf,
}

impl End {
    /// Whether it counts as failed.
    pub(super) fn failed(&self) -> bool {
        !matches!(self.how, How::Passed | How::Skipped(_))
    }
}

/// A test that was skipped, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// What the tests of a lane came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub(crate) tally: Tally,
    pub(crate) skipped: Vec<Skipped>,
    /// Lines about tests that failed, and their messages.
    pub(crate) failures: Vec<String>,
    /// Lines about tests that failed and passed when they ran alone.
    pub(crate) flaky: Vec<String>,
    /// How long each test took.
    pub(crate) times: Vec<(Duration, String)>,
}

impl Results {
    pub(super) fn add(&mut self, case: &Case, end: End) {
        self.times.push((end.took, case.to_string()));
        let why = match end.how {
            How::Passed => {
                self.tally.passed += 1;
                return;
            }
            How::Skipped(reason) => {
                self.tally.skipped += 1;
                self.skipped.push(Skipped { name: case.to_string(), reason });
                return;
            }
            How::Failed(status) => status,
            How::Late => format!("did not end within {:.0} s", end.took.as_secs_f64()),
            How::Broken(reason) => reason,
        };
        self.tally.failed += 1;
        self.failures.push(format!(
            "FAIL {case}: {why} ({:.1} s); {}",
            end.took.as_secs_f64(),
            end.output.display()
        ));
        self.failures.extend(messages(&end.output));
    }

    /// Adds a test that failed first, and then passed alone.
    pub(super) fn add_flaky(&mut self, case: &Case, first: &End, second: End) {
        self.flaky.push(format!("FLAKY {case}: failed, then passed alone; {}", first.output.display()));
        self.flaky.extend(messages(&first.output));
        self.add(case, second);
    }

    /// Prints which tests took longest.
    pub(super) fn report_slowest(&self) {
        let mut times: Vec<_> = self.times.iter().filter(|(took, _)| *took >= SLOW).collect();
        times.sort();
        for (took, name) in times.iter().rev().take(SLOWEST) {
            println!("  {:6.1} s  {name}", took.as_secs_f64());
        }
    }
}

/// The messages of panics in a file of output; without any, its last lines.
fn messages(output: &Path) -> Vec<String> {
    let text = std::fs::read(output).unwrap_or_default();
    let lines: Vec<String> = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
    let found = failures::messages(&lines);
    if found.is_empty() { failures::tail(&lines) } else { found }
}
