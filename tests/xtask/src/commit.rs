//! The commit that is built: its time, its revision, where it comes from.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// The time in packages and images, in seconds since 1970: `SOURCE_DATE_EPOCH` (<https://reproducible-builds.org/specs/source-date-epoch/>),
/// else that of the commit.
pub(crate) fn time(root: &Path) -> anyhow::Result<String> {
    let given = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_default();
    let text = if given.is_empty() { git(root, &["log", "-1", "--format=%ct"])? } else { given };
    let seconds: u64 = text.parse().with_context(|| {
        format!("SOURCE_DATE_EPOCH={text:?} is not a number of seconds since 1970; unset it for the time of the commit")
    })?;
    Ok(seconds.to_string())
}

pub(crate) fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("cannot run git")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether tracked files differ from the commit.
pub(crate) fn has_changes(root: &Path) -> anyhow::Result<bool> {
    Ok(!git(root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty())
}

/// Where the source comes from; empty if that is a directory of this computer.
pub(crate) fn source(root: &Path) -> String {
    let url = git(root, &["config", "--get", "remote.origin.url"]).unwrap_or_default();
    if url.starts_with("https://") && !url.contains('@') { url } else { String::new() }
}
