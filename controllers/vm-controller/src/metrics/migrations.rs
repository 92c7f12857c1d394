//! How migrations end.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Histogram, LONG, SHORT, head, line};

/// How migrations end.
#[derive(Debug)]
pub(crate) struct Migrations {
    downtime: Histogram,
    total: Histogram,
    /// By reason; there are few.
    ended: Mutex<BTreeMap<String, u64>>,
}

impl Default for Migrations {
    fn default() -> Self {
        Self { downtime: Histogram::new(SHORT), total: Histogram::new(LONG), ended: Mutex::default() }
    }
}

impl Migrations {
    /// One ended well; how long the guest stood still, and how long memory was copied.
    pub(crate) fn succeeded(&self, downtime: Duration, total: Duration) {
        self.downtime.observe(downtime);
        self.total.observe(total);
        self.failed("Completed");
    }

    /// One ended, for this reason.
    pub(crate) fn failed(&self, reason: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry(reason.to_owned()).or_default() += 1;
    }

    pub(super) fn render(&self, out: &mut String) {
        for (name, help, histogram) in [
            (
                "neonvm_vm_controller_migration_downtime_seconds",
                "Time in which the guest stood still, of migrations that ended well.",
                &self.downtime,
            ),
            (
                "neonvm_vm_controller_migration_seconds",
                "Time in which memory was copied, of migrations that ended well.",
                &self.total,
            ),
        ] {
            head(out, name, "histogram", help);
            histogram.render(out, name, "");
        }
        let name = "neonvm_vm_controller_migrations_ended_total";
        head(out, name, "counter", "Migrations that ended, by reason.");
        for (reason, count) in self.ended.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(out, format_args!("{name}{{reason=\"{reason}\"}} {count}"));
        }
    }
}
