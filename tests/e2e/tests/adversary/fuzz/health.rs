//! What must hold after each round: nothing ended, nothing panicked, nothing grew, and all of it still serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use neonvm_e2e::fuzz::Round;

use crate::cluster::{Cluster, Process};

/// The most memory that a service may ever have had, in KiB. The API server keeps a history of what was written.
const MOST: u64 = 160 << 10;
const MOST_OF_API_SERVER: u64 = 384 << 10;

/// The services as they were at first.
pub(super) struct Health<'a> {
    cluster: &'a Cluster,
    services: Vec<Process>,
    role: &'static str,
    started: Instant,
    cases: usize,
}

impl<'a> Health<'a> {
    pub(super) fn from_cluster(cluster: &'a Cluster, role: &'static str) -> Self {
        let services = cluster.all_services();
        assert!(services.len() > 4, "{services:?}");
        Self { cluster, services, role, started: Instant::now(), cases: 0 }
    }

    /// Fails with the line of the round if something does not hold.
    pub(super) fn check(&mut self, round: &Round) {
        self.cases += round.cases;
        let wrong = self.findings();
        let Round { seed, cases } = round;
        assert!(wrong.is_empty(), "{} {seed} {cases} # {}", self.role, wrong.join("; "));
    }

    fn findings(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (before, now) in self.services.iter().zip(self.cluster.all_services()) {
            if before.pid != now.pid || !neonvm_e2e::is_alive(now.pid) {
                wrong.push(format!("{} has ended", before.role));
                continue;
            }
            let most = if before.role == "apiserver" { MOST_OF_API_SERVER } else { MOST };
            let peak = now.peak_memory();
            if peak > most {
                wrong.push(format!("{} took {peak} KiB", before.role));
            }
        }
        for (file, line) in panics(&self.cluster.directory()) {
            wrong.push(format!("{}: {line}", file.display()));
        }
        for command in ["vm list --all-namespaces", "scheduler inspect", "agent inspect"] {
            let output = self.cluster.neonctl(command);
            if !output.status.success() {
                wrong.push(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        wrong
    }

    /// What was done, and the most memory of each service.
    pub(super) fn report(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
        let rate = self.cases as f64 / seconds;
        println!("{}: {} cases in {seconds:.0} s, {rate:.0} each second", self.role, self.cases);
        let peaks: BTreeMap<&str, u64> =
            self.services.iter().map(|one| (one.role.as_str(), one.peak_memory() >> 10)).collect();
        println!("{}: peak memory in MiB: {peaks:?}", self.role);
    }
}

/// Files with logs, of services and of pods.
pub(super) fn logs(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(kind) = std::fs::symlink_metadata(&path) else { continue };
        if kind.is_dir() {
            left.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if kind.is_file() && path.to_string_lossy().contains(".log") {
            found.push(path);
        }
    }
    found
}

/// Lines of logs that report a panic of ours; what a guest writes looks like no line of Rust's.
fn panics(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in logs(directory) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        let lines = text.lines().filter(|line| line.contains("panicked at"));
        found.extend(lines.map(|line| (path.clone(), line.to_owned())));
    }
    found
}

#[test]
fn a_panic_in_a_log_is_found() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("logs")).unwrap();
    std::fs::write(directory.path().join("logs/a.log"), "x\nthread 'main' panicked at a.rs:1\n\u{fffd}")
        .unwrap();
    assert_eq!(panics(directory.path()).len(), 1);
}
