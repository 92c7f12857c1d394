//! `xtask bench`.

use std::path::Path;

use anyhow::Context as _;

use crate::package::target;
use crate::process::run_cargo;

/// Measures; arguments go to the program that does. Programs are built together, so that what they share is compiled once.
pub(crate) fn bench(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let build = "build --release --locked --quiet -p neonvm-neond -p neonvm-cli -p neonvm-bench";
    if !crate::guest::run(root)? || !run_cargo(root, &build.split(' ').collect::<Vec<_>>())? {
        return Ok(false);
    }
    let program = target(root)?.join("release/neonvm-bench");
    let status = std::process::Command::new(&program).args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot run {}", program.display()))?.success())
}
