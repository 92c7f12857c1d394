//! What a person waits for: `neonctl --help`, and `neonctl local up` until the cluster answers.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;

use super::Setup;
use crate::report::{Row, quantile};

/// Seconds.
const HELP_GOAL: f64 = 0.030;
/// Seconds.
const UP_GOAL: f64 = 1.0;
const RUNS: usize = 20;
const CLUSTERS: usize = 5;

/// Measures the `neonctl` beside the server.
pub(super) fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let beside = std::env::current_exe()?;
    let neonctl = beside.with_file_name("neonctl");
    if !neonctl.exists() {
        anyhow::bail!("{} is missing: cargo build --release -p neonvm-cli", neonctl.display());
    }
    let directory = setup.directory()?;
    let timed = |arguments: &[&str]| -> anyhow::Result<f64> {
        let started = Instant::now();
        let status = Command::new(&neonctl)
            .args(arguments)
            .env("XDG_STATE_HOME", directory.path())
            .env("XDG_CONFIG_HOME", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", neonctl.display()))?;
        anyhow::ensure!(status.success(), "neonctl {} failed", arguments.join(" "));
        Ok(started.elapsed().as_secs_f64())
    };
    let mut help = Vec::new();
    for _ in 0..RUNS {
        help.push(timed(&["--help"])?);
    }
    let mut up = Vec::new();
    for _ in 0..CLUSTERS {
        let ready = timed(&["local", "up", "--name", "bench"]);
        // Whatever became of it, nothing is left running.
        timed(&["local", "down", "--name", "bench", "--delete"])?;
        up.push(ready?);
    }
    Ok(vec![
        Row::at_most("command-line", "neonctl --help", quantile(&mut help, 0.5), "s", HELP_GOAL)
            .note(format!("median of {RUNS}")),
        Row::at_most(
            "command-line",
            "neonctl local up, definitions applied",
            quantile(&mut up, 0.5),
            "s",
            UP_GOAL,
        )
        .note(format!("median of {CLUSTERS}")),
    ])
}
