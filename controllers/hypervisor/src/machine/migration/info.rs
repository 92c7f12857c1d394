//! What QEMU reports about a migration.

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::MigrationProgress;
use serde_json::Value;

/// Phase of a migration (`MigrationStatus` in QAPI).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MigrationPhase {
    /// There was none.
    #[default]
    None,
    /// Connections are made.
    Setup,
    /// Memory is copied while the guest runs.
    Active,
    /// The guest is paused, and QEMU waits for [`super::Machine::switch_over`].
    PreSwitchover,
    Device,
    /// The guest runs on the other side, memory follows.
    PostCopyActive,
    /// The same, and the connection is lost.
    PostCopyPaused,
    /// The same, and it continues.
    PostCopyRecover,
    /// All is there.
    Completed,
    /// It failed. At the source the guest continues.
    Failed,
    Cancelling,
    /// It was cancelled; the guest continues.
    Cancelled,
    /// A device that cannot be migrated is unplugged first; none of ours.
    WaitUnplug,
    /// Another, by QEMU's name.
    Other(String),
}

impl MigrationPhase {
    /// Reads QEMU's name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name {
            "" | "none" => Self::None,
            "setup" => Self::Setup,
            "active" => Self::Active,
            "pre-switchover" => Self::PreSwitchover,
            "device" => Self::Device,
            "postcopy-active" => Self::PostCopyActive,
            "postcopy-paused" => Self::PostCopyPaused,
            "postcopy-recover" | "postcopy-recover-setup" => Self::PostCopyRecover,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelling" => Self::Cancelling,
            "cancelled" => Self::Cancelled,
            "wait-unplug" => Self::WaitUnplug,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Whether no migration is active.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::None | Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The answer to `query-migrate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationInfo {
    /// How far it is.
    pub phase: MigrationPhase,
    /// Why it failed, in QEMU's words; empty if it did not fail or QEMU gives no reason.
    pub error: String,
    /// Why this VM cannot migrate now, in QEMU's words.
    pub blocked: Vec<String>,
    /// Progress; QEMU does not report the numbers of disks here.
    pub progress: MigrationProgress,
}

impl MigrationInfo {
    /// Whether QEMU has reached the end of a migration and its numbers are final.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.phase == MigrationPhase::Completed && self.progress.downtime_ms.is_some()
    }

    /// Reads the answer; what is missing or no number is left at its default.
    #[must_use]
    pub fn read(answer: &Value) -> Self {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| answer.get(key).and_then(whole);
        let ram = |key: &str| answer.get("ram").and_then(|ram| ram.get(key)).and_then(whole).unwrap_or(0);
        let blocked = answer.get("blocked-reasons").and_then(Value::as_array);
        let blocked = blocked.map(Vec::as_slice).unwrap_or_default().iter();
        let mbps = answer.pointer("/ram/mbps").and_then(Value::as_f64).unwrap_or(0.0);
        let status = text("status");
        Self {
            phase: MigrationPhase::parse(&status),
            error: text("error-desc"),
            blocked: blocked.filter_map(Value::as_str).map(str::to_owned).collect(),
            progress: MigrationProgress {
                qemu_status: status,
                total_time_ms: number("total-time").unwrap_or(0),
                setup_time_ms: number("setup-time").unwrap_or(0),
                // QEMU reports that a migration is complete a moment before it has counted: all times are 0 until then.
                downtime_ms: number("downtime").filter(|_| number("total-time").unwrap_or(0) > 0),
                expected_downtime_ms: number("expected-downtime"),
                passes: ram("dirty-sync-count"),
                dirty_rate: Bytes::new(ram("dirty-pages-rate").saturating_mul(ram("page-size"))),
                throughput: Bytes::new(rounded(mbps * 1_000_000.0 / 8.0)),
                throttle_percent: number("cpu-throttle-percentage")
                    .and_then(|percent| u8::try_from(percent).ok())
                    .unwrap_or(0),
                ram_transferred: Bytes::new(ram("transferred")),
                ram_remaining: Bytes::new(ram("remaining")),
                ram_total: Bytes::new(ram("total")),
                ..MigrationProgress::default()
            },
        }
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn rounded(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_read() {
        let info = MigrationInfo::read(&json!({
            "status": "active", "total-time": 1200, "expected-downtime": 300, "setup-time": 7,
            "cpu-throttle-percentage": 40,
            "ram": {"transferred": 1000, "remaining": 500, "total": 4096, "dirty-sync-count": 3,
                    "dirty-pages-rate": 10, "page-size": 4096, "mbps": 8.0},
        }));
        assert_eq!(info.phase, MigrationPhase::Active);
        let progress = info.progress;
        assert_eq!((progress.total_time_ms, progress.passes, progress.throttle_percent), (1200, 3, 40));
        assert_eq!((progress.dirty_rate, progress.throughput), (Bytes::new(40960), Bytes::new(1_000_000)));
        assert_eq!((progress.downtime_ms, progress.expected_downtime_ms), (None, Some(300)));
        let early = json!({"status": "completed", "total-time": 0, "downtime": 0});
        let counted = json!({"status": "completed", "total-time": 9, "downtime": 0});
        assert!(!MigrationInfo::read(&early).is_counted() && MigrationInfo::read(&counted).is_counted());
        let failed =
            MigrationInfo::read(&json!({"status": "failed", "error-desc": "x", "blocked-reasons": ["y"]}));
        assert_eq!((failed.error.as_str(), failed.blocked), ("x", vec!["y".to_owned()]));
        assert_eq!(MigrationInfo::read(&json!({})).phase, MigrationPhase::None);
        assert_eq!(MigrationPhase::parse("future"), MigrationPhase::Other("future".into()));
    }

    proptest! {
        #[test]
        fn any_answer_is_read(status in ".{0,20}", number: i64, text in ".{0,20}") {
            let _ = MigrationInfo::read(&json!({"status": status, "total-time": number, "ram": {"mbps": text}}));
        }
    }
}
