//! `xtask bench`.

use std::path::Path;

use crate::process::run_cargo;

/// Measures; arguments go to the program that does.
pub(crate) fn bench(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    if !root.join("tests/bench/Cargo.toml").exists() {
        println!("there is nothing to measure yet");
        return Ok(true);
    }
    let mut command = vec!["run", "--release", "--locked", "-p", "neonvm-bench", "--"];
    command.extend(arguments.iter().map(String::as_str));
    if !crate::guest::run(root)? {
        return Ok(false);
    }
    run_cargo(root, &["build", "--release", "--locked", "--quiet", "-p", "neonvm-neond", "-p", "neonvm-cli"])
        .and_then(|built| Ok(built && run_cargo(root, &command)?))
}
