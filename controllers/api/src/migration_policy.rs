//! `MigrationPolicy`: how a set of VMs is migrated, unless the migration overrides it.

use std::collections::BTreeMap;

use kube::CustomResource;
use neonvm_types::Quantity;
use neonvm_types::runner_protocol::{Compression, OnTimeout, PostCopy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::virtual_machine::ClaimRetention;

/// How a set of VMs is migrated.
///
/// Of the policies that match a VM the one with the most labels in its selector wins, then the one that names namespaces,
/// then the first by name. A field that it leaves out has the installation's default.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "vm.neon.tech",
    version = "v1",
    kind = "MigrationPolicy",
    plural = "migrationpolicies",
    singular = "migrationpolicy",
    category = "neon",
    derive = "PartialEq",
    doc = "How virtual machines of some kind are moved.",
    printcolumn = r#"{"name":"Bandwidth","type":"string","jsonPath":".spec.maxBandwidth"}"#,
    printcolumn = r#"{"name":"Downtime","type":"integer","jsonPath":".spec.downtimeLimitMs"}"#,
    printcolumn = r#"{"name":"PostCopy","type":"string","jsonPath":".spec.postCopy"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPolicySpec {
    /// Labels a VM must have; none: every VM.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Namespaces of the VMs; none: every namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Most bytes in a second; a migration may request less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub max_bandwidth: Option<Quantity>,
    /// `false`: machines are not slowed down, even if a migration allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_converge: Option<bool>,
    /// Most seconds a migration may take; it may request less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub completion_timeout: Option<i32>,
    /// How the VMs are migrated.
    #[serde(flatten)]
    pub tuning: MigrationTuning,
}

/// How a VM is migrated. A value of the migration wins over its policy, a value of the policy over the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationTuning {
    /// Longest pause of the guest, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_000_000))]
    pub downtime_limit_ms: Option<u32>,
    /// Connections for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 255))]
    pub channels: Option<u8>,
    /// What compresses memory: `none` or `zstd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::compression")]
    pub compression: Option<Compression>,
    /// When the guest may run on the target before all its memory is there: `never`, `on-timeout`, `after-first-pass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::post_copy")]
    pub post_copy: Option<PostCopy>,
    /// What happens when the time is up: `abort`, `post-copy`, `continue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::on_timeout")]
    pub on_timeout: Option<OnTimeout>,
    /// Largest volume that is copied; a VM with a larger one, which only one node at a time can mount, is not migrated. `0`: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub max_volume_copy: Option<Quantity>,
    /// What becomes of a claim when the VM has left its volume for a copy: `Delete`, the default, or `Retain`. A claim that was not made
    /// for the VM always stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_volumes: Option<ClaimRetention>,
}
