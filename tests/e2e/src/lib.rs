//! What the end-to-end tests share: where the programs are, a client of the Kubernetes API, what fuzzers send, scenario files, and looks at
//! processes. The tests are the test programs beside this library; they start real programs.

pub mod book;
pub mod client;
pub mod fuzz;
pub mod kuttl;
pub mod sessions;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that the runner of `cargo xtask test` sets: programs and guest are built already.
const BUILT: &str = "NEONVM_TEST_BUILT";

/// Variables that cargo sets for the programs that it runs. Build scripts that read them (that of `ring` does) would do their
/// work again, and most of the workspace after them.
const PACKAGE_VARIABLES: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"];

/// Cargo at the root of the repository, as if it was called by hand.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| PACKAGE_VARIABLES.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

/// The directory of the programs. They are built if a person runs a test; the runner of all tests has built them before.
///
/// # Errors
/// If cargo cannot be run or the programs do not build, or if the caller is no test of this crate.
pub fn programs() -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().and_then(Path::parent);
    let directory = directory.ok_or_else(|| std::io::Error::other("tests are in `deps`"))?;
    if std::env::var_os(BUILT).is_none() {
        let mut build = cargo();
        // The whole workspace and a test of it: so everything has the features that it has in all lanes, and is compiled once.
        build.args(["build", "--quiet", "--locked", "--workspace", "--bins", "--test", "local"]);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        succeed(build, "the programs do not build")?;
    }
    Ok(directory.to_owned())
}

/// Builds the guest program beside the other programs, if a person runs a test.
///
/// # Errors
/// If it does not build.
pub fn guest() -> std::io::Result<()> {
    if std::env::var_os(BUILT).is_some() {
        return Ok(());
    }
    let mut build = cargo();
    build.args(["xtask", "guest"]);
    succeed(build, "the guest does not build")
}

fn succeed(mut command: Command, otherwise: &str) -> std::io::Result<()> {
    if command.status()?.success() { Ok(()) } else { Err(std::io::Error::other(otherwise)) }
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
