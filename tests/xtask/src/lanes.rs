//! `xtask test`: every lane in order, each in its time box, and one closing line.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::failures;
use crate::leftovers;
use crate::package::target;
use crate::process::{self, installed};
use crate::tally::Tally;

/// One stage of the test run.
struct Lane {
    name: &'static str,
    command: Vec<&'static str>,
    /// Minutes it may take, compilation included.
    minutes: u64,
    /// Whether its runner counts tests itself; otherwise the lane is one test.
    counts: bool,
    /// Why it cannot run here.
    skip: Option<String>,
}

impl Lane {
    fn new(name: &'static str, minutes: u64, command: &[&'static str]) -> Self {
        Self { name, command: command.to_vec(), minutes, counts: false, skip: None }
    }

    fn counting(self) -> Self {
        Self { counts: true, ..self }
    }

    fn needs(self, there: bool, reason: &str) -> Self {
        Self { skip: (!there).then(|| reason.to_owned()), ..self }
    }
}

/// Crates whose tests have lanes of their own because they start servers.
const APART: &[&str] =
    &["--exclude", "neonvm-conformance", "--exclude", "neonvm-e2e", "--exclude", "neonvm-endurance"];
/// The same, for a runner that is told which tests to run rather than what to build.
const NOT_APART: &str = "not (package(neonvm-conformance) | package(neonvm-e2e) | package(neonvm-endurance))";

/// Which features a shared crate is built with depends on what is built with it. So every lane selects the whole workspace, with
/// its tests, and picks out of that: then each crate is compiled once, not once for each lane.
fn lanes() -> Vec<Lane> {
    let unit: Vec<&str> = if installed("cargo-nextest") {
        let run =
            ["cargo", "nextest", "run", "--locked", "--workspace", "--no-fail-fast", "--no-tests", "pass"];
        [&run[..], &["-E", NOT_APART]].concat()
    } else {
        [&["cargo", "test", "--locked", "--workspace", "--no-fail-fast"][..], APART].concat()
    };
    let mut lanes = vec![
        Lane::new("format", 1, &["cargo", "fmt", "--all", "--check"])
            .needs(installed("rustfmt"), "rustfmt is not installed"),
        // The unit lane compares generated files, among its tests.
        Lane::new("check", 10, &["cargo", "xtask", "check", "--still"]),
        Lane::new(
            "clippy",
            20,
            &["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
        )
        .needs(installed("cargo-clippy"), "clippy is not installed"),
        // Before the unit tests: those of the guest boot it.
        Lane::new("guest", 20, &["cargo", "xtask", "guest"]),
        Lane::new("programs", 30, &["cargo", "build", "--locked", "--workspace", "--all-targets"]),
        Lane::new("unit", 45, &unit).counting(),
        Lane::new("conformance", 10, &["neonvm-conformance", "--quiet"]).counting(),
        Lane::new("e2e", 15, &of_workspace("local", &[])).counting(),
    ];
    lanes.extend(with_machines());
    lanes.push(
        Lane::new("packages", 1, &["cargo", "deny", "--offline", "check", "bans", "licenses", "sources"])
            .needs(
                installed("cargo-deny"),
                "cargo-deny is not installed; the check lane has looked at the bans",
            ),
    );
    lanes
}

/// One test program of the workspace, by its name.
fn of_workspace(test: &'static str, arguments: &[&'static str]) -> Vec<&'static str> {
    let mut command = vec!["cargo", "test", "--locked", "--workspace", "--no-fail-fast", "--test", test];
    if !arguments.is_empty() {
        command.push("--");
        command.extend(arguments);
    }
    command
}

/// Needs much of the workspace, so it is picked by a filter where that can be done: by its name, features would be those of its
/// own crate again. The tests of `neonvm-e2e` need next to nothing, and share a process.
fn endurance() -> Vec<&'static str> {
    if installed("cargo-nextest") {
        let run = ["cargo", "nextest", "run", "--locked", "--workspace", "--no-fail-fast"];
        [&run[..], &["-E", "package(neonvm-endurance)"]].concat()
    } else {
        of_workspace("endurance", &[])
    }
}

