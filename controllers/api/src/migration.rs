//! `VirtualMachineMigration`: the live migration of one VM to another node.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;
use neonvm_types::{Bytes, MilliCpu, Quantity, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MigrationTuning, schema, schema::rules};

/// What a migration should do. Nothing of it can change but `cancel`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "vm.neon.tech",
    version = "v1",
    kind = "VirtualMachineMigration",
    plural = "virtualmachinemigrations",
    singular = "neonvmm",
    shortname = "vmm",
    category = "neon",
    namespaced,
    status = "VirtualMachineMigrationStatus",
    derive = "PartialEq",
    doc = "The move of a running virtual machine to another node.",
    printcolumn = r#"{"name":"VM","type":"string","jsonPath":".spec.vmName"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".status.sourcePodName"}"#,
    printcolumn = r#"{"name":"SourceIP","type":"string","jsonPath":".status.sourcePodIP","priority":1}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".status.targetPodName"}"#,
    printcolumn = r#"{"name":"TargetIP","type":"string","jsonPath":".status.targetPodIP","priority":1}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::migration()))]
pub struct VirtualMachineMigrationSpec {
    /// The VM, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub vm_name: String,
    /// Labels the target node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules about the target node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::foreign::<core::NodeAffinity>")]
    pub node_affinity: Option<core::NodeAffinity>,
    /// The target must be another node.
    #[serde(default = "yes")]
    pub prevent_migration_to_same_host: bool,
    /// Time limit of the migration, in seconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1))]
    pub completion_timeout: i32,
    /// Has no effect: disks and memory are always copied while the VM runs, without their unused parts. Kept for existing
    /// manifests.
    #[serde(default = "yes")]
    pub incremental: bool,
    /// Let the VM run on the target before all its memory is there.
    #[serde(default)]
    pub allow_post_copy: bool,
    /// Slow the VM down if its memory changes, or its disks are written, faster than they are copied.
    #[serde(default = "yes")]
    pub auto_converge: bool,
    /// Bytes in a second.
    #[serde(default = "default_bandwidth")]
    #[schemars(schema_with = "schema::quantity", extend("default" = "1Gi"))]
    pub max_bandwidth: Quantity,
    /// Call it off. Where the VM has left already, it has.
    #[serde(default, skip_serializing_if = "schema::is_false")]
    pub cancel: bool,
    /// Among migrations that wait, those with a higher number go first; then the older ones.
    #[serde(default, skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
    /// The policy to go by; without it the one that matches the VM best.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// How the VM is migrated; these values override the policy.
    #[serde(flatten)]
    pub tuning: MigrationTuning,
}

fn is_zero_i32(value: &i32) -> bool {
    *value == 0
}

fn yes() -> bool {
    true
}

fn default_timeout() -> i32 {
    3600
}

fn default_bandwidth() -> Quantity {
    Bytes::gib(1).to_quantity()
}

impl VirtualMachineMigrationSpec {
    /// A migration of a VM, with every default.
    #[must_use]
    pub fn new(vm_name: impl Into<String>) -> Self {
        Self {
            vm_name: vm_name.into(),
            node_selector: BTreeMap::new(),
            node_affinity: None,
            prevent_migration_to_same_host: true,
            completion_timeout: default_timeout(),
            incremental: true,
            allow_post_copy: false,
            auto_converge: true,
            max_bandwidth: default_bandwidth(),
            cancel: false,
            priority: 0,
            policy: String::new(),
            tuning: MigrationTuning::default(),
        }
    }
}

/// The size of the guest that a target pod is made for: what was requested from the source's runner then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetSize {
    /// CPU.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub cpu: MilliCpu,
    /// Memory.
    #[schemars(schema_with = "schema::quantity")]
    pub memory: Quantity,
    /// CPUs that were plugged.
    pub plugged_cpus: u32,
    /// What the target pod reserves for the guest: by its status, its spec, and what it is migrated for. If the spec requests more
    /// before anything is copied, the migration ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<TargetRoom>,
}

/// A size of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRoom {
    /// CPU.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub cpu: MilliCpu,
    /// Memory.
    #[schemars(schema_with = "schema::quantity")]
    pub memory: Quantity,
}

