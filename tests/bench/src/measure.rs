//! The measurements. Each starts what it measures over a fresh directory.

mod machine;
mod objects;
mod scheduler;
mod start;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::process::Program;
use crate::report::Rows;

#[derive(Clone, Debug)]
pub struct Setup {
    pub program: Program,
    pub vms: usize,
    /// Where the state goes; on a disk, not in memory, or durable writes measure nothing.
    pub directory: PathBuf,
}

impl Setup {
    fn directory(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("neonvm-bench-").tempdir_in(&self.directory)?)
    }
}

/// Names for `--only`, in the order in which they run.
pub const NAMES: &[&str] =
    &["start", "machine", "growth", "migration", "suspend", "volume", "fleet", "scheduler"];

/// Runs one measurement, which adds each of its rows as soon as it is measured.
pub async fn run(name: &str, setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    match name {
        "start" => start::run(setup, rows).await,
        "machine" => machine::run(setup, rows).await,
        "growth" => machine::growth::run(setup, rows).await,
        "migration" => machine::migration::run(setup, rows).await,
        "suspend" => machine::suspend::run(setup, rows).await,
        "volume" => machine::volume(setup, rows).await,
        "scheduler" => scheduler::run(setup, rows).await,
        "fleet" => {
            let directory = setup.directory()?;
            crate::fleet::run(setup.program.path(), directory.path(), setup.vms, rows).await
        }
        _ => anyhow::bail!("there is no measurement {name:?}; there are {}", NAMES.join(", ")),
    }
}

/// A program of the same build.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.exists(), "{} is missing: make bench builds it", path.display());
    Ok(path)
}

/// Runs a command; its output is shown only if it fails.
fn run_command(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Processor time that the whole host has used. The kernel counts it in hundredths of a second on every Linux.
fn processors() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let first = text.lines().next().unwrap_or("");
    let numbers: Vec<u64> = first.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at: &usize| numbers.get(*at)).sum::<u64>();
    Ok(Duration::from_millis(busy * 10))
}
