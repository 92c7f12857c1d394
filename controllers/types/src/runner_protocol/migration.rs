//! A live migration of a VM, as its two runners report it.
//!
//! ```text
//! source:  Negotiating ─▶ Mirroring ─▶ Copying ─▶ Switching ─▶ HandingOver ─▶ Completed
//!              │              │           │  └──▶ PostCopy ⇄ PostCopyPaused ──┘
//!              └──────────────┴───────────┴──▶ Cancelling ─▶ Cancelled          any but the last two ─▶ Failed
//! target:  Waiting ─▶ Receiving ─▶ Arrived ─▶ (PostCopy ─▶) Completed        any before the guest runs ─▶ Failed
//! ```
//!
//! The source runner drives. The guest of a target runs only after the source has reported that its own never runs again
//! (`HandingOver`), so never more than one of them runs, even if one of the runners dies.

use serde::{Deserialize, Serialize};

use super::workload::WorkloadStatus;
use crate::Bytes;

/// TCP port on which a target runner takes what the source sends; open only while it waits for it.
pub const MIGRATION_PORT: u16 = 20187;
/// Path of a migration: begins one with a [`MigrationRequest`] (PUT; 409 while another is active), at a source.
pub const MIGRATION_PATH: &str = "/v1/migration";
/// Path that cancels a migration with a [`MigrationCall`] (POST; 409 if the guest has been handed over, 404 if it is
/// another migration).
pub const MIGRATION_CANCEL_PATH: &str = "/v1/migration/cancel";
/// Path that continues a paused post-copy with a [`MigrationCall`] (POST), at a source.
pub const MIGRATION_RECOVER_PATH: &str = "/v1/migration/recover";
/// Path that ends doubt with a [`MigrationVerdict`] (POST), once the other runner is certainly gone for good.
pub const MIGRATION_SETTLE_PATH: &str = "/v1/migration/settle";
/// Prefix of the reason of a migration that exceeded its time limit, at a source that has `Failed`.
pub const MIGRATION_NOT_IN_TIME: &str = "not done within";
/// Path of a disk without writes (GET), followed by its name; alone, of the list of all disks as [`VolumeInfo`]s. Only for
/// a runner of the same VM.
pub const VOLUME_PATH: &str = "/v1/volume/";

/// A disk of a VM, as its runner has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeInfo {
    /// Name of the disk.
    pub name: String,
    /// Bytes the guest sees.
    pub size: Bytes,
    /// No process writes it, so its bytes can be read.
    pub read_only: bool,
}

/// A request to migrate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationRequest {
    /// UID of the migration object: repeating a request is harmless, and only its own caller can call it off.
    pub id: String,
    /// `ADDRESS:PORT` of the target runner's [`MIGRATION_PORT`].
    pub target: String,
    /// How the VM is migrated.
    pub parameters: MigrationParameters,
}

/// The migration that a call refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationCall {
    /// UID of the migration object.
    pub id: String,
    /// For people; shows in the status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The controller's decision about a migration after one of its runners is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationVerdict {
    /// UID of the migration object.
    pub id: String,
    /// Whether this runner's guest is the one that runs from now on. The other can never run again.
    pub keep: bool,
}

/// How a VM is migrated. Missing fields have the default of [`MigrationParameters::default`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationParameters {
    /// Most bytes in a second, of memory; above 0.
    pub bandwidth: Bytes,
    /// Longest pause of the guest, in milliseconds, 1–2,000,000 (QEMU's `downtime-limit`).
    pub downtime_limit_ms: u32,
    /// Slow the guest down while its memory changes, or its disks are written, faster than they are copied.
    pub auto_converge: bool,
    /// Connections for memory, 1–255; with more than one, or with compression, by QEMU's `multifd`. Not together with post-copy.
    pub channels: u8,
    /// What compresses memory on the way.
    pub compression: Compression,
    /// When the guest may run on the target before all its memory is there.
    pub post_copy: PostCopy,
    /// Seconds until [`MigrationParameters::on_timeout`]; at least 1.
    pub completion_timeout_s: u32,
    /// What happens when the time limit is exceeded.
    pub on_timeout: OnTimeout,
}

impl Default for MigrationParameters {
    fn default() -> Self {
        Self {
            bandwidth: Bytes::gib(1),
            downtime_limit_ms: 300,
            auto_converge: true,
            channels: 4,
            compression: Compression::Zstd,
            post_copy: PostCopy::Never,
            completion_timeout_s: 3600,
            on_timeout: OnTimeout::Abort,
        }
    }
}

/// Compression of memory on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// Zstandard, in each channel (`multifd-compression`).
    Zstd,
}

/// When the guest may run on the target before all its memory is there. From then on the source alone cannot continue
/// the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostCopy {
    /// Never.
    #[default]
    Never,
    /// When the time is up.
    OnTimeout,
    /// After memory was copied once.
    AfterFirstPass,
}

/// What happens when the time limit of a migration is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// The migration is cancelled; the VM stays on its source.
    #[default]
    Abort,
    /// The guest runs on at the target, its memory follows.
    PostCopy,
    /// It continues, and the status reports that it is late.
    Continue,
}

/// A migration, as a runner reports it; part of its status from the beginning on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationStatus {
    /// UID of the migration object.
    pub id: String,
    /// Which of the two this is.
    pub role: MigrationRole,
    /// How far it is.
    pub state: MigrationState,
    /// Why it ended that way, or what it waits for; for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How it is carried, such as `multifd x4, zstd, tls, pause-before-switchover`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Requested options that are not available, each with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Progress in numbers; for a migration that has ended the last ones from QEMU.
    pub progress: MigrationProgress,
}