/// What is observed of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineMigrationStatus {
    /// How it stands, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Where the migration is.
    #[serde(default, deserialize_with = "schema::empty_is_none", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub phase: Option<MigrationPhase>,
    /// The pod it leaves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_pod_name: String,
    /// The pod it goes to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_pod_name: String,
    /// Address of the pod it leaves.
    #[serde(default, rename = "sourcePodIP", skip_serializing_if = "String::is_empty")]
    pub source_pod_ip: String,
    /// Address of the pod it goes to.
    #[serde(default, rename = "targetPodIP", skip_serializing_if = "String::is_empty")]
    pub target_pod_ip: String,
    /// The node it leaves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_node: String,
    /// The node it goes to; empty until the target pod has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_node: String,
    /// The size of the guest that the target pod was made for. If the VM is scaled before the pod has a node, the pod is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_size: Option<TargetSize>,
    /// The node that was cordoned while a migration of an eviction was to leave it. The migration ends if that node accepts pods again
    /// before anything was copied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub drained_node: String,
    /// Progress, as QEMU reports it.
    #[serde(default, skip_serializing_if = "MigrationInfo::is_empty")]
    pub info: MigrationInfo,
    /// One word for where it is or how it ended: see [`MigrationReason`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The policy that applied; empty: none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// How the VM is carried, such as `multifd x4, zstd, tls, pause-before-switchover`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Requested options that were not available, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// When the VM was taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completion_time: Option<Timestamp>,
    /// Generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Words of [`VirtualMachineMigrationStatus::reason`], in the order in which a migration comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationReason {
    /// It waits for admission, or until the VM runs.
    Queued,
    /// The target pod is made and starts.
    Preparing,
    /// The two QEMUs agree, or disks are copied.
    Mirroring,
    /// Memory is copied.
    Copying,
    /// The guest is paused for the switchover.
    Switching,
    /// The VM runs on the target, its memory follows.
    PostCopy,
    /// The same, and the connection is lost.
    PostCopyPaused,
    /// It is being cancelled.
    Cancelling,
    /// The VM runs on the target.
    Completed,
    /// It was cancelled: the VM runs on its source node.
    Cancelled,
    /// Its time was up: the VM runs where it was.
    TimedOut,
    /// The target did not start.
    TargetFailed,
    /// QEMU or the connection failed: the VM runs where it was.
    TransferFailed,
    /// The VM itself ended meanwhile.
    MachineEnded,
    /// There is no such machine, or it is gone.
    MachineMissing,
    /// Its request cannot be fulfilled.
    Refused,
}

impl MigrationReason {
    /// The word in the object.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Preparing => "Preparing",
            Self::Mirroring => "Mirroring",
            Self::Copying => "Copying",
            Self::Switching => "Switching",
            Self::PostCopy => "PostCopy",
            Self::PostCopyPaused => "PostCopyPaused",
            Self::Cancelling => "Cancelling",
            Self::Completed => "Completed",
            Self::Cancelled => "Cancelled",
            Self::TimedOut => "TimedOut",
            Self::TargetFailed => "TargetFailed",
            Self::TransferFailed => "TransferFailed",
            Self::MachineEnded => "MachineEnded",
            Self::MachineMissing => "MachineMissing",
            Self::Refused => "Refused",
        }
    }
}

/// Where a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationPhase {
    /// It is being prepared.
    Pending,
    /// Data flows.
    Running,
    /// The VM runs on the target.
    Succeeded,
    /// The VM runs where it was.
    Failed,
}

/// Bytes of memory or disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RamProgress {
    /// Bytes sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub transferred: i64,
    /// Bytes to send.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remaining: i64,
    /// Bytes in all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total: i64,
}

/// What compression does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compression {
    /// Bytes after compression.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compressed_size: i64,
    /// Bytes before, divided by bytes after, rounded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compression_rate: i64,
}

/// Progress, as QEMU reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationInfo {
    /// QEMU's word for the state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Milliseconds since the start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_time_ms: i64,
    /// Milliseconds of preparation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub setup_time_ms: i64,
    /// Downtime of the guest, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub downtime_ms: i64,
    /// Downtime that is expected now, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expected_downtime_ms: i64,
    /// How often memory was gone through.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passes: i64,
    /// Bytes of memory that the VM changes in a second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dirty_rate: i64,
    /// Bytes sent in a second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throughput: i64,
    /// Percent by which the VM is slowed down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttle_percent: i64,
    /// Bytes that the VM may write to each of its disks in a second, because their copies would not catch up with it
    /// otherwise; 0: as many as it likes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_write_limit: i64,
    /// Disks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disk: RamProgress,
    /// Memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ram: RamProgress,
    /// Compression.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compression: Compression,
}

impl MigrationInfo {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether it has reached its end.
#[must_use]
pub fn is_over(migration: &VirtualMachineMigration) -> bool {
    let phase = migration.status.as_ref().and_then(|status| status.phase);
    matches!(phase, Some(MigrationPhase::Succeeded | MigrationPhase::Failed))
}

/// Whether it waits for admission; `locked`: the VM's status names it.
#[must_use]
pub fn is_waiting(migration: &VirtualMachineMigration, locked: bool) -> bool {
    let status = migration.status.as_ref();
    !locked
        && migration.metadata.deletion_timestamp.is_none()
        && !migration.spec.cancel
        && status.is_none_or(|status| {
            matches!(status.phase, None | Some(MigrationPhase::Pending)) && status.target_pod_name.is_empty()
        })
}
