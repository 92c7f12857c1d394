//! Reading what the machine says: console, logs, reports, QEMU's own words; and keeping its files in step.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Console, Daemon, Event, Machine, PodFiles, Sink};
use crate::guest::{files, report};
use crate::logs::{Line, Lines, Source};
use crate::runtime;

/// Attaches to all sockets of a machine; the tasks end with it.
pub(super) fn attach(
    machine: &Machine,
    sink: &Sink,
    events: &mpsc::Sender<Event>,
) -> (Console, Vec<JoinHandle<()>>) {
    let mut readers = Vec::new();
    let console = match machine.take_console() {
        Some(line) => {
            let (console, reader) = Console::attach(line, sink.clone());
            readers.push(reader);
            console
        }
        None => Console::attach(tokio::io::empty(), sink.clone()).0,
    };
    if let Some(port) = machine.take_report() {
        readers.push(tokio::spawn(report::read(port, events.clone())));
    }
    if let Some(port) = machine.take_log() {
        readers.push(tokio::spawn(copy(port, sink.clone())));
    }
    if let Some(mut stderr) = machine.take_stderr() {
        let sink = sink.clone();
        readers.push(tokio::spawn(async move {
            while let Some(text) = stderr.recv().await {
                sink.write(Source::Qemu, Line { text, partial: false }).await;
            }
        }));
    }
    (console, readers)
}

/// The log port: line by line, at the pace of the log.
async fn copy(mut port: tokio::net::UnixStream, sink: Sink) {
    let (mut buffer, mut lines) = (vec![0; 16 << 10], Lines::default());
    while let Ok(count @ 1..) = port.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or_default()) {
            sink.write(Source::Guest, line).await;
        }
    }
    if let Some(line) = lines.finish() {
        sink.write(Source::Guest, line).await;
    }
}

/// Files that are kept in step.
pub(super) fn files(pod: &Arc<PodFiles>, daemon: &Daemon, events: &mpsc::Sender<Event>) -> JoinHandle<()> {
    let spec = &pod.config.spec;
    let disks =
        spec.disks.iter().filter(|disk| runtime::is_synchronised(disk)).map(|disk| disk.mount_path.clone());
    let paths = disks.chain(spec.tls.as_ref().map(|tls| tls.mount_path.clone()));
    let pairs = paths.map(|target| files::Pair { source: pod.mounted(&target), target }).collect();
    tokio::spawn(files::keep(pairs, daemon.clone(), events.clone()))
}
