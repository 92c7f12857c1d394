//! Disks besides the root disk. Each has exactly one source.

use k8s_openapi::api::core::v1 as core;
use neonvm_types::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{guest_path, schema, schema::rules};

/// A disk. Exactly one of the four sources must be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::disk()))]
pub struct Disk {
    /// Its name, once in the list: a DNS label of at most 32 characters, 16 for `emptyDisk`.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[schemars(extend("x-kubernetes-validations" = rules::disk_name()))]
    pub name: String,
    /// Whether the volume is mounted read-only into the pod.
    #[serde(default)]
    pub read_only: bool,
    /// Where it appears in the guest.
    #[schemars(length(min = 2, max = 4096), regex(pattern = guest_path::PATTERN), extend("x-kubernetes-validations" = guest_path::rules()))]
    pub mount_path: String,
    /// Push changes of a config map or secret into the running guest.
    #[serde(default)]
    pub watch: bool,
    /// An empty file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_disk: Option<EmptyDisk>,
    /// The keys of a config map as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::foreign::<core::ConfigMapVolumeSource>")]
    pub config_map: Option<core::ConfigMapVolumeSource>,
    /// The keys of a secret as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::foreign::<core::SecretVolumeSource>")]
    pub secret: Option<core::SecretVolumeSource>,
    /// A file system in the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmpfs: Option<TmpfsDisk>,
}

/// An empty file system on a separate disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDisk {
    /// Size of the disk.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Quantity,
    /// Hand freed blocks back to the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
    /// Make the file system with project quotas.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_quotas: bool,
}

/// A file system in the guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TmpfsDisk {
    /// Its largest size.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Quantity,
}

impl Disk {
    /// How many sources are set; one is right.
    #[must_use]
    pub fn source_count(&self) -> usize {
        [self.empty_disk.is_some(), self.config_map.is_some(), self.secret.is_some(), self.tmpfs.is_some()]
            .into_iter()
            .filter(|set| *set)
            .count()
    }
}
