//! How migrations end.

use std::time::Duration;

use neonvm_kit::metrics::{Counter, Family, Histogram, Registry};

use super::{LONG, SHORT};

#[derive(Debug)]
pub(crate) struct Migrations {
    downtime: Histogram,
    total: Histogram,
    /// By reason; there are few.
    ended: Family<Counter, 1>,
}

impl Migrations {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            downtime: registry.histogram(
                "neonvm_vm_controller_migration_downtime_seconds",
                "Time in which the guest stood still, of migrations that ended well.",
                SHORT,
            ),
            total: registry.histogram(
                "neonvm_vm_controller_migration_seconds",
                "Time in which memory was copied, of migrations that ended well.",
                LONG,
            ),
            ended: registry.counters(
                "neonvm_vm_controller_migrations_ended_total",
                "Migrations that ended, by reason.",
                ["reason"],
            ),
        }
    }

    /// One succeeded; the downtime of the guest, and how long memory was copied.
    pub(crate) fn succeeded(&self, downtime: Duration, total: Duration) {
        self.downtime.observe(downtime);
        self.total.observe(total);
        self.failed("Completed");
    }

    /// One ended, for this reason.
    pub(crate) fn failed(&self, reason: &str) {
        self.ended.with([reason]).inc();
    }
}
