//! Two bare QEMUs, one of which hands its guest to the other.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use neonvm_kit::ca::Authority;
use serde_json::{Value, json};

use super::super::bare::{Bare, Recipe};
use super::super::qmp::Monitor;
use super::super::{LIMIT, milliseconds};
use super::{Move, Use, processors};

/// Between two questions to a monitor.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// Between two looks at the memory of a guest that fills it.
const FILL_EVERY: Duration = Duration::from_millis(500);
/// The root disk, of which the base is on both sides.
const ROOT: &str = "disk0";

/// Name in the certificate of a target that encrypts.
const TARGET: &str = "target.test";
/// The credentials of the two sides, for their monitors.
const CREDENTIALS: (&str, &str) = ("client", "server");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// As QEMU does without settings.
    Plain,
    /// With QEMU's own TLS; each checks the other's certificate.
    Encrypted,
}

/// How to start either side.
pub(super) struct Pair {
    sides: [Recipe; 2],
    directory: PathBuf,
    /// What the guest has in use when it moves.
    used: Use,
}

impl Pair {
    /// From a machine that runs now.
    pub(super) fn from_process(process: u32, directory: &Path, used: Use) -> anyhow::Result<Self> {
        let side = |name: &str| Recipe::from_process(process, &directory.join(name));
        let pair = Self { sides: [side("one")?, side("other")?], directory: directory.to_owned(), used };
        pair.write_credentials()?;
        Ok(pair)
    }

    /// Certificates and keys under the names that QEMU reads.
    fn write_credentials(&self) -> anyhow::Result<()> {
        let (authority, _) = Authority::generate()?;
        let (server, client) =
            (authority.server("target", &[TARGET.to_owned()])?, authority.client("source", &[])?);
        let file = |name: &str, text: &str| std::fs::write(self.directory.join(name), text);
        file("ca-cert.pem", authority.certificate())?;
        for (side, identity) in [("server", &server), ("client", &client)] {
            file(&format!("{side}-cert.pem"), &identity.certificate)?;
            file(&format!("{side}-key.pem"), &identity.key)?;
        }
        Ok(())
    }

    async fn give_credentials(&self, monitor: &mut Monitor, endpoint: &str) -> anyhow::Result<()> {
        let object = json!({"qom-type": "tls-creds-x509", "id": endpoint, "dir": self.directory,
            "endpoint": endpoint, "verify-peer": true});
        monitor.ask("object-add", object).await?;
        let parameters = json!({"tls-creds": endpoint, "tls-hostname": TARGET});
        monitor.ask("migrate-set-parameters", parameters).await.map(drop)
    }

    /// A guest is started, moves to the other side and back.
    pub(super) async fn there_and_back(&self, wire: Wire) -> anyhow::Result<[Move; 2]> {
        let [one, other] = &self.sides;
        let (mut guest, _) = one.start(false).await?;
        filled(guest.process(), self.used).await?;
        let mut moves = [Move::default(); 2];
        for (target, slot) in [other, one].into_iter().zip(&mut moves) {
            let (begun, used) = (Instant::now(), processors()?);
            let mut next = target.start_for_a_move().await?;
            let (total, downtime) = self.hand_over((&mut guest, &mut next), wire).await?;
            let whole = milliseconds(begun.elapsed());
            let processor = milliseconds(processors()?.saturating_sub(used));
            *slot = Move { total, downtime, whole, processor };
            std::mem::replace(&mut guest, next).end()?;
        }
        guest.end()?;
        Ok(moves)
    }

