//! Events of the source's QEMU during a migration.

use std::sync::Arc;

use neonvm_hypervisor::machine::JobEnd;
use tokio::sync::broadcast::error::RecvError;

use super::super::{NUMBERS, phase};
use super::{Event, MachineEvent, MigrationPhase, Work};

/// Forwards the events that concern the migration.
pub(super) async fn follow(work: Arc<Work>) {
    let mut events = work.machine.events();
    loop {
        match events.recv().await {
            Ok(MachineEvent::Migration(MigrationPhase::Failed | MigrationPhase::Cancelled)) => {
                // When a failure and a cancel coincide, an end is reported twice; the second may come in the next migration.
                if let Ok(info) = work.machine.migration().await
                    && info.phase.is_over()
                {
                    work.report(Event::Phase(phase(&info.phase), info.error)).await;
                }
            }
            Ok(MachineEvent::Migration(new)) => work.report(Event::Phase(phase(&new), String::new())).await,
            Ok(MachineEvent::MigrationPass(pass)) => work.report(Event::Pass(pass)).await,
            Ok(MachineEvent::MirrorEnded(_, JobEnd::Failed(why))) => {
                work.report(Event::Trouble(format!("a disk cannot be copied: {why}"))).await;
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                if let Ok(info) = work.machine.migration().await {
                    work.report(Event::Phase(phase(&info.phase), info.error)).await;
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Queries the numbers once a second.
pub(super) async fn numbers(work: Arc<Work>) {
    let mut last_disks = None;
    loop {
        tokio::time::sleep(NUMBERS).await;
        let Ok(mut info) = work.machine.migration().await else { return };
        last_disks = work.look_at_disks().await.or(last_disks);
        if let Some(copied) = last_disks {
            copied.add_to(&mut info.progress);
        }
        work.report(Event::Numbers(info.progress)).await;
    }
}
