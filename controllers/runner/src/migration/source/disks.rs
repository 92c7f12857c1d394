//! Copies of the disks.

use std::collections::BTreeSet;
use std::time::Duration;

use neonvm_hypervisor::machine::JobEnd;
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{MigrationOrder, MigrationProgress};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::super::{DISK, NUMBERS};
use super::{Event, MachineEvent, ORDER, Work, locked};

/// Time for copies that are cancelled or finished to end.
const END: Duration = Duration::from_secs(10);

/// How far the copies of all disks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    done: Bytes,
    all: Bytes,
    /// Of what the guest writes to each, in a second.
    limit: Option<Bytes>,
}

impl Copied {
    /// QEMU does not count disks among its numbers.
    pub(super) fn add_to(self, progress: &mut MigrationProgress) {
        progress.disk_transferred = self.done;
        progress.disk_total = self.all;
        progress.disk_write_limit = self.limit;
    }
}

impl Work {
    /// Until all disks were whole on the target once. It has no time limit: that of the migration ends it.
    pub(super) async fn mirror(&self) -> Result<(), String> {
        let mut events = self.machine.events();
        let mut missing = BTreeSet::new();
        for name in self.machine.written_disks() {
            let index = self.machine.mirror_disk(DISK, &name).await;
            let index = index.map_err(|error| format!("disk {name}: {error}"))?;
            missing.insert(index);
            locked(&self.mirrors).push(index);
        }
        let mut tick = tokio::time::interval(NUMBERS);
        while !missing.is_empty() {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(MachineEvent::MirrorReady(index)) => drop(missing.remove(&index)),
                    Ok(MachineEvent::MirrorEnded(index, end)) if missing.contains(&index) => {
                        return Err(format!("a disk cannot be copied: {}", words(end)));
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => return Err("QEMU sends events too fast".to_owned()),
                    Err(RecvError::Closed) => return Err("QEMU is gone".to_owned()),
                },
                _ = tick.tick() => self.report_disks().await,
            }
        }
        if self.request.parameters.auto_converge {
            let limit = locked(&self.pace).0.caught_up();
            if let Some(limit) = limit {
                tracing::info!(%limit, "until it has moved, the guest writes its disks no faster than they are copied");
                self.limit_writes(Some(limit)).await;
            }
        }
        self.report_disks().await;
        Ok(())
    }

    async fn report_disks(&self) {
        if let Some(copied) = self.look_at_disks().await {
            let mut progress = MigrationProgress::default();
            copied.add_to(&mut progress);
            self.report(Event::Numbers(progress)).await;
        }
    }

    /// How far they are; `None` if no disk is being copied. Slows the guest down if the copy does not catch up with it.
    pub(super) async fn look_at_disks(&self) -> Option<Copied> {
        if locked(&self.mirrors).is_empty() {
            return None;
        }
        let (done, all) = self.machine.mirrored().await.ok().filter(|(_, all)| *all > Bytes::ZERO)?;
        if !self.request.parameters.auto_converge {
            return Some(Copied { done, all, limit: None });
        }
        let (new, limit) = {
            let (pace, last) = &mut *locked(&self.pace);
            let now = std::time::Instant::now();
            let new = pace.next(now - last.replace(now).unwrap_or(now), done, all);
            (new, pace.limit())
        };
        if let Some(limit) = new {
            tracing::info!(%limit, "the guest writes its disks faster than they are copied, and is slowed down");
            self.limit_writes(Some(limit)).await;
        }
        Some(Copied { done, all, limit })
    }

    /// Of each written disk, in bytes a second.
    async fn limit_writes(&self, limit: Option<Bytes>) {
        for index in self.machine.written_disk_numbers() {
            if let Err(error) = self.machine.limit_writes(index, limit).await {
                tracing::warn!(%error, index, "the speed of a disk cannot be set");
            }
        }
    }

    /// The guest is paused: the copies are completed, and the target closes them.
    pub(super) async fn settle(&self) -> Result<(), String> {
        let (disks, ()) = tokio::join!(self.finish_disks(), self.give_up_frames());
        disks?;
        // Either end closes the connections first.
        let (closed, settled) = tokio::join!(self.close_disks(), self.order(MigrationOrder::Settle, ORDER));
        closed.and(settled.map(drop))
    }

    async fn finish_disks(&self) -> Result<(), String> {
        let mut events = self.machine.events();
        let indexes = locked(&self.mirrors).clone();
        let text = |error: &dyn std::fmt::Display| format!("a disk cannot be finished: {error}");
        for &index in &indexes {
            self.machine.finish_mirror(index).await.map_err(|error| text(&error))?;
        }
        let ends = ended(&mut events, indexes.iter().copied().collect()).await?;
        if let Some(end) = ends.into_iter().find(|end| *end != JobEnd::Whole) {
            return Err(text(&words(end)));
        }
        Ok(())
    }

    async fn close_disks(&self) -> Result<(), String> {
        let indexes = locked(&self.mirrors).clone();
        for index in indexes {
            let closed = self.machine.close_mirror(index).await;
            closed.map_err(|error| format!("a disk cannot be finished: {error}"))?;
        }
        locked(&self.mirrors).clear();
        Ok(())
    }

    /// The guest continues here, with its disks only here. Cuts all connections to the target: data on its way need not
    /// arrive, and over a slow link QEMU would wait for it, possibly with a paused guest.
    pub(super) async fn give_up_disks(&self) {
        let mut events = self.machine.events();
        locked(&self.mirrors).clear();
        // Of all disks: the last order to QEMU may not have been recorded.
        let indexes = self.machine.written_disk_numbers();
        let mut waiting = BTreeSet::new();
        for index in self.machine.running_mirrors().await.unwrap_or_default() {
            if self.machine.abandon_mirror(index).await.is_ok() {
                waiting.insert(index);
            }
        }
        // Copies that were cancelled before do not fail by it.
        locked(&self.relays).clear();
        if let Err(why) = ended(&mut events, waiting).await {
            tracing::warn!(why, "copies of disks");
        }
        for index in indexes {
            if let Err(error) = self.machine.close_mirror(index).await {
                tracing::warn!(%error, "a connection of a disk is left over");
            }
        }
        let was_limited = std::mem::take(&mut *locked(&self.pace)).0.limit().is_some();
        if was_limited {
            self.limit_writes(None).await;
        }
    }
}

fn words(end: JobEnd) -> String {
    match end {
        JobEnd::Whole => "the copy ended too early".to_owned(),
        JobEnd::Cancelled => "the copy was given up".to_owned(),
        JobEnd::Failed(why) => why,
    }
}

async fn ended(
    events: &mut Receiver<MachineEvent>,
    mut waiting: BTreeSet<usize>,
) -> Result<Vec<JobEnd>, String> {
    let until = Instant::now() + END;
    let mut ends = Vec::new();
    while !waiting.is_empty() {
        match timeout_at(until, events.recv()).await {
            Ok(Ok(MachineEvent::MirrorEnded(index, end))) => {
                if waiting.remove(&index) {
                    ends.push(end);
                }
            }
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Ok(Err(RecvError::Closed)) => return Err("QEMU is gone".to_owned()),
            Err(_) => return Err(format!("no end within {} s", END.as_secs())),
        }
    }
    Ok(ends)
}
