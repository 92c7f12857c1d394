//! Disks besides the root disk. Each has exactly one source: its own, or the claim template with its name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use neonvm_types::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{guest_path, schema, schema::rules};

/// A disk. Exactly one of the five sources must be set; none for a disk whose name is that of a claim template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::disk()))]
pub struct Disk {
    /// Its name, once in the list: a DNS label of at most 32 characters, 16 for `emptyDisk` and claims.
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
    /// A file system on a persistent volume, which outlives the VM's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimDisk>,
}

/// A file system on a persistent volume. A claim of mode `Filesystem` has it in the file `disk.img`, one of mode `Block` on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDisk {
    /// Name of the claim in the VM's namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub claim_name: String,
}

/// Names of claims: a DNS subdomain, as Kubernetes has it.
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A claim that belongs to the VM: made when it is missing, with the name `TEMPLATE-VM`, for the disk with the template's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimTemplate {
    /// Name of the template and of its disk; labels and annotations of the claim.
    pub metadata: ClaimMetadata,
    /// The claim: class, size, access and volume mode.
    #[schemars(schema_with = "schema::foreign::<core::PersistentVolumeClaimSpec>")]
    pub spec: core::PersistentVolumeClaimSpec,
}

/// Metadata of a claim template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimMetadata {
    /// Name of the template, which is that of its disk.
    #[schemars(length(min = 1, max = 16), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Labels of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What becomes of the claims of the VM's templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRetentionPolicy {
    /// When the VM is deleted.
    #[serde(default)]
    pub when_deleted: ClaimRetention,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimRetention {
    /// It stays: a VM with the same name and template gets it again.
    #[default]
    Retain,
    /// It is deleted, and its volume by the policy of the class.
    Delete,
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
    /// How many sources are set; one is right, none for a disk with a claim template.
    #[must_use]
    pub fn source_count(&self) -> usize {
        let sources = [
            self.empty_disk.is_some(),
            self.config_map.is_some(),
            self.secret.is_some(),
            self.tmpfs.is_some(),
            self.persistent_volume_claim.is_some(),
        ];
        sources.into_iter().filter(|set| *set).count()
    }

    /// Name of the claim that has the content of this disk of a VM, whose name is given; `None` if no claim has it.
    #[must_use]
    pub fn claim(&self, vm: &str) -> Option<String> {
        match &self.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.clone()),
            None => (self.source_count() == 0).then(|| format!("{}-{vm}", self.name)),
        }
    }
}
