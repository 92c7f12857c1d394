//! Start of an empty server.

use super::Setup;
use crate::process::Process;
use crate::report::{Row, Rows, quantile};

/// Name for `--only`.
const NAME: &str = "start";
/// Seconds.
const GOAL: f64 = 1.0;
const STARTS: usize = 5;

pub(super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    let mut samples = Vec::new();
    let mut memory = 0;
    for _ in 0..STARTS {
        let directory = setup.directory()?;
        let process = Process::start(&setup.program, directory.path(), false).await?;
        samples.push(process.ready.as_secs_f64());
        memory = process.memory()?;
    }
    let median = quantile(&mut samples, 0.5);
    let what = "new cluster, process start → /readyz";
    rows.push(
        Row::at_most(NAME, what, median, "s", GOAL)
            .note(format!("median of {STARTS}, keys and certificates made")),
    )?;
    let memory = memory as f64 / f64::from(1 << 20);
    rows.push(Row::plain(NAME, "memory of an empty server", memory, "MiB"))
}
