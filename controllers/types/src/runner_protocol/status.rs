//! The status document of a runner, streamed as lines of JSON whenever it changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::limits::DiskLimitStatus;
use super::machine::MachineInfo;
use super::migration::MigrationStatus;
use super::suspend::SuspendStatus;
use super::workload::WorkloadStatus;
use crate::{Bytes, MilliCpu};

/// The answer to `GET /v1/status`, and each line of `GET /v1/status?watch=true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunnerStatus {
    /// Grows with every change; a reader may drop an older document that arrives late.
    pub sequence: u64,
    /// How far the VM is.
    pub state: RunnerState,
    /// Whether the guest answers: its daemon is up and the workload was started.
    pub ready: bool,
    /// What the VM is made of; absent until QEMU runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineInfo>,
    /// Requested and applied CPU.
    pub cpu: CpuStatus,
    /// Requested and applied memory.
    pub memory: MemoryStatus,
    /// Whether the guest's CPUs stand still on request; absent if they do not and are not to.
    #[serde(skip_serializing_if = "PauseStatus::is_none")]
    pub pause: PauseStatus,
    /// Whether the VM is suspended; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<SuspendStatus>,
    /// Disks on claims that are written, by name: the size of the volume that the disk uses. A disk of an older runner grows at the
    /// next start only; such a runner reports none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, Bytes>,
    /// Limits of disks that are in force, by the name of the disk. An older runner limits none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disk_limits: BTreeMap<String, DiskLimitStatus>,
    /// How often the guest has ended a freeze of file systems, because no client did within its time.
    #[serde(skip_serializing_if = "is_zero")]
    pub freezes_expired: u32,
    /// The workload in the guest; absent until it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadStatus>,
    /// What is wrong now; empty when all is well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The active migration, or the last one; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationStatus>,
    /// Why it ended; present in the last document only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How far a VM is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RunnerState {
    /// Disks and network are made.
    #[default]
    Preparing,
    /// QEMU runs and the guest boots.
    Booting,
    /// The guest is up.
    Running,
    /// The guest was requested to power off.
    Stopping,
    /// QEMU is gone.
    Ended,
}

/// CPU of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuStatus {
    /// The last request.
    pub asked: MilliCpu,
    /// What is in force: never more than the CPUs on line.
    pub applied: MilliCpu,
    /// CPUs the guest has on line; 0 until its first report.
    pub online: u32,
}

/// Memory of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryStatus {
    /// The last request.
    pub asked: Bytes,
    /// What the guest has.
    pub actual: Bytes,
}

/// Whether the guest's CPUs stand still on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PauseStatus {
    /// The last request.
    pub asked: bool,
    /// Whether they stand still.
    pub applied: bool,
}

impl PauseStatus {
    /// Neither requested nor in force.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A problem that does not stop the VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// For programs.
    pub reason: ProblemReason,
    /// For people: what, and the size that was reached if it is about size.
    pub message: String,
}

/// Reasons of problems that do not stop a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProblemReason {
    /// The guest does not give memory back.
    MemoryNotReleased,
    /// The guest does not take memory.
    MemoryNotTaken,
    /// CPUs did not come on or go off line.
    CpuNotScaled,
    /// The quota on the vCPU threads could not be set.
    CpuNotLimited,
    /// The guest does not answer.
    GuestUnresponsive,
    /// The guest cannot start its workload: no program, no such user, a disk that is not mounted. Final until the VM's configuration
    /// or its image is another one.
    WorkloadNotStarted,
    /// Files that should be kept in step could not be sent.
    FilesNotSynchronised,
    /// A part of the guest's boot failed.
    GuestFailure,
    /// QEMU stopped the VM: a disk of this node is full, or failed.
    DiskFailure,
    /// The guest ignores the power button.
    PowerButtonIgnored,
    /// The workload failed and was started again inside the guest.
    WorkloadFailing,
    /// QEMU did not pause the guest, or did not continue it.
    PauseFailed,
    /// A disk, or the file system on it, did not grow with its volume.
    DiskNotGrown,
    /// The limits of disks could not be set.
    DiskNotLimited,
    /// The VM could not be suspended.
    SuspendFailed,
    /// The VM cannot be started before the node service answers.
    NodeServiceAway,
    /// A reason of a newer runner.
    #[serde(other)]
    Unknown,
}