/// Which of the two runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationRole {
    /// It has the VM.
    #[default]
    Source,
    /// It gets the VM.
    Target,
}

/// State of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationState {
    /// Target: nothing has come yet.
    #[default]
    Waiting,
    /// Source: the two QEMUs agree on what both can.
    Negotiating,
    /// Source: disks are copied.
    Mirroring,
    /// Source: memory is copied while the guest runs.
    Copying,
    /// Source: the guest is paused; disks are finished, the rest is sent.
    Switching,
    /// Source: the guest runs on the target, memory follows. Target: the guest runs, memory follows.
    PostCopy,
    /// Source: the same, and the connection is lost.
    PostCopyPaused,
    /// Source: the guest never runs here again; the target gets the order to run it.
    HandingOver,
    /// Source: the migration is being cancelled.
    Cancelling,
    /// Target: something has come.
    Receiving,
    /// Target: all is there, and the guest waits for the word of the source.
    Arrived,
    /// Source: the guest runs on the target. Target: the guest runs.
    Completed,
    /// Source: the guest runs here, as before.
    Cancelled,
    /// Source: the guest runs here, as before. Target: of no use any more.
    Failed,
    /// A state of a newer runner.
    #[serde(other)]
    Unknown,
}

impl MigrationState {
    /// Whether nothing more will happen.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }

    /// Whether, at a source, its own guest may never run again.
    #[must_use]
    pub const fn has_left(self) -> bool {
        matches!(self, Self::PostCopy | Self::PostCopyPaused | Self::HandingOver | Self::Completed)
    }
}

/// Progress of a migration in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationProgress {
    /// QEMU's status (`MigrationStatus` in QAPI); empty until it was queried.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qemu_status: String,
    /// Milliseconds since memory began to be copied.
    pub total_time_ms: u64,
    /// Milliseconds of QEMU's preparation.
    pub setup_time_ms: u64,
    /// Downtime of the guest in milliseconds; absent until the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// Expected downtime in milliseconds, by QEMU's estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_downtime_ms: Option<u64>,
    /// How often memory was gone through (`dirty-sync-count`).
    pub passes: u64,
    /// Bytes of memory the guest changes in a second.
    pub dirty_rate: Bytes,
    /// Bytes sent in a second.
    pub throughput: Bytes,
    /// Percent by which the guest is slowed down.
    pub throttle_percent: u8,
    /// Bytes of memory that were sent.
    pub ram_transferred: Bytes,
    /// Bytes of memory still to be sent.
    pub ram_remaining: Bytes,
    /// Bytes of memory in all.
    pub ram_total: Bytes,
    /// Bytes of disks that were copied.
    pub disk_transferred: Bytes,
    /// Bytes of disks to copy, as far as determined.
    pub disk_total: Bytes,
    /// Bytes that the guest may write to each of its disks in a second, because their copies would not catch up with it
    /// otherwise; absent: as many as it likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_write_limit: Option<Bytes>,
}

/// First bytes of each connection to [`MIGRATION_PORT`], after the TLS handshake: a line of JSON. Answered with a line of
/// [`MigrationAnswer`] before any other byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationHello {
    /// UID of the migration object.
    pub id: String,
    /// What it is for.
    pub channel: MigrationChannel,
}

/// What a connection between two runners is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationChannel {
    /// Requests of the source, one JSON line each, and answers.
    Control,
    /// A connection to QEMU's migration socket.
    Memory,
    /// A connection to QEMU's NBD server.
    Disk,
}

/// Answer to a [`MigrationHello`] and to each [`MigrationOrder`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationAnswer {
    /// Why not; empty if all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Capabilities of the target's QEMU (`query-migrate-capabilities`); in the answer to [`MigrationOrder::Offer`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Version of the target's QEMU, such as `7.2.22`; likewise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qemu_version: String,
    /// Capabilities that it supports but refused there; likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<MigrationRefusal>,
}

/// A capability that a QEMU supports but refused to enable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationRefusal {
    /// Name of the capability in QAPI.
    pub capability: String,
    /// Why not, and what would help.
    pub reason: String,
}

/// What a runner has received from its guest in reports that the guest does not repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationGuest {
    /// CPUs on line.
    pub online: u32,
    /// Whether it is one that reports.
    pub reports: bool,
    /// The workload, as it was reported last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadStatus>,
    /// Why the guest cannot start its workload, in its own words. Absent: it can, or the runner is an older one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_started: Option<String>,
}

/// An order of the source on the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "order")]
pub enum MigrationOrder {
    /// Report the capabilities of your QEMU.
    Offer,
    /// Set this and wait for data; the disks with these names are to be written by NBD.
    #[serde(rename_all = "camelCase")]
    Receive {
        /// Capabilities to switch on.
        capabilities: Vec<String>,
        /// Connections for memory, if by multifd.
        channels: u8,
        /// Compression in these.
        compression: Compression,
        /// Names of disks.
        disks: Vec<String>,
    },
    /// The guest is paused: frames for it are to be received by you from now on, and to be queued. Without this they
    /// are lost until the guest runs, which its peers notice as a pause; a target may ignore this order.
    Claim,
    /// No disk is written any more; the guest is about to come. Answered when the network is ready for it.
    Settle,
    /// The guest will never run at the source again: let it run. Answered when it does; may be repeated.
    Run {
        /// The source's last numbers, for when the source is gone.
        progress: MigrationProgress,
        /// What the target takes over.
        #[serde(default)]
        guest: MigrationGuest,
    },
    /// The connection was lost while memory followed: wait for another.
    Recover,
    /// Nothing more comes; after [`MigrationOrder::Run`]: its answer has arrived.
    Stop,
}