    /// Milliseconds by QEMU: in all, and standing still.
    async fn hand_over(&self, (from, to): (&mut Bare, &mut Bare), wire: Wire) -> anyhow::Result<(f64, f64)> {
        let (from, to) = (&mut from.monitor, &mut to.monitor);
        let (memory, disk) = (self.directory.join("memory.sock"), self.directory.join("disk.sock"));
        for path in [&memory, &disk] {
            let _ = std::fs::remove_file(path);
        }
        settings(from).await?;
        settings(to).await?;
        let (mut export_with, mut copy_with) = (json!({}), json!({}));
        if wire == Wire::Encrypted {
            self.give_credentials(from, CREDENTIALS.0).await?;
            self.give_credentials(to, CREDENTIALS.1).await?;
            export_with = json!({"tls-creds": CREDENTIALS.1});
            copy_with = json!({"tls-creds": CREDENTIALS.0, "tls-hostname": TARGET});
        }
        let disks: Vec<&str> = self.sides[0].written().collect();
        let address = json!({"type": "unix", "data": {"path": disk}});
        to.ask("nbd-server-start", with(json!({"addr": address}), &export_with)).await?;
        for name in &disks {
            let export =
                json!({"type": "nbd", "id": name, "node-name": name, "name": name, "writable": true});
            to.ask("block-export-add", export).await?;
        }
        to.ask("migrate-incoming", json!({"uri": format!("unix:{}", memory.display())})).await?;
        for name in &disks {
            let (server, node) = (json!({"type": "unix", "path": disk}), format!("copy-{name}"));
            let copy = json!({"driver": "nbd", "node-name": node, "server": server, "export": name,
                "discard": "unmap"});
            from.ask("blockdev-add", with(copy, &copy_with)).await?;
            let sync = if *name == ROOT { "top" } else { "full" };
            let mirror = json!({"job-id": format!("mirror-{name}"), "device": name, "target": node, "sync": sync,
                "copy-mode": "background"});
            from.ask("blockdev-mirror", mirror).await?;
        }
        let is_ready = |jobs: &Value| {
            jobs.as_array().is_some_and(|jobs| jobs.iter().all(|job| job.get("ready") == Some(&json!(true))))
        };
        until(from, "query-block-jobs", is_ready).await?;
        // As ours: see `sees_all_writes` of neonvm-hypervisor.
        from.ask("stop", json!({})).await?;
        from.ask("migrate", json!({"uri": format!("unix:{}", memory.display())})).await?;
        until(from, "query-migrate", |info| !is(info, "setup")).await?;
        from.ask("cont", json!({})).await?;
        until(from, "query-migrate", |info| is(info, "pre-switchover")).await?;
        for name in &disks {
            from.ask("block-job-cancel", json!({"device": format!("mirror-{name}")})).await?;
        }
        until(from, "query-block-jobs", |jobs| jobs.as_array().is_some_and(Vec::is_empty)).await?;
        from.ask("migrate-continue", json!({"state": "pre-switchover"})).await?;
        let info = until(from, "query-migrate", |info| is(info, "completed") || is(info, "failed")).await?;
        ensure!(is(&info, "completed"), "{info}");
        for name in &disks {
            to.ask("block-export-del", json!({"id": name, "mode": "hard"})).await?;
        }
        to.ask("nbd-server-stop", json!({})).await?;
        until(to, "query-status", |status| is(status, "running")).await?;
        let number = |name: &str| info.get(name).and_then(Value::as_f64).context("a number is missing");
        Ok((number("total-time")?, number("downtime")?))
    }
}

/// An object with the fields of another one.
fn with(mut object: Value, more: &Value) -> Value {
    if let (Some(fields), Some(more)) = (object.as_object_mut(), more.as_object()) {
        fields.extend(more.clone());
    }
    object
}

fn is(answer: &Value, status: &str) -> bool {
    answer.get("status").and_then(Value::as_str) == Some(status)
}

/// The same as ours.
async fn settings(monitor: &mut Monitor) -> anyhow::Result<()> {
    let on = ["events", "return-path", "pause-before-switchover", "multifd", "auto-converge"];
    let on: Vec<Value> = on.iter().map(|name| json!({"capability": name, "state": true})).collect();
    monitor.ask("migrate-set-capabilities", json!({"capabilities": on})).await?;
    let numbers = json!({"max-bandwidth": 1_u64 << 30, "downtime-limit": 0, "multifd-channels": 4,
        "multifd-compression": "zstd"});
    monitor.ask("migrate-set-parameters", numbers).await.map(drop)
}

/// Asks until the answer is as it should be.
async fn until(monitor: &mut Monitor, command: &str, good: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let limit = Instant::now() + LIMIT;
    loop {
        let answer = monitor.ask(command, json!({})).await?;
        if good(&answer) {
            return Ok(answer);
        }
        if Instant::now() > limit {
            bail!("{command}: {answer}");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Waits until the process has so much in use, and is quiet.
pub(super) async fn filled(process: u32, used: Use) -> anyhow::Result<()> {
    settled("in use", used.memory, || memory(process)).await?;
    settled("on its volume", used.volume, || on_disk(process, used.volume)).await
}

/// MiB of memory of a process that it shares with no other one.
fn memory(process: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    // A memory of the guest is a file of its own: `RssShmem`.
    let fields = ["RssAnon:", "RssShmem:"];
    let kib = text.lines().filter_map(|line| fields.iter().find_map(|field| line.strip_prefix(field)));
    Ok(kib.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum::<u64>() >> 10)
}

/// MiB that the largest file of more than so many MiB that a process has open takes on its disk.
fn on_disk(process: u32, mebibytes: u64) -> anyhow::Result<u64> {
    let mut most = 0;
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        // Descriptors come and go.
        let Ok(metadata) = std::fs::metadata(entry?.path()) else { continue };
        if metadata.is_file() && metadata.len() > mebibytes << 20 {
            most = metadata.blocks().max(most);
        }
    }
    Ok(most >> 11)
}

/// Waits until a measure of the guest, in MiB, is so large, and stays as it is; not at all for none.
async fn settled(
    what: &str,
    mebibytes: u64,
    measure: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    if mebibytes == 0 {
        return Ok(());
    }
    let limit = Instant::now() + LIMIT;
    let mut before = 0;
    loop {
        let now = measure()?;
        if now >= mebibytes && now == before {
            return Ok(());
        }
        ensure!(Instant::now() < limit, "the guest has {now} of {mebibytes} MiB {what}");
        before = now;
        tokio::time::sleep(FILL_EVERY).await;
    }
}
