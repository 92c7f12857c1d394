//! What a step decides.

use std::net::IpAddr;

use neonvm_api::VirtualMachineStatus;
use neonvm_api::virtual_machine::{ActiveMigration, CopyOf, CpuScalingMode};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{
    DiskRequest, LimitsByDisk, MigrationCall, MigrationVerdict, SizeRequest, SuspendRequest,
};

use crate::pod::{Metadata, PodSize};
use crate::tls::TlsAction;

/// What a step decides. The shell writes `status` first (guarded by the resource version the step was made with), then
/// runs the actions in order and stops at the first that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The status the object should have.
    pub status: VirtualMachineStatus,
    /// What to do.
    pub actions: Vec<Action>,
    /// When to look again although nothing happened.
    pub wake_at: Option<Timestamp>,
    /// Events to send once the status is written.
    pub events: Vec<Note>,
}

/// What to do. Every action may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read machine and pods from the API server instead of the cache, and step again.
    Refresh,
    /// Write the finalizer, and the CPU scaling mode if the spec has none.
    Adopt {
        /// The mode to write; `None` if the spec has one.
        cpu_scaling_mode: Option<CpuScalingMode>,
    },
    /// Write this merge patch into the spec, and remove the annotation that has it.
    Amend {
        spec: serde_json::Map<String, serde_json::Value>,
    },
    /// Create the claim of the template with this name, unless there is one of its name.
    CreateClaim {
        template: String,
    },
    /// Delete the claim of this name, if it was made for the VM.
    DeleteClaim {
        name: String,
        /// Only if it is a copy that was not completed.
        partial: bool,
    },
    /// Write into the claim of this name what it is the copy of.
    MarkCopy {
        name: String,
        mark: CopyOf,
    },
    /// Mark the claim of this name as one whose content is in another one now.
    ReplaceClaim {
        name: String,
        /// The other one.
        by: String,
    },
    /// Create the secrets of the VM and of the pod with this name, then the pod itself, as planned by [`crate::pod::plan`].
    CreatePod {
        /// Name of the pod.
        name: String,
    },
    /// Delete the pod (with its grace period) and the secret of the same name. Without a UID only the secret is left.
    DeletePod {
        /// Name of the pod.
        name: String,
        /// Delete only this very pod.
        uid: Option<String>,
    },
    /// Write these labels and annotations to the pod.
    SyncPod {
        /// Name of the pod.
        name: String,
        /// What to write, what to remove.
        change: Metadata,
    },
    /// Write these requests and limits of the runner's container by the pod's subresource `resize`.
    ResizePod {
        /// The pod's name.
        name: String,
        uid: String,
        size: PodSize,
    },
    /// Make the VM the controller of its pod, with this migration as the only other owner.
    OwnPod {
        /// Name of the pod.
        name: String,
        /// Only this very pod.
        uid: String,
        /// The migration to set as the other owner, if any.
        migration: Option<ActiveMigration>,
    },
    /// Order the runner in the VM's pod to cancel the migration.
    CancelMove(MigrationCall),
    /// Order the runner in the VM's pod to recover a paused post-copy.
    RecoverMove(MigrationCall),
    /// Send the runner in the pod with this UID the verdict that it owns the guest.
    Settle {
        pod: String,
        /// The verdict for the runner.
        verdict: MigrationVerdict,
    },
    /// Allocate an address on the overlay network.
    TakeAddress {
        /// The address in the VM's status, which must be allocated; `None`: any.
        wanted: Option<IpAddr>,
    },
    /// Give the address back; nothing of the VM runs any more.
    ReleaseAddress,
    SetSize(SizeRequest),
    /// Request from the runner that a disk grows with its volume.
    GrowDisk(DiskRequest),
    /// Request from the runner that disks have these limits, and no others.
    LimitDisks(LimitsByDisk),
    /// Request from the runner that the guest's CPUs stand still, or run.
    SetPaused(bool),
    /// Request from the runner that the VM is suspended, now or when it is idle, or runs.
    SetSuspended(SuspendRequest),
    /// Do something about the guest's certificate.
    Tls(TlsAction),
    RemoveFinalizer,
}

