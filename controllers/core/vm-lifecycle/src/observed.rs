//! Observed state of a VM's pods, runners, certificate, address and migration.

mod pod;
mod resize;

use std::net::IpAddr;

use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{DiskRequest, Exit, LimitsByDisk, RunnerStatus, SizeRequest};

use crate::claims::ClaimView;
use crate::pod::size::larger;
use crate::pod_size::PodSize;
use crate::tls::TlsObserved;

pub use pod::time;
pub use pod::{PodView, Resize};
pub use resize::{NodePolicy, Obstacle, ResizeDenial};

/// Observed state around a VM: input of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Machine and pods were read from the server for this step, or come from its answer to our own write; otherwise
    /// watches brought them and they may be old.
    pub fresh: bool,
    /// The pod that the status names.
    pub pod: Option<PodView>,
    /// Other pods that the VM owns.
    pub orphans: Vec<PodView>,
    pub runner: RunnerView,
    /// The guest's certificate; read only if the spec requests one.
    pub tls: TlsObserved,
    /// The VM's address on the overlay network, as the pools have it.
    pub address: AddressView,
    /// The claims that the VM's disks name, as far as they exist.
    pub claims: Vec<ClaimView>,
    /// The migration that the status names; read only if it names one.
    pub moving: Moving,
    /// The last resize of a pod that the API server refused.
    pub resize_refused: Option<ResizeRefused>,
    /// The size that was requested from the runner, without a reply yet.
    pub size_unanswered: Option<SizeUnanswered>,
    /// What was requested of the runner for disks whose volumes have become larger.
    pub disks_requested: Vec<DiskRequested>,
    /// The limits that were last requested of the runner.
    pub limits_requested: Option<LimitsRequested>,
    /// What went wrong when the actions of the step before were run.
    pub failure: Option<Failure>,
    /// Five random letters and digits for the name of a new pod.
    pub suffix: String,
}

/// Observed state of a VM's migration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moving {
    /// The object; `None` if there is none with the UID that the VM's status names.
    pub mover: Option<Mover>,
    /// The pod that the VM goes to.
    pub target: Option<PodView>,
    pub target_runner: RunnerView,
    /// When the order to recover a paused post-copy was sent.
    pub recovered: Option<Timestamp>,
    /// The target has refused the verdict: a part of the guest's memory is at the source only.
    pub refused: bool,
}

/// The part of a migration that its VM's reconcile needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mover {
    /// The source may have received the order to begin.
    pub ordered: bool,
    /// It is decided that the VM stays: it can be let go.
    pub over: bool,
}

/// A resize of a pod that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeRefused {
    pub pod: String,
    pub size: PodSize,
    /// Why; the same as long as the cause is the same.
    pub message: String,
    /// When it was refused.
    pub at: Timestamp,
}

/// A size that was requested from a runner without a reply. The request may still be under way, and take effect when it
/// arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeUnanswered {
    /// Name of the runner's pod.
    pub pod: String,
    /// The size; of several, the larger of each amount.
    pub size: SizeRequest,
    /// When the last one was sent.
    pub at: Timestamp,
}

impl SizeUnanswered {
    /// One more, after those before.
    #[must_use]
    pub fn next(before: Option<Self>, pod: &str, size: SizeRequest, at: Timestamp) -> Self {
        let same = before.filter(|before| before.pod == pod);
        let size = same.map_or(size, |before| larger(before.size, size));
        Self { pod: pod.to_owned(), size, at }
    }
}

/// A disk that a runner was requested to grow. Whatever came of it, the same is not requested again for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRequested {
    /// Name of the runner's pod.
    pub pod: String,
    pub request: DiskRequest,
    /// When it was sent.
    pub at: Timestamp,
}

/// Limits that a runner was requested to set. Whatever came of it, the same is not requested again for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsRequested {
    /// Name of the runner's pod.
    pub pod: String,
    pub limits: LimitsByDisk,
    /// When it was sent.
    pub at: Timestamp,
}

/// The address of a VM on the overlay network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressView {
    /// The pools were not read yet.
    #[default]
    Unknown,
    /// It has none.
    None,
    /// It has one, and that is on record.
    Held {
        /// Address of the guest on the overlay.
        ip: IpAddr,
        mask: IpAddr,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub reason: FailureReason,
    /// For people; the same as long as the cause is the same.
    pub message: String,
}

/// Which action failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureReason {
    /// The pod could not be made or changed.
    PodFailed,
    /// A claim could not be made or deleted.
    ClaimFailed,
    /// The pod would use more than a quota of its namespace leaves.
    QuotaExceeded,
    /// A secret could not be made.
    SecretFailed,
    /// The certificate could not be made.
    CertificateFailed,
    /// The VM got no address on the overlay network, or could not give it back.
    AddressFailed,
    /// The runner refused the size.
    ScaleFailed,
    /// The runner did not take the request to pause or to resume.
    PauseFailed,
    /// The runner did not take the request to suspend the VM, or to wake it.
    SuspendFailed,
    /// The runner did not take an order about a migration.
    MigrationFailed,
    /// No node's host can receive the VM.
    NoSuitableHost,
    /// Anything else.
    ActionFailed,
}

impl FailureReason {
    /// The word in the condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodFailed => "PodFailed",
            Self::ClaimFailed => "ClaimFailed",
            Self::QuotaExceeded => neonvm_api::names::QUOTA_EXCEEDED,
            Self::SecretFailed => "SecretFailed",
            Self::CertificateFailed => "CertificateFailed",
            Self::AddressFailed => "AddressFailed",
            Self::ScaleFailed => "ScaleFailed",
            Self::PauseFailed => "PauseFailed",
            Self::SuspendFailed => "SuspendFailed",
            Self::MigrationFailed => "MigrationFailed",
            Self::NoSuitableHost => "NoSuitableHost",
            Self::ActionFailed => "ActionFailed",
        }
    }
}

/// The runner, as the connection to it shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RunnerView {
    /// It has not reported yet: the recorded status still holds.
    #[default]
    Unknown,
    /// Its newest document.
    Seen(Box<RunnerStatus>),
    /// It cannot be reached.
    Unreachable {
        /// Since when.
        since: Timestamp,
        /// The newest document before that.
        last: Option<Box<RunnerStatus>>,
    },
}

impl RunnerView {
    /// The newest document of a runner, whether it still answers or not.
    #[must_use]
    pub fn newest(&self) -> Option<&RunnerStatus> {
        match self {
            Self::Seen(status) | Self::Unreachable { last: Some(status), .. } => Some(status),
            Self::Unknown | Self::Unreachable { last: None, .. } => None,
        }
    }

    /// The newest document of a runner that answers.
    #[must_use]
    pub fn current(&self) -> Option<&RunnerStatus> {
        match self {
            Self::Seen(status) => Some(status),
            Self::Unknown | Self::Unreachable { .. } => None,
        }
    }

    /// How the VM ended, if the runner reported it.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        self.newest()?.exit.as_ref()
    }
}
