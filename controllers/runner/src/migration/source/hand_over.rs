//! The source's last orders: the guest may run at the target, with the numbers of the migration.

use std::time::{Duration, Instant};

use neonvm_core_migration::source::Event;
use neonvm_types::runner_protocol::{MigrationGuest, MigrationOrder, MigrationProgress};

use super::{LAST, RUN, Work};

impl Work {
    /// Lets the guest run at the target.
    pub(super) async fn hand_over(
        &self,
        last: MigrationProgress,
        guest: MigrationGuest,
    ) -> Result<(), String> {
        let now = self.machine.migration().await;
        let progress = now.map_or(last.clone(), |info| with_disks(info.progress, &last));
        self.order(MigrationOrder::Run { progress, guest }, RUN).await.map(drop)
    }

    /// QEMU's last numbers, if it counts in time. It reports the end of the migration, or runs the target, before it has.
    async fn last_numbers(&self) -> Option<MigrationProgress> {
        let until = Instant::now() + LAST;
        while let Ok(info) = self.machine.migration().await {
            if info.is_counted() {
                return Some(info.progress);
            }
            if Instant::now() >= until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// The guest lives on the target.
    pub(super) async fn leave(&self, last: &MigrationProgress, guest: MigrationGuest) {
        self.pass_on();
        if let Some(progress) = self.last_numbers().await {
            let progress = with_disks(progress, last);
            self.report(Event::Numbers(progress.clone())).await;
            // Soon only the target can report them, and the order to run may have carried numbers from before the count.
            let run = MigrationOrder::Run { progress, guest };
            let _ = tokio::time::timeout(LAST, self.order(run, LAST)).await;
        }
        let _ = tokio::time::timeout(LAST, self.order(MigrationOrder::Stop, LAST)).await;
        if self.machine.quit().await.is_err() {
            self.machine.kill();
        }
    }
}

/// QEMU's numbers, and those of the disks, which QEMU does not count among them.
fn with_disks(progress: MigrationProgress, last: &MigrationProgress) -> MigrationProgress {
    MigrationProgress {
        disk_transferred: last.disk_transferred,
        disk_total: last.disk_total,
        disk_write_limit: last.disk_write_limit,
        ..progress
    }
}
