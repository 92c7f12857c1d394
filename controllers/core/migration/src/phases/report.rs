//! A runner's report about a migration, translated for the status of the object.

use neonvm_api::migration::{MigrationInfo, MigrationReason, RamProgress};
use neonvm_types::runner_protocol::{MigrationProgress, MigrationState, MigrationStatus};

pub(super) fn reason(state: MigrationState) -> Option<MigrationReason> {
    use MigrationReason as R;
    use MigrationState as S;
    match state {
        S::Negotiating | S::Mirroring => Some(R::Mirroring),
        S::Copying => Some(R::Copying),
        S::Switching | S::HandingOver | S::Completed => Some(R::Switching),
        S::PostCopy => Some(R::PostCopy),
        S::PostCopyPaused => Some(R::PostCopyPaused),
        S::Cancelling => Some(R::Cancelling),
        // The controller decides the reason of an end; the others are not states of a source.
        S::Cancelled | S::Failed | S::Waiting | S::Receiving | S::Arrived | S::Unknown => None,
    }
}

pub(super) fn message(reported: &MigrationStatus) -> String {
    use MigrationState as S;
    let text = match reported.state {
        S::Negotiating => "the two runners agree on how",
        S::Mirroring => "disks are copied",
        S::Copying => "memory is copied",
        S::Switching => "the VM stands still for a moment",
        S::HandingOver => "the target receives the order to run the VM",
        S::Completed => "the VM runs on the target",
        S::PostCopy => "the VM runs on the target, its memory follows",
        S::PostCopyPaused => "the connection is lost while memory follows; it is made again",
        S::Cancelling => "it is being cancelled",
        S::Cancelled | S::Failed | S::Waiting | S::Receiving | S::Arrived | S::Unknown => "",
    };
    if reported.reason.is_empty() { text.to_owned() } else { format!("{text}: {}", reported.reason) }
}

/// Converts the runner's progress into the status' form.
pub(super) fn info(progress: &MigrationProgress) -> MigrationInfo {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let bytes = |value: neonvm_types::Bytes| number(value.get());
    MigrationInfo {
        status: progress.qemu_status.clone(),
        total_time_ms: number(progress.total_time_ms),
        setup_time_ms: number(progress.setup_time_ms),
        downtime_ms: number(progress.downtime_ms.unwrap_or(0)),
        expected_downtime_ms: number(progress.expected_downtime_ms.unwrap_or(0)),
        passes: number(progress.passes),
        dirty_rate: bytes(progress.dirty_rate),
        throughput: bytes(progress.throughput),
        throttle_percent: i64::from(progress.throttle_percent),
        disk_write_limit: bytes(progress.disk_write_limit.unwrap_or_default()),
        disk: RamProgress {
            transferred: bytes(progress.disk_transferred),
            remaining: bytes(progress.disk_total.saturating_sub(progress.disk_transferred)),
            total: bytes(progress.disk_total),
        },
        ram: RamProgress {
            transferred: bytes(progress.ram_transferred),
            remaining: bytes(progress.ram_remaining),
            total: bytes(progress.ram_total),
        },
        ..MigrationInfo::default()
    }
}
