//! Start of an empty server, and its cost without requests.

use std::time::Duration;

use super::Setup;
use crate::process::Process;
use crate::report::{Row, quantile};

/// Seconds.
const START_GOAL: f64 = 1.0;
/// Percent of one core.
const IDLE_GOAL: f64 = 0.5;
const STARTS: usize = 5;
/// Longer than any ordinary timer of the server.
const IDLE: Duration = Duration::from_secs(10);

pub(super) async fn empty(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let mut samples = Vec::new();
    let mut memory = 0;
    for _ in 0..STARTS {
        let directory = setup.directory()?;
        let process = Process::start(&setup.program, directory.path(), false).await?;
        samples.push(process.ready.as_secs_f64());
        memory = process.memory()?;
    }
    let memory = memory as f64 / f64::from(1 << 20);
    Ok(vec![
        Row::at_most(
            "start",
            "new cluster, process start → /readyz",
            quantile(&mut samples, 0.5),
            "s",
            START_GOAL,
        )
        .note(format!("median of {STARTS}, keys and certificates made")),
        Row::plain("start", "memory of an empty server", memory, "MiB"),
    ])
}

pub(super) async fn idle(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let directory = setup.directory()?;
    let process = Process::start(&setup.program, directory.path(), false).await?;
    let before = process.cpu()?;
    tokio::time::sleep(IDLE).await;
    let used = process.cpu()?.saturating_sub(before);
    let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
    Ok(vec![Row::at_most("idle", "processor time over 10 s", percent, "%", IDLE_GOAL).note("of one core")])
}
