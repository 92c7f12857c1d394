//! Limits of disks. They stand beside `disks`, of which nothing can change while a VM has a pod.

use neonvm_types::runner_protocol::{DiskBurst, DiskLimits, LimitsByDisk};
use neonvm_types::{Bytes, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Disk, VirtualMachineSpec};
use crate::runner_pod::ROOT_DISK_VOLUME;
use crate::{schema, schema::rules};

/// Least and most requests a second.
pub const IOPS: (u32, u32) = (10, 10_000_000);
/// Least and most bytes a second.
pub const BANDWIDTH: (Bytes, Bytes) = (Bytes::new(64 << 10), Bytes::gib(100));
/// Longest burst, in seconds: with the most bytes a second it is what QEMU can count.
pub const BURST_SECONDS: u32 = 3600;

/// Limits of one disk, of the guest's reads and writes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::disk_limit()))]
pub struct DiskLimit {
    /// Name of the disk, once in the list: an `emptyDisk`, one on a claim, or `rootdisk`.
    #[schemars(length(min = 1, max = 32))]
    pub disk: String,
    /// Requests a second. Absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 10_000_000))]
    pub iops: Option<u32>,
    /// Bytes a second, from `64Ki` to `100Gi`. Absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity_of_item")]
    pub bandwidth: Option<Quantity>,
    /// What a disk that was used less before may do for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<DiskLimitBurst>,
}

/// More than the limits for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskLimitBurst {
    /// Requests a second, above the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 10_000_000))]
    pub iops: Option<u32>,
    /// Bytes a second, above the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity_of_item")]
    pub bandwidth: Option<Quantity>,
    /// How long a burst at full speed lasts, in seconds.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 3600))]
    pub seconds: u32,
}

const fn one() -> u32 {
    1
}

impl DiskLimit {
    /// What the runner gets. An amount that cannot be read does not limit.
    #[must_use]
    pub fn limits(&self) -> DiskLimits {
        let bytes = |amount: Option<Quantity>| amount.and_then(|amount| Bytes::try_from(amount).ok());
        let burst = self.burst.map(|burst| DiskBurst {
            iops: burst.iops,
            bandwidth: bytes(burst.bandwidth),
            seconds: burst.seconds,
        });
        DiskLimits { iops: self.iops, bandwidth: bytes(self.bandwidth), burst }
    }

    /// The limits of a disk, as a runner has them.
    #[must_use]
    pub fn new(disk: impl Into<String>, limits: &DiskLimits) -> Self {
        let burst = limits.burst.map(|burst| DiskLimitBurst {
            iops: burst.iops,
            bandwidth: burst.bandwidth.map(Bytes::to_quantity),
            seconds: burst.seconds,
        });
        let bandwidth = limits.bandwidth.map(Bytes::to_quantity);
        Self { disk: disk.into(), iops: limits.iops, bandwidth, burst }
    }
}

impl Disk {
    /// Whether it is a disk of QEMU's that can be limited: files and the guest's memory cannot.
    #[must_use]
    pub fn can_be_limited(&self) -> bool {
        self.empty_disk.is_some() || self.claim("").is_some()
    }
}

impl VirtualMachineSpec {
    /// Whether the VM has a disk of this name that can be limited.
    #[must_use]
    pub fn can_limit(&self, name: &str) -> bool {
        name == ROOT_DISK_VOLUME || self.disks.iter().any(|disk| disk.name == name && disk.can_be_limited())
    }

    /// The limits of all disks, as the runner gets them.
    #[must_use]
    pub fn limits_by_disk(&self) -> LimitsByDisk {
        self.disk_limits.iter().map(|limit| (limit.disk.clone(), limit.limits())).collect()
    }

    /// Drops the limits of disks that the VM does not have (any more).
    pub fn drop_stale_limits(&mut self) {
        let mut limits = std::mem::take(&mut self.disk_limits);
        limits.retain(|limit| self.can_limit(&limit.disk));
        self.disk_limits = limits;
    }
}