/// Lanes that boot virtual machines or kill servers: each needs the machine for itself.
fn with_machines() -> Vec<Lane> {
    vec![
        Lane::new("kernel", 25, &["cargo", "xtask", "kernel"]).needs(
            Path::new("/usr/src/linux-source-6.1.tar.xz").exists(),
            "the kernel's source is not installed (linux-source-6.1)",
        ),
        Lane::new("disk", 40, &of_workspace("disk", &["--nocapture"]))
            .counting()
            .needs(installed("qemu-system-x86_64"), "qemu-system-x86_64 is not installed"),
        Lane::new("vm", 60, &of_workspace("vm", &["--nocapture", "--test-threads", "2"]))
            .counting()
            .needs(installed("qemu-system-x86_64"), "qemu-system-x86_64 is not installed"),
        Lane::new("endurance", 30, &endurance()).counting(),
    ]
}

/// The lanes with these names, in their order; with no name, all of them.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Lane>> {
    let all = lanes();
    for name in names {
        let known: Vec<&str> = all.iter().map(|lane| lane.name).collect();
        ensure!(known.contains(&name.as_str()), "no lane {name}; there are: {}", known.join(", "));
    }
    let wanted = |lane: &Lane| names.is_empty() || names.iter().any(|name| name == lane.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Runs lanes, all if none is named; true if nothing failed.
pub(crate) fn run(root: &Path, names: &[String]) -> anyhow::Result<bool> {
    let mut total = Tally::default();
    let mut failed = Vec::new();
    let programs = target(root)?.join("debug");
    for lane in chosen(names)? {
        total = total.plus(one(root, &programs, &lane, &mut failed));
    }
    for line in failed {
        println!("{line}");
    }
    println!("{total}");
    Ok(total.failed == 0)
}

/// Runs a lane; of one that fails, `failed` gets what it said about it.
fn one(root: &Path, programs: &Path, lane: &Lane, failed: &mut Vec<String>) -> Tally {
    let name = lane.name;
    if let Some(reason) = &lane.skip {
        println!("SKIP {name}: {reason}");
        return Tally { skipped: 1, ..Tally::default() };
    }
    println!("LANE {name}: {}", lane.command.join(" "));
    let begun = Instant::now();
    // Runs must not depend on the settings of whoever runs them.
    let mark = root.to_string_lossy();
    let environment = [
        ("CARGO_TERM_COLOR", "never"),
        ("NO_COLOR", "1"),
        ("RUST_BACKTRACE", "0"),
        (leftovers::MARK, mark.as_ref()),
    ];
    let limit = Duration::from_secs(60 * lane.minutes);
    let ended = match process::run(root, programs, &lane.command, &environment, limit) {
        Ok(ended) => ended,
        // Such as a program that an earlier lane could not build: the others go on.
        Err(error) => {
            let line = format!("FAIL {name}: {error:#}");
            println!("{line}");
            failed.push(line);
            return Tally { failed: 1, ..Tally::default() };
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let mut tally = if lane.counts { Tally::read(&ended.lines) } else { Tally::default() };
    if ended.good {
        tally.passed += u64::from(!lane.counts);
        println!("DONE {name} ({seconds:.1} s)");
    } else {
        // A runner that broke before it could count is a failure too.
        tally.failed = tally.failed.max(1);
        let why = if ended.late { "did not end in its time box" } else { "failed" };
        let line = format!("FAIL {name}: {why} ({seconds:.1} s)");
        println!("{line}");
        failed.push(line);
        failed.extend(failures::messages(&ended.lines));
        // What it started would be a burden to the lanes after it.
        if let Some(error) = ended.late.then(|| leftovers::clean_up(root).err()).flatten() {
            println!("{error:#}");
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_chosen_by_name_and_kept_in_order() {
        let names = |chosen: Vec<Lane>| -> Vec<&str> { chosen.iter().map(|lane| lane.name).collect() };
        assert_eq!(names(chosen(&[]).unwrap()).first(), Some(&"format"));
        assert_eq!(names(chosen(&["vm".into(), "disk".into()]).unwrap()), ["disk", "vm"]);
        let error = chosen(&["vms".into()]).err().unwrap().to_string();
        assert!(error.starts_with("no lane vms; there are: format, check"), "{error}");
    }
}
