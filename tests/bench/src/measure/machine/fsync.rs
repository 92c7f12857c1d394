//! What a database waits for at each commit: a page that is written to a volume and has reached the disk, in a guest of the cluster, in a
//! guest of a bare QEMU with the same flags, and without a guest.

use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use neonvm_kit::port::Reserved;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::super::Setup;
use super::bare::Recipe;
use super::bare::stored::{answered, forward};
use super::cluster::{self, Cluster};
use super::watch::Watch;
use super::{LIMIT, NAME_VOLUME as NAME, both, log, milliseconds, start};
use crate::report::{Row, Rows};

/// Series of each kind, in turn, and pages of each series.
const ROUNDS: usize = 20;
const PAGES: usize = 200;
/// Bytes of a page, as PostgreSQL writes it to its log.
const PAGE: usize = 8192;
/// Port of the guest that runs a series for each connection.
const PORT: u16 = 7;
const IMAGE: &str = "fsync:1";
/// MiB of the volume.
const SIZE: u64 = 256;
/// Times what a bare QEMU needs.
const BESIDE_BARE: f64 = 1.15;

/// All of it, in a cluster of its own.
pub(super) async fn run(setup: &Setup, rows: &mut Rows) -> anyhow::Result<()> {
    let cluster = Cluster::start(setup, &["--nodes", "1", "--cpus", "4"])?;
    // Every write to a file system that is mounted so returns when the disk has flushed it.
    let series = format!("exec 2>&1; time dd if=/dev/zero of=/data/log bs={PAGE} count={PAGES} conv=notrunc");
    let workload =
        format!("set -e; mount -o remount,sync /data; exec nc -ll -p {PORT} -e /bin/sh -c '{series}'");
    cluster.image_of(IMAGE, &workload)?;
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    let mut object = cluster::machine_with_a_volume("commits", IMAGE, SIZE)?;
    let guest = object.data.pointer_mut("/spec/guest").and_then(serde_json::Value::as_object_mut);
    guest.context("a machine without a guest")?.insert("ports".to_owned(), json!([{"port": PORT}]));
    let address = watch.create(&client, &object).await?;
    let address = format!("{address}:{PORT}").parse()?;
    // The first series of each guest is not counted.
    answered(async || one(address).await).await?;
    let process = log::child(start::runner(&cluster)?)?;
    let (mut bare, _) = Recipe::from_process(process, &cluster.home().join("bare"))?
        .start(false)
        .await
        .context("a bare guest")?;
    let beside = Reserved::loopback()?;
    forward(&mut bare.monitor, beside.address(), PORT).await?;
    answered(async || one(beside.address()).await).await?;

    let [mut ours, mut theirs, mut host] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        ours.push(one(address).await?);
        theirs.push(one(beside.address()).await?);
        host.push(without_a_guest(&cluster.home().join("log"))?);
    }
    bare.end()?;
    watch.delete(&client, "commits").await?;
    rows.push(row(&ours, &theirs, &host))?;
    cluster.down()
}

fn row(ours: &[f64], bare: &[f64], host: &[f64]) -> Row {
    let ((ours, ours_p90), (bare, bare_p90), (host, _)) = (both(ours), both(bare), both(host));
    Row::at_most(NAME, "page written and flushed, beside a bare QEMU", ours / bare, "×", BESIDE_BARE).note(format!(
        "median {ours:.3} beside {bare:.3} ms, p90 {ours_p90:.3} beside {bare_p90:.3}, without a guest {host:.3}; \
         {ROUNDS} series of {PAGES} pages each, in turn"
    ))
}

/// Milliseconds for each page of a series, as the guest measures them: its own clock does not count the connection.
async fn one(address: SocketAddr) -> anyhow::Result<f64> {
    let mut text = String::new();
    let read = async { TcpStream::connect(address).await?.read_to_string(&mut text).await };
    tokio::time::timeout(LIMIT, read).await??;
    let seconds = taken(&text).with_context(|| format!("{text:?} has no time"))?;
    Ok(seconds * 1e3 / PAGES as f64)
}

/// Seconds in what busybox's shell prints: `real\t0m 2.42s`.
fn taken(text: &str) -> Option<f64> {
    let (minutes, rest) = text.split_once("real")?.1.split_once('m')?;
    let seconds = rest.split_once('s')?.0;
    Some(minutes.trim().parse::<f64>().ok()? * 60.0 + seconds.trim().parse::<f64>().ok()?)
}

/// The same on the file system of the volumes.
fn without_a_guest(path: &Path) -> anyhow::Result<f64> {
    let (file, page) = (std::fs::File::create(path)?, [0; PAGE]);
    for at in 0..PAGES {
        file.write_all_at(&page, (at * PAGE) as u64)?;
    }
    file.sync_all()?;
    let begun = Instant::now();
    for at in 0..PAGES {
        file.write_all_at(&page, (at * PAGE) as u64)?;
        file.sync_data()?;
    }
    Ok(milliseconds(begun.elapsed()) / PAGES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_series_is_read() {
        assert_eq!(taken("200+0 records out\nreal\t1m 2.50s\nuser\t0m 0.01s\n"), Some(62.5));
        assert_eq!(taken("dd: can't open '/data/log'\n"), None);
    }
}
