//! `VirtualMachineMigration`: the move of one machine to another node.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;
use neonvm_types::{Bytes, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, schema::rules};

/// What a migration should do. Cannot change.
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
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::immutable_spec()))]
pub struct VirtualMachineMigrationSpec {
    /// The machine, in the same namespace.
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
    /// Give up after this long, in seconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1))]
    pub completion_timeout: i32,
    /// Copy disks and memory while the machine runs.
    #[serde(default = "yes")]
    pub incremental: bool,
    /// Let the machine run on the target before all its memory is there.
    #[serde(default)]
    pub allow_post_copy: bool,
    /// Slow the machine down if its memory changes faster than it is copied.
    #[serde(default = "yes")]
    pub auto_converge: bool,
    /// Bytes in a second.
    #[serde(default = "default_bandwidth")]
    #[schemars(schema_with = "schema::quantity", extend("default" = "1Gi"))]
    pub max_bandwidth: Quantity,
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
    /// A migration of a machine, with every default.
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
        }
    }
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
    /// The node it goes to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_node: String,
    /// Progress, as QEMU tells it.
    #[serde(default, skip_serializing_if = "MigrationInfo::is_empty")]
    pub info: MigrationInfo,
}

/// Where a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationPhase {
    /// It is being prepared.
    Pending,
    /// Data flows.
    Running,
    /// The machine runs on the target.
    Succeeded,
    /// The machine runs where it was.
    Failed,
}

/// Progress of a migration.
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

/// Progress, as QEMU tells it.
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
    /// Milliseconds in which the machine stood still.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub downtime_ms: i64,
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
