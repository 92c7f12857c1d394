//! A whole local cluster with machines, beside bare QEMU with the same kernel, disk, devices and accelerator. Emulated, so that
//! every machine can measure it.

mod bare;
mod cluster;
mod fsync;
pub(super) mod growth;
mod list;
mod log;
pub(super) mod migration;
mod qmp;
mod quota;
mod resident;
mod size;
mod start;
pub(super) mod suspend;
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use self::cluster::Cluster;
use super::Setup;
use crate::report::{Row, Rows, quantile};

/// Name for `--only`.
const NAME: &str = "machine";
/// The same of [`growth`].
const NAME_GROWTH: &str = "growth";
/// The same of [`migration`].
const NAME_MIGRATION: &str = "migration";
/// The same of [`suspend`].
const NAME_SUSPEND: &str = "suspend";
/// The same of [`volume`].
const NAME_VOLUME: &str = "volume";
/// Longest wait for anything; emulated on a busy machine it may be slow.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(missing) = missing()? {
        return rows.push(Row::plain(NAME, "skipped", 0.0, "").note(missing));
    }
    rows.push(Row::plain(NAME, "load of this host, before", load(), "").note("average of one minute"))?;
    let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4"]).context("the local cluster")?;
    cluster.image()?;
    let reference = start::warm_up(&cluster).await?;
    rows.extend(start::run(&cluster, &reference).await.context("starts")?)?;
    rows.extend(size::run(&cluster, &reference).await.context("sizes")?)?;
    rows.extend(resident::run(&cluster).await.context("memory")?)?;
    drop(reference);
    cluster.down()?;
    rows.push(list::up(setup).context("local up")?)?;
    rows.push(list::run(setup).await.context("lists")?)
}

/// Machines with persistent volumes.
pub(super) async fn volume(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    if let Some(missing) = missing()? {
        return rows.push(Row::plain(NAME_VOLUME, "skipped", 0.0, "").note(missing));
    }
    rows.push(
        Row::plain(NAME_VOLUME, "load of this host, before", load(), "").note("average of one minute"),
    )?;
    fsync::run(setup, rows).await?;
    migration::with_volume(setup, rows).await
}

/// What is not there, if something is not.
fn missing() -> anyhow::Result<Option<String>> {
    if Command::new("id").arg("-u").output()?.stdout != b"0\n" {
        return Ok(Some("needs root".to_owned()));
    }
    for program in ["qemu-system-x86_64", "qemu-img", "kubectl", "nft", "ip", "mkfs.ext4"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
        if !found.status.success() {
            return Ok(Some(format!("needs {program}")));
        }
    }
    Ok(None)
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Median and 90th percentile.
fn both(samples: &[f64]) -> (f64, f64) {
    let mut samples = samples.to_vec();
    (quantile(&mut samples, 0.5), quantile(&mut samples, 0.9))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn repository() -> anyhow::Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?)
}

/// Difference of the medians, beside its goal.
fn beyond(what: &str, ours: &[f64], bare: &[f64], goal: f64) -> Row {
    let ((ours, ours_p90), (bare, bare_p90)) = (both(ours), both(bare));
    Row::at_most(NAME, what, ours - bare, "ms", goal)
        .note(format!("median {ours:.1} beside {bare:.1} ms, p90 {ours_p90:.1} beside {bare_p90:.1} ms"))
}
