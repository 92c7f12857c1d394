//! `xtask packages`: licences, sources and bans of the packages in use, and weaknesses that are known of them, by cargo-deny
//! (<https://embarkstudios.github.io/cargo-deny/>), which is installed into `<target>/tools` when it is missing.
//!
//! Ends with `N passed, N failed, N skipped`. What this computer cannot get (cargo-deny without a registry, the advisories without
//! a network) is skipped with its reason, or with `CI=true` a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use crate::package::cargo;
use crate::tally::Tally;
use crate::tool::Tool;

/// Understands advisories with scores of CVSS 4; older versions refuse the whole database.
const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// What is asked of the manifests alone.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks everything; false if something is wrong.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let required = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut report = Report { tally: Tally::default(), required };
    match CARGO_DENY.installed(root)? {
        None => report.lacks("packages", "cargo-deny cannot be installed: no registry answers"),
        Some(_) if !is_fetched(root)? => {
            report.lacks("packages", "the crates of all targets cannot be fetched");
        }
        Some(deny) => {
            for what in OFFLINE {
                report.ran(what, check(&deny, root, what)?);
            }
            advisories(&deny, root, &mut report)?;
        }
    }
    println!("{}", report.tally);
    Ok(report.tally.failed == 0)
}

/// What is wrong with licences, sources and bans; none if cargo-deny is not installed here.
pub(crate) fn offline_faults(root: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let Some(program) = CARGO_DENY.found(root)? else { return Ok(None) };
    let mut faults = Vec::new();
    for what in OFFLINE {
        if !check(&program, root, what)? {
            faults.push(format!("{what}: see above"));
        }
    }
    Ok(Some(faults))
}

struct Report {
    tally: Tally,
    required: bool,
}

impl Report {
    fn ran(&mut self, what: &str, good: bool) {
        if good {
            self.tally.passed += 1;
        } else {
            self.tally.failed += 1;
            println!("FAIL {what}");
        }
    }

    fn lacks(&mut self, what: &str, why: &str) {
        if self.required {
            self.tally.failed += 1;
            println!("FAIL {what}: {why}");
        } else {
            self.tally.skipped += 1;
            println!("skip {what}: 1 check, {why}");
        }
    }
}

/// Gets the crates of every target: builds get only those of this computer's, and the checks read the manifests of all.
fn is_fetched(root: &Path) -> anyhow::Result<bool> {
    let status = cargo().args(["fetch", "--locked", "--quiet"]).current_dir(root).status();
    Ok(status.context("cannot run cargo fetch")?.success())
}

fn check(deny: &Path, root: &Path, what: &str) -> anyhow::Result<bool> {
    let mut command = Command::new(deny);
    let status =
        command.args(["--offline", "check", "--hide-inclusion-graph", what]).current_dir(root).status();
    Ok(status.context("cannot run cargo-deny")?.success())
}

/// Against the newest database, or the one that was got last: its date is printed.
fn advisories(deny: &Path, root: &Path, report: &mut Report) -> anyhow::Result<()> {
    let fetched = Command::new(deny).args(["fetch", "db"]).current_dir(root).output();
    let fetched = fetched.context("cannot run cargo-deny")?.status.success();
    let Some((date, days)) = date(&databases()) else {
        report.lacks("advisories", "the database cannot be fetched and there is no earlier one");
        return Ok(());
    };
    let age = if fetched { "the newest" } else { "not renewed: it cannot be fetched" };
    println!("advisories of {date}, {days} days old ({age})");
    let mut command = Command::new(deny);
    let status = command.args(["--offline", "check", "advisories"]).current_dir(root).status();
    report.ran("advisories", status.context("cannot run cargo-deny")?.success());
    Ok(())
}

/// Where cargo-deny keeps its databases, unless its configuration names another place.
fn databases() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    home.unwrap_or_default().join("advisory-dbs")
}

/// When the database in the directory was last changed: the day of its newest commit, and how many days ago that was.
fn date(databases: &Path) -> Option<(String, u64)> {
    let mut entries = std::fs::read_dir(databases).ok()?.flatten().filter(|entry| entry.path().is_dir());
    entries.find_map(|entry| {
        let mut git = Command::new("git");
        let git = git.arg("-C").arg(entry.path()).args(["log", "-1", "--format=%cs %ct"]).output().ok()?;
        let text = String::from_utf8_lossy(&git.stdout).trim().to_owned();
        let (day, seconds) = text.split_once(' ').filter(|_| git.status.success())?;
        let then = UNIX_EPOCH + Duration::from_secs(seconds.parse().ok()?);
        let age = SystemTime::now().duration_since(then).unwrap_or_default();
        Some((day.to_owned(), age.as_secs() / 86_400))
    })
}
