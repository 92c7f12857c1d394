//! The time in packages, which is not that of packing: the same commit gives the same bytes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Seconds since 1970, for reproducible builds (<https://reproducible-builds.org/specs/source-date-epoch/>).
const VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// The time that was given, or that of the commit.
pub(crate) fn of_packages(root: &Path) -> anyhow::Result<u64> {
    match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => parse(&text),
        _ => of_commit(root),
    }
}

fn parse(text: &str) -> anyhow::Result<u64> {
    text.parse().with_context(|| {
        format!(
            "{VARIABLE}={text:?} is not a number of seconds since 1970; unset it for the time of the commit"
        )
    })
}

fn of_commit(root: &Path) -> anyhow::Result<u64> {
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let output = output.context("cannot run git log")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "git shows no time of the commit; set {VARIABLE} to a number of seconds since 1970"
    );
    parse(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds() {
        assert_eq!(parse("1700000000").unwrap(), 1_700_000_000);
        let error = parse("yesterday").unwrap_err().to_string();
        assert!(error.starts_with("SOURCE_DATE_EPOCH=\"yesterday\" is not a number"), "{error}");
    }

    #[test]
    fn a_commit_has_a_time() {
        assert!(of_commit(&crate::package::root().unwrap()).unwrap() > 1_600_000_000);
    }
}
