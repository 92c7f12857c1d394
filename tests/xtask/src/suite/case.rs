//! One test: its process, its deadline, and what it reported.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::LaneOutputs;
use super::binaries::Case;
use super::outcome::{End, How};
use crate::leftovers;
use crate::package::by_hand;

/// The file to which a test reports that it is skipped; the same name as in `tests/support/src/needs.rs`.
const SKIP_FILE: &str = "NEONVM_TEST_SKIP_FILE";
/// Set when the programs of the workspace are built, so that a test need not build them.
const BUILT: &str = "NEONVM_TEST_BUILT";
/// Pause between two looks whether a test has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Case {
    /// Runs it to its end, or to the end of its time.
    pub(super) fn run(
        &self,
        place: &LaneOutputs,
        attempt: u32,
        limit: Duration,
        environment: &[(&str, &str)],
    ) -> End {
        let output = self.file(place, attempt, "log");
        let skips = self.file(place, attempt, "skip");
        let started = Instant::now();
        let how = match self.spawn(place, &output, &skips, environment) {
            Ok(child) => wait(child, started + limit),
            Err(error) => How::Broken(format!("{error:#}")),
        };
        let text = || std::fs::read(&output).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let end = judge(how, &text().unwrap_or_default(), std::fs::read_to_string(&skips).ok());
        // What passed needs no log; what failed is looked at later.
        if matches!(end, How::Passed) {
            let _ = std::fs::remove_file(&output);
        }
        let _ = std::fs::remove_file(&skips);
        End { how: end, took: started.elapsed(), output }
    }

    fn file(&self, place: &LaneOutputs, attempt: u32, extension: &str) -> PathBuf {
        let name = format!("{}-{}", self.binary.id(), self.name).replace([':', '/', ' '], "_");
        place.outputs.join(format!("{name}.{attempt}.{extension}"))
    }

    fn spawn(
        &self,
        place: &LaneOutputs,
        output: &Path,
        skips: &Path,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Child> {
        let log = File::create(output).with_context(|| format!("cannot make {}", output.display()))?;
        let mut command = by_hand(&self.binary.executable);
        // Runs must not depend on the settings of the user.
        command.env("CARGO_TERM_COLOR", "never").env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
        command.env(leftovers::MARK, &place.root).env(SKIP_FILE, skips).env(BUILT, "1");
        command.env("CARGO_MANIFEST_DIR", &self.binary.directory);
        command.envs(environment.iter().copied());
        command
            .args(["--exact", &self.name, "--nocapture"])
            .current_dir(&self.binary.directory)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.executable.display()))
    }
}

/// Waits for the end of a test; at the deadline its whole process group is killed.
fn wait(mut child: Child, deadline: Instant) -> How {
    let mut pause = PAUSE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return How::Passed,
            Ok(Some(status)) => return How::Failed(status.to_string()),
            Err(error) => return How::Broken(error.to_string()),
            Ok(None) if Instant::now() >= deadline => break,
            Ok(None) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
    How::Late
}

/// What the end of its process, what it printed and what it reported mean together.
fn judge(how: How, output: &str, skips: Option<String>) -> How {
    if !matches!(how, How::Passed) {
        return how;
    }
    if let Some(reasons) = skips.filter(|text| !text.trim().is_empty()) {
        return How::Skipped(reasons.trim().replace('\n', "; "));
    }
    if let Some((_, reason)) = output.split_once(" ... ignored") {
        let reason = reason.lines().next().unwrap_or_default().trim_start_matches([',', ' ']);
        return How::Skipped(format!(
            "ignored: {}",
            if reason.is_empty() { "no reason is given" } else { reason }
        ));
    }
    if !output.contains("test result: ok. 1 passed") {
        return How::Broken("it did not report that one test passed".to_owned());
    }
    How::Passed
}

#[cfg(test)]
mod tests {
    use super::super::binaries::Binary;
    use super::*;
    use crate::suite::Kind;

    /// A test program that is a shell script.
    fn planted(directory: &Path, script: &str) -> (LaneOutputs, Case) {
        let executable = directory.join("program");
        // Another process writes it: a file that this one has open for writing cannot be run by a test beside this one.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"";
        let done = Command::new("sh").args(["-c", write, "sh", script]).arg(&executable).status().unwrap();
        assert!(done.success());
        let binary = Binary {
            package: "neonvm-planted".into(),
            name: "it".into(),
            kind: Kind::Integration,
            executable,
            directory: directory.to_owned(),
        };
        let place = LaneOutputs { root: directory.to_owned(), outputs: directory.to_owned() };
        (place, Case { binary, name: "a::test".into() })
    }

    fn run(script: &str) -> How {
        let directory = tempfile::tempdir().unwrap();
        let (place, case) = planted(directory.path(), script);
        case.run(&place, 1, Duration::from_secs(60), &[]).how
    }

    #[test]
    fn a_test_that_reports_a_skip_is_not_passed() {
        let skipping =
            "echo 'no kernel' >> $NEONVM_TEST_SKIP_FILE; echo 'test result: ok. 1 passed; 0 failed'";
        assert_eq!(run(skipping), How::Skipped("no kernel".into()));
        assert_eq!(run("echo 'test result: ok. 1 passed; 0 failed'"), How::Passed);
        assert_eq!(
            run("echo 'test a::test ... ignored, takes minutes'"),
            How::Skipped("ignored: takes minutes".into())
        );
        // A program that runs no test of this name.
        assert!(matches!(run("echo 'test result: ok. 0 passed; 0 failed'"), How::Broken(_)));
        assert!(matches!(run("exit 101"), How::Failed(_)));
    }

    #[test]
    fn a_test_that_hangs_is_ended_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let (place, case) = planted(directory.path(), "sleep 1000 & echo $! > child; wait");
        let end = case.run(&place, 1, Duration::from_millis(500), &[]);
        assert_eq!(end.how, How::Late);
        let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        // A killed process ends when it gets the processor again.
        let ended = || state().is_empty() || state().contains(") Z");
        neonvm_test_support::eventually_blocking(state, ended);
    }
}
