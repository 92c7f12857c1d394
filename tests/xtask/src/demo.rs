//! `xtask demo` and `xtask bench`.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::package::cargo;

/// Runs a cargo command with its output as it is; true if it succeeded.
fn run_cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new(cargo()).args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot run cargo {}", arguments.join(" ")))?.success())
}

/// A local cluster from start to end, each command shown before it runs.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    if !run_cargo(
        root,
        &["build", "--release", "--locked", "--quiet", "-p", "neonvm-cli", "-p", "neonvm-neond"],
    )? {
        return Ok(false);
    }
    let bin = root.join("target/release");
    let state = std::env::temp_dir().join(format!("neonvm-demo-{}", std::process::id()));
    std::fs::create_dir_all(&state)?;
    let kubeconfig = state.join("demo/kubeconfig");
    let data = format!("--data-dir={}", state.display());
    let mut path = vec![bin];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path)?;
    let step = |program: &str, arguments: &[&str]| -> anyhow::Result<bool> {
        println!("$ {program} {}", arguments.join(" "));
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root).env("PATH", &path).env("KUBECONFIG", &kubeconfig);
        let good = command.status().with_context(|| format!("cannot run {program}"))?.success();
        println!();
        Ok(good)
    };
    let mut good = step("neonctl", &["local", "up", "--name", "demo", &data])?;
    if good && crate::process::installed("kubectl") {
        good &= step("kubectl", &["apply", "-f", "examples/vm/autoscaled.yaml"])?;
        good &= step("kubectl", &["get", "vm"])?;
    } else {
        println!("kubectl is not installed: its part is left out\n");
    }
    good = good && step("neonctl", &["status"])?;
    // Whatever went wrong before, nothing stays behind.
    good &= step("neonctl", &["local", "down", "--name", "demo", "--delete", &data])?;
    std::fs::remove_dir_all(&state).ok();
    Ok(good)
}

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