/// Body of `PUT /v1/size`: the size wanted from now on. Answered at once with the status; progress is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeRequest {
    /// CPU, within the bounds of the VM.
    pub cpu: MilliCpu,
    /// Memory, within the bounds of the VM, whole slots.
    pub memory: Bytes,
}

/// Body of `PUT /v1/pause`: whether the guest's CPUs are to stand still from now on. A guest that boots is paused when it is up.
/// Answered at once with the status; progress is in the stream. Refused (409) while the VM is being migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseRequest {
    /// `true`: they stand still; `false`: they run.
    pub paused: bool,
}

/// Body of `PUT /v1/disks`: a volume has become larger, and the disk on it is to grow while the guest runs. Answered at once with the
/// status; [`RunnerStatus::disks`] has the size when the guest has it. Refused (409) while the VM is paused or being migrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskRequest {
    /// Name of the disk.
    pub disk: String,
    /// Size of its volume.
    pub size: Bytes,
}

/// Answer to `GET /v1/statistics`: counters since the VM started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunnerStatistics {
    /// Milliseconds since QEMU started.
    pub uptime_ms: u64,
    /// CPU time of the vCPU threads, in microseconds.
    pub cpu_us: u64,
    /// Time in which the quota held the vCPU threads back, in microseconds.
    pub throttled_us: u64,
    /// Resident memory of QEMU, in bytes.
    pub resident: Bytes,
    /// Memory the guest uses without its caches, in bytes; absent if the guest did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_used: Option<Bytes>,
    /// Load average of one minute, in thousandths; absent if the guest did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1_milli: Option<u64>,
    /// Steal time of the guest, in microseconds; absent if the guest did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_us: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_newer_and_older_programs_are_read() {
        let text = r#"{"sequence":3,"state":"Running","ready":true,"newer":[],
            "problems":[{"reason":"SomethingNew","message":"m"}]}"#;
        let status: RunnerStatus = serde_json::from_str(text).unwrap();
        assert_eq!((status.sequence, status.state, status.ready), (3, RunnerState::Running, true));
        assert_eq!(status.problems[0].reason, ProblemReason::Unknown);
        assert_eq!(serde_json::from_str::<RunnerStatus>("{}").unwrap(), RunnerStatus::default());
    }

    #[test]
    fn disks_are_there_if_there_are_some() {
        let none = serde_json::to_value(RunnerStatus::default()).unwrap();
        assert_eq!(none.get("disks"), None);
        let status =
            RunnerStatus { disks: [("data".to_owned(), Bytes::gib(2))].into(), ..RunnerStatus::default() };
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(serde_json::from_value::<RunnerStatus>(json).unwrap(), status);
        let request: DiskRequest = serde_json::from_str(r#"{"disk":"data","size":2147483648}"#).unwrap();
        assert_eq!(request, DiskRequest { disk: "data".into(), size: Bytes::gib(2) });
    }

    /// Runners and controllers from before the pause neither send nor expect the field.
    #[test]
    fn a_vm_that_is_not_paused_has_no_word_about_it() {
        let mut status = RunnerStatus::default();
        assert!(!serde_json::to_string(&status).unwrap().contains("pause"));
        status.pause = PauseStatus { asked: true, applied: false };
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.contains(r#""pause":{"asked":true,"applied":false}"#), "{text}");
        assert_eq!(serde_json::from_str::<RunnerStatus>(&text).unwrap(), status);
    }

    #[test]
    fn sizes_are_printed_as_elsewhere() {
        let size = SizeRequest { cpu: MilliCpu::new(250), memory: Bytes::gib(1) };
        assert_eq!(serde_json::to_string(&size).unwrap(), r#"{"cpu":"250m","memory":"1Gi"}"#);
    }
}
