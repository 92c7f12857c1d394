//! End-to-end lanes are the test binaries beside this file; they run programs, and of our crates know only
//! the one that keeps ports for them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What cargo tells the programs that it runs. Build scripts that look at it (that of `ring` does) would do their work again, and
/// most of the workspace after them.
const TOLD: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"];

/// Cargo at the root of the repository, as if it was called by hand.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| TOLD.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

/// The directory of the programs, built if they are not, for the lane of this name.
///
/// # Errors
/// If cargo cannot be run or the programs do not build, or if the caller is no test of this crate.
pub fn programs(lane: &str) -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().and_then(Path::parent);
    let directory = directory.ok_or_else(|| std::io::Error::other("tests are in `deps`"))?;
    let mut build = cargo();
    // The whole workspace and a test of it: so everything has the features that it has in all lanes, and is compiled once.
    build.args(["build", "--quiet", "--locked", "--workspace", "--bins", "--test", lane]);
    if directory.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status()?.success();
    if built { Ok(directory.to_owned()) } else { Err(std::io::Error::other("the programs do not build")) }
}

/// Whether anything of a process lives: what it has open is closed when its last thread ends, not when its first one does.
#[must_use]
pub fn is_alive(pid: impl std::fmt::Display) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    })
}
