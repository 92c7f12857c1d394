//! The fault switches under a watcher that has to stay right: what `kube::runtime` believes in the end is what is there.

mod cluster;

use anyhow::{Context as _, ensure};
use neonvm_bench::process::{Process, Program};

use crate::kill::PATIENCE;
use cluster::{Cluster, Reflector};

/// Runs every switch; a line for each.
///
/// # Errors
/// The first switch under which the watcher or the writer went wrong, or which did nothing.
pub async fn run(program: &Program) -> anyhow::Result<Vec<String>> {
    let directory = tempfile::Builder::new().prefix("neonvm-chaos-").tempdir()?;
    let process = Process::start(program, directory.path(), true).await?;
    let mut cluster = Cluster::new(process.client().await?);
    let mut lines = Vec::new();
    for name in SWITCHES {
        let turn = tokio::time::timeout(PATIENCE, switch(name, &mut cluster));
        lines.push(
            turn.await.with_context(|| format!("{name}: no end"))?.with_context(|| (*name).to_owned())?,
        );
        cluster.calm().await?;
    }
    Ok(lines)
}

const SWITCHES: &[&str] = &[
    "delay-watch",
    "duplicate-watch",
    "drop-watch",
    "compact",
    "fail 409",
    "fail 429",
    "fail 500",
    "lose-response",
    "stale-list",
    "everything",
];

async fn switch(name: &str, cluster: &mut Cluster) -> anyhow::Result<String> {
    match name {
        "stale-list" => return stale(cluster).await,
        "compact" => return compacted(cluster).await,
        _ => {}
    }
    let reflector = cluster.reflect().await?;
    let before = reflector.seen();
    cluster.write(10).await?;
    match name {
        "delay-watch" => cluster.set("delay-watch", 50).await?,
        "duplicate-watch" => cluster.set("duplicate-watch", 20).await?,
        "drop-watch" => cluster.set("drop-watch", 5).await?,
        "lose-response" => cluster.set("lose-response", 10).await?,
        "everything" => {
            for (name, value) in [
                ("delay-watch", 5),
                ("duplicate-watch", 20),
                ("drop-watch", 10),
                ("lose-response", 10),
                ("status", 500),
                ("fail", 10),
            ] {
                cluster.set(name, value).await?;
            }
        }
        _ => {
            let status = name.rsplit(' ').next().and_then(|text| text.parse().ok()).unwrap_or(500);
            cluster.set("status", status).await?;
            cluster.set("fail", 10).await?;
        }
    }
    let trouble = cluster.write(100).await?;
    cluster.calm().await?;
    let seen = reflector.agrees(cluster).await?;
    match name {
        "duplicate-watch" => ensure!(seen.repeated > before.repeated, "no event came twice: {seen:?}"),
        "lose-response" => ensure!(trouble.lost == 10, "not every answer was lost: {trouble:?}"),
        "delay-watch" | "drop-watch" => {}
        "everything" => ensure!(trouble.lost > 0 && trouble.refused > 0, "nothing happened: {trouble:?}"),
        _ => ensure!(
            trouble.refused + seen.errors >= 10,
            "not every request was refused: {trouble:?}, {seen:?}"
        ),
    }
    Ok(format!("{name}: {trouble}; {seen}"))
}

/// The history goes away under a watcher that lags behind.
async fn compacted(cluster: &mut Cluster) -> anyhow::Result<String> {
    let reflector = cluster.reflect().await?;
    let before = reflector.seen();
    cluster.set("delay-watch", 50).await?;
    let mut rounds = 0;
    // A delayed watch is behind after a write; whether it is so at the very moment is up to the scheduler.
    while reflector.seen().lists < before.lists + 3 {
        cluster.write(10).await?;
        cluster.compact().await?;
        rounds += 1;
        ensure!(rounds < 1_000, "a compaction under a lagging watch goes unnoticed");
    }
    cluster.calm().await?;
    let seen = reflector.agrees(cluster).await?;
    Ok(format!("compact: {rounds} compactions; {seen}"))
}

/// A watcher that starts from an old list finds its way to the present.
async fn stale(cluster: &mut Cluster) -> anyhow::Result<String> {
    cluster.write(20).await?;
    let (old, version) = cluster.list().await?;
    cluster.write(50).await?;
    let (new, _) = cluster.list().await?;
    ensure!(old != new, "nothing was written");
    cluster.set("stale-list", version).await?;
    let (shown, shown_version) = cluster.list().await?;
    ensure!(
        shown == old && shown_version == version,
        "the list is not the one of {version}: {shown_version}"
    );
    let reflector = cluster.reflect().await?;
    cluster.write(20).await?;
    cluster.calm().await?;
    let seen = reflector.agrees(cluster).await?;
    Ok(format!("stale-list: {seen}"))
}

impl Reflector {
    /// Waits until it believes what a list shows.
    async fn agrees(mut self, cluster: &mut Cluster) -> anyhow::Result<cluster::WatcherCounts> {
        // One more change, so that something comes after the trouble.
        cluster.write(1).await?;
        let (listed, _) = cluster.list().await?;
        let agreed = tokio::time::timeout(PATIENCE / 2, self.until(&listed)).await;
        ensure!(agreed.is_ok(), "it believes {:?}, a list shows {listed:?}", self.believed());
        agreed.context("no agreement")??;
        Ok(self.seen())
    }
}