/// A Kubernetes event about the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// For programs.
    pub reason: NoteReason,
    /// For people.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteReason {
    /// The VM has a pod.
    Created,
    /// QEMU runs.
    Started,
    /// The guest answers.
    Ready,
    /// It grew.
    ScaledUp,
    /// It shrank.
    ScaledDown,
    /// A disk has grown with its volume.
    DiskGrown,
    /// The guest has ended a freeze of file systems, because no client did within its time.
    FreezeExpired,
    /// A limit of a disk binds.
    DiskLimited,
    /// None does any more.
    DiskNotLimited,
    /// The guest's CPUs stand still.
    Paused,
    /// They run again.
    Resumed,
    /// The guest's memory is in a file.
    Suspended,
    /// The guest runs again.
    Woken,
    /// It is started again.
    Restarted,
    /// It is being deleted.
    Stopping,
    /// It is gone.
    Deleted,
    /// It ended well.
    Succeeded,
    /// It ended badly, or cannot be started.
    Failed,
    /// Kubernetes gave the room of its pod to another one.
    Preempted,
    /// Its pod was evicted.
    Evicted,
    /// The guest does not take the requested size.
    ScaleLimited,
    /// The node does not provide the requested size.
    ScaleDenied,
    /// It is migrated because its node denied a growth.
    GrowthMigrated,
    /// Its node denied a growth, and no other node has room.
    GrowthNowhere,
    /// The guest has started its workload again.
    WorkloadRestarted,
    /// The same, after its kernel killed the workload for want of memory.
    WorkloadOutOfMemory,
    /// The VM does not run on the requested accelerator.
    AcceleratorFallback,
    /// Its root disk is larger than requested.
    RootSizeIgnored,
    PodMissing,
    /// A secret could not be made.
    SecretFailed,
    /// The certificate could not be made.
    CertificateFailed,
    /// There is no address on the overlay network for it.
    AddressFailed,
    /// The runner, or its node, does not answer.
    RunnerUnreachable,
    /// A migration waits for admission.
    Queued,
    /// A migration took the VM.
    MigrationStarted,
    /// The VM runs in the target pod.
    Switched,
    /// A migration ended well.
    Migrated,
    /// A migration failed; the VM stays.
    MigrationFailed,
    /// A migration was cancelled; the VM stays.
    MigrationCancelled,
}

impl NoteReason {
    /// The word in the event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Started => "Started",
            Self::Ready => "Ready",
            Self::ScaledUp => "ScaledUp",
            Self::ScaledDown => "ScaledDown",
            Self::DiskGrown => "DiskGrown",
            Self::DiskLimited => "DiskLimited",
            Self::DiskNotLimited => "DiskNotLimited",
            Self::FreezeExpired => "FreezeExpired",
            Self::Paused => "Paused",
            Self::Resumed => "Resumed",
            Self::Suspended => "Suspended",
            Self::Woken => "Woken",
            Self::Restarted => "Restarted",
            Self::Stopping => "Stopping",
            Self::Deleted => "Deleted",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Preempted => "Preempted",
            Self::Evicted => "Evicted",
            Self::ScaleLimited => "ScaleLimited",
            Self::ScaleDenied => "ScaleDenied",
            Self::GrowthMigrated => "GrowthMigrated",
            Self::GrowthNowhere => "GrowthNowhere",
            Self::WorkloadRestarted => "WorkloadRestarted",
            Self::WorkloadOutOfMemory => "WorkloadOutOfMemory",
            Self::AcceleratorFallback => "AcceleratorFallback",
            Self::RootSizeIgnored => "RootSizeIgnored",
            Self::PodMissing => "PodMissing",
            Self::SecretFailed => "SecretFailed",
            Self::CertificateFailed => "CertificateFailed",
            Self::AddressFailed => "AddressFailed",
            Self::RunnerUnreachable => "RunnerUnreachable",
            Self::Queued => "Queued",
            Self::MigrationStarted => "MigrationStarted",
            Self::Switched => "Switched",
            Self::Migrated => "Migrated",
            Self::MigrationFailed => "MigrationFailed",
            Self::MigrationCancelled => "MigrationCancelled",
        }
    }

    /// Whether something is wrong.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        matches!(
            self,
            Self::Failed
                | Self::FreezeExpired
                | Self::Preempted
                | Self::Evicted
                | Self::ScaleLimited
                | Self::ScaleDenied
                | Self::GrowthNowhere
                | Self::WorkloadRestarted
                | Self::WorkloadOutOfMemory
                | Self::AcceleratorFallback
                | Self::RootSizeIgnored
                | Self::PodMissing
                | Self::SecretFailed
                | Self::CertificateFailed
                | Self::AddressFailed
                | Self::RunnerUnreachable
                | Self::MigrationFailed
        )
    }

    /// Whether the event is sent about the VM and about its migration.
    #[must_use]
    pub const fn is_of_migration(self) -> bool {
        matches!(
            self,
            Self::Queued
                | Self::MigrationStarted
                | Self::Switched
                | Self::Migrated
                | Self::MigrationFailed
                | Self::MigrationCancelled
        )
    }
}
