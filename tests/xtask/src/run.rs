//! Runs lanes one after the other and reports: what failed, what was skipped and why, the time of each lane, one closing line.

mod summary;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use self::summary::{Done, Summary};
use crate::failures;
use crate::lanes::{Lane, Work};
use crate::leftovers;
use crate::package::target;
use crate::process;
use crate::suite::{self, Built, LaneOutputs, Results, Skipped};
use crate::tally::Tally;

/// More flaky tests than this fail a run.
const FLAKY: usize = 2;

/// Variables of every lane.
const ENVIRONMENT: [(&str, &str); 3] =
    [("CARGO_TERM_COLOR", "never"), ("NO_COLOR", "1"), ("RUST_BACKTRACE", "0")];

struct Run {
    root: PathBuf,
    target: PathBuf,
    binaries: Option<Built>,
}

/// Runs lanes; true if nothing failed and at most two tests were flaky.
pub(crate) fn run(root: &Path, lanes: Vec<Lane>) -> anyhow::Result<bool> {
    let mut run = Run { root: root.to_owned(), target: target(root)?, binaries: None };
    let mut summary = Summary::default();
    for lane in lanes {
        let started = Instant::now();
        println!("LANE {}", lane.name);
        let results = run.lane(&lane);
        let done = Done { name: lane.name, took: started.elapsed(), budget: lane.budget, results };
        println!("DONE {}", done.line());
        summary.add(done);
    }
    print!("{}", summary.text(&run.space()));
    Ok(summary.tally().failed == 0 && summary.flaky() <= FLAKY)
}

impl Run {
    /// What is left on the disk of the target directory: a build that fails for want of it shows that in many ways.
    fn space(&self) -> String {
        let found = Command::new("df").args(["--output=avail", "-h"]).arg(&self.target).output();
        let text = found.map(|found| String::from_utf8_lossy(&found.stdout).into_owned()).unwrap_or_default();
        let free = text.lines().nth(1).unwrap_or("an unknown amount").trim();
        format!("  {free} free on the disk of {}", self.target.display())
    }

    fn lane(&mut self, lane: &Lane) -> Results {
        if let Some(reason) = &lane.skip {
            return skipped(lane.name, reason);
        }
        let outcome = match &lane.work {
            Work::Command(command) => self.command(lane, command, false),
            Work::Counting(command) => self.command(lane, command, true),
            Work::Build => self.build().map(|built| match built {
                Ok(_) => passed(),
                Err(errors) => {
                    let mut results = failed(lane.name, "failed");
                    results.failures.extend(errors.iter().cloned());
                    results
                }
            }),
            Work::Tests(plan) => self.tests(lane, plan),
        };
        // Such as a program that an earlier lane could not build: the other lanes go on.
        outcome.unwrap_or_else(|error| failed(lane.name, &format!("{error:#}")))
    }

    fn command(&self, lane: &Lane, command: &[&str], counts: bool) -> anyhow::Result<Results> {
        let mark = self.root.to_string_lossy();
        let environment = [&ENVIRONMENT[..], &[(leftovers::MARK, mark.as_ref())]].concat();
        let programs = self.target.join("debug");
        let ended = process::run(&self.root, &programs, command, &environment, lane.limit)?;
        let mut results = if counts { counted(&ended.lines) } else { Results::default() };
        if ended.good {
            results.tally.passed += u64::from(!counts);
            return Ok(results);
        }
        // A command that failed before it could count is a failure too.
        results.tally.failed = results.tally.failed.max(1);
        let why = if ended.late { "did not end within its limit" } else { "failed" };
        results.failures.push(format!("FAIL {}: {why}", lane.name));
        results.failures.extend(failures::messages(&ended.lines));
        results.failures.extend(failures::errors(&ended.lines));
        if ended.late {
            // What it started would be a burden to the lanes after it.
            leftovers::clean_up(&self.root)?;
        }
        Ok(results)
    }

    /// Builds everything, once in a run, also if that fails.
    fn build(&mut self) -> anyhow::Result<&Built> {
        let built = match self.binaries.take() {
            Some(built) => built,
            None => suite::build(&self.root, &ENVIRONMENT)?,
        };
        Ok(self.binaries.insert(built))
    }

    fn tests(&mut self, lane: &Lane, plan: &suite::Plan) -> anyhow::Result<Results> {
        let place = LaneOutputs::new(&self.root, &self.target, lane.name)?;
        match self.build()? {
            Ok(binaries) => suite::run(&place, binaries, plan),
            Err(_) => Ok(failed(lane.name, "the tests do not build")),
        }
    }
}

fn passed() -> Results {
    Results { tally: Tally { passed: 1, ..Tally::default() }, ..Results::default() }
}

fn failed(lane: &str, why: &str) -> Results {
    let failures = vec![format!("FAIL {lane}: {why}")];
    Results { tally: Tally { failed: 1, ..Tally::default() }, failures, ..Results::default() }
}

fn skipped(lane: &str, reason: &str) -> Results {
    let skipped = vec![Skipped { name: format!("lane {lane}"), reason: reason.to_owned() }];
    Results { tally: Tally { skipped: 1, ..Tally::default() }, skipped, ..Results::default() }
}

/// The closing line of a command that counts, and its lines `skip NAME: N steps, REASON`.
fn counted(lines: &[String]) -> Results {
    let mut results = Results { tally: Tally::read(lines), ..Results::default() };
    for line in lines {
        let Some((name, rest)) = line.strip_prefix("skip ").and_then(|rest| rest.split_once(": ")) else {
            continue;
        };
        let Some((count, reason)) = rest.split_once(", ") else { continue };
        results.skipped.push(Skipped { name: format!("{name} ({count})"), reason: reason.to_owned() });
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_of_a_command_that_counts_keep_their_reasons() {
        let lines = ["skip kubectl-get: 3 steps, there is no kubectl", "10 passed, 0 failed, 3 skipped"];
        let results = counted(&lines.map(str::to_owned));
        assert_eq!(results.tally, Tally { passed: 10, failed: 0, skipped: 3 });
        let expected = Skipped { name: "kubectl-get (3 steps)".into(), reason: "there is no kubectl".into() };
        assert_eq!(results.skipped, [expected]);
    }
}
