//! `local up` until everything is ready, and lists of a thousand machines beside `kubectl`.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::{self, Cluster, machines};
use super::{NAME, Setup, both};
use crate::report::{Row, quantile};

/// Seconds.
const UP_GOAL: f64 = 5.0;
/// Ours divided by the reference.
const LIST_GOAL: f64 = 1.0 / 3.0;
const CLUSTERS: usize = 5;
const ROUNDS: usize = 15;
const MACHINES: usize = 1000;
/// Requests at the same time.
const AT_ONCE: usize = 32;

/// New clusters with one node.
pub(super) fn up(setup: &Setup) -> anyhow::Result<Row> {
    let mut samples = Vec::new();
    for _ in 0..CLUSTERS {
        let cluster = Cluster::start(setup, &["--nodes", "1"])?;
        samples.push(cluster.took);
        cluster.down()?;
    }
    let (median, p90) = both(&samples);
    Ok(Row::at_most(NAME, "local up → one node ready, whole cluster", median, "s", UP_GOAL)
        .note(format!("median of {CLUSTERS}, p90 {p90:.2} s")))
}

/// Objects that look like running machines; no controller, so that nothing else happens.
pub(super) async fn run(setup: &Setup) -> anyhow::Result<Row> {
    let cluster = Cluster::start(setup, &["--nodes", "0"])?;
    fill(&cluster).await?;
    let programs: [(&Path, &[&str]); 2] =
        [(cluster.program(), &["vm", "list"]), (Path::new("kubectl"), &["get", "neonvm"])];
    let timed = |(program, arguments): (&Path, &[&str])| -> anyhow::Result<f64> {
        let mut command = cluster.command(program, arguments);
        let begun = Instant::now();
        let output = command.stderr(Stdio::inherit()).output()?;
        let took = begun.elapsed().as_secs_f64();
        let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        ensure!(output.status.success() && lines > MACHINES, "{command:?} printed {lines} lines");
        Ok(took * 1e3)
    };
    let [ours, theirs] = programs;
    // The first run fills the cache of discovery.
    timed(ours)?;
    timed(theirs)?;
    let (mut own, mut other, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let (a, b) = (timed(ours)?, timed(theirs)?);
        own.push(a);
        other.push(b);
        ratios.push(a / b);
    }
    cluster.down()?;
    let ((own, own_p90), (other, other_p90)) = (both(&own), both(&other));
    let what = format!("neonctl vm list ÷ kubectl get, {MACHINES} machines");
    Ok(Row::at_most(NAME, &what, quantile(&mut ratios, 0.5), "×", LIST_GOAL).note(format!(
        "median of {ROUNDS}, in turn; {own:.0} beside {other:.0} ms, p90 {own_p90:.0} beside {other_p90:.0} ms"
    )))
}

async fn fill(cluster: &Cluster) -> anyhow::Result<()> {
    let mut running = tokio::task::JoinSet::new();
    for first in 0..AT_ONCE {
        let api = machines(&cluster.client().await?);
        running.spawn(async move {
            for number in (first..MACHINES).step_by(AT_ONCE) {
                let name = format!("machine-{number}");
                cluster::create(&api, &name).await?;
                let status = json!({"status": {"phase": "Running", "cpus": 1, "memorySize": "256Mi",
                    "podName": format!("{name}-abcde"), "podIP": "10.77.1.2", "node": "n1", "restartCount": 0}});
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}
