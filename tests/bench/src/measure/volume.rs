//! Many objects: memory, and how long a start with them takes.

use super::{Setup, load};
use crate::process::Process;
use crate::report::Row;

/// Mebibytes.
const MEMORY_GOAL: f64 = 400.0;
/// Seconds.
const START_GOAL: f64 = 3.0;

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let directory = setup.directory()?;
    let mut process = Process::start(&setup.program, directory.path(), false).await?;
    let took = load::create(&process, "stored", setup.objects, 1024).await?;
    let loaded = mebibytes(process.memory()?);
    // A start after a kill, the slowest kind: the state file has to be checked first.
    process.kill()?;
    let file = std::fs::metadata(directory.path().join("state.redb"))?.len();
    let process = Process::start(&setup.program, directory.path(), false).await?;
    let started = process.ready.as_secs_f64();
    let restarted = mebibytes(process.memory()?);
    let what = |what: &str| format!("{} objects of 1 KiB: {what}", setup.objects);
    Ok(vec![
        Row::at_most("volume", &what("memory after their creation"), loaded, "MiB", MEMORY_GOAL)
            .note(format!("window of past changes included; created in {:.1} s", took.as_secs_f64())),
        Row::at_most("volume", &what("memory after a restart"), restarted, "MiB", MEMORY_GOAL),
        Row::at_most("volume", &what("start after a kill → /readyz"), started, "s", START_GOAL)
            .note(format!("state file {:.0} MiB", mebibytes(file))),
    ])
}
