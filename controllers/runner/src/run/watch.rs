//! Reads the output of the VM (console, logs, reports) and of QEMU, and keeps the guest's files up to date.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Console, Daemon, Event, Log, Machine, PodFiles};
use crate::guest::{files, report};
use crate::logs::{Line, Lines, Source};
use crate::runtime;
use crate::volume::Modes;

/// Attaches to all sockets of a VM; the tasks end with it.
pub(super) fn attach(
    machine: &Machine,
    log: &Log,
    events: &mpsc::Sender<Event>,
) -> (Console, Vec<JoinHandle<()>>) {
    let mut readers = Vec::new();
    let console = match machine.take_console() {
        Some(line) => {
            let (console, reader) = Console::attach(line, log.clone());
            readers.push(reader);
            console
        }
        None => Console::attach(tokio::io::empty(), log.clone()).0,
    };
    if let Some(port) = machine.take_report() {
        readers.push(tokio::spawn(report::read(port, events.clone())));
    }
    if let Some(port) = machine.take_log() {
        readers.push(tokio::spawn(copy(port, log.clone())));
    }
    if let Some(mut stderr) = machine.take_stderr() {
        let log = log.clone();
        readers.push(tokio::spawn(async move {
            while let Some(text) = stderr.recv().await {
                log.write(Source::Qemu, Line { text, partial: false }).await;
            }
        }));
    }
    (console, readers)
}

/// The log port: line by line, at the pace of the log.
async fn copy(mut port: tokio::net::UnixStream, log: Log) {
    let (mut buffer, mut lines) = (vec![0; 16 << 10], Lines::default());
    while let Ok(count @ 1..) = port.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or_default()) {
            log.write(Source::Guest, line).await;
        }
    }
    if let Some(line) = lines.finish() {
        log.write(Source::Guest, line).await;
    }
}

/// Files that are kept in step.
pub(super) fn files(pod: &Arc<PodFiles>, daemon: &Daemon, events: &mpsc::Sender<Event>) -> JoinHandle<()> {
    let spec = &pod.config.spec;
    let disks = spec.disks.iter().filter(|disk| runtime::is_synchronised(disk));
    let disks = disks.map(|disk| (disk.mount_path.clone(), Modes::of(disk)));
    let all = disks.chain(spec.tls.as_ref().map(|tls| (tls.mount_path.clone(), Modes::default())));
    let pair = |(target, modes): (String, Modes)| files::Pair { source: pod.mounted(&target), target, modes };
    let pairs = all.map(pair).collect();
    tokio::spawn(files::keep(pairs, daemon.clone(), events.clone()))
}
