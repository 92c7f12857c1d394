//! Limits of disks: how fast the guest may read and write each of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Limits of one disk, of reads and writes together. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskLimits {
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// More than that for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<DiskBurst>,
}

/// What a disk may do for a while that has done less before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskBurst {
    /// Requests a second; above [`DiskLimits::iops`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Bytes a second; above [`DiskLimits::bandwidth`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// How long at most, in seconds.
    pub seconds: u32,
}

/// Limits by the name of the disk; the root disk is `rootdisk`. A disk that is not named is not limited.
pub type LimitsByDisk = BTreeMap<String, DiskLimits>;

/// Body of `PUT /v1/disks/limits`: the limits of all disks from now on. Answered at once with the status; [`DiskLimitStatus`] has the
/// limits when they are in force. Refused (409) while the VM is suspended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRequest {
    /// Of each disk that is limited.
    pub limits: LimitsByDisk,
}

/// Limits that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskLimitStatus {
    /// The limits.
    #[serde(flatten)]
    pub limits: DiskLimits,
    /// The number of requests has been at its limit for some seconds, or lately was.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub iops_bind: bool,
    /// So has the number of bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bandwidth_binds: bool,
}

impl DiskLimits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for DiskLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |iops: Option<u32>, bandwidth: Option<Bytes>| {
            let iops = iops.map(|iops| format!("{iops} IOPS"));
            let bandwidth = bandwidth.map(|bytes| format!("{bytes}/s"));
            iops.into_iter().chain(bandwidth).collect::<Vec<_>>().join(", ")
        };
        f.write_str(&rate(self.iops, self.bandwidth))?;
        match self.burst {
            Some(burst) => write!(f, " (burst {} for {}s)", rate(burst.iops, burst.bandwidth), burst.seconds),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_elsewhere_and_shown_in_a_line() {
        let text = r#"{"iops":500,"bandwidth":"50Mi","burst":{"iops":2000,"seconds":30},"iopsBind":true}"#;
        let status: DiskLimitStatus = serde_json::from_str(text).unwrap();
        assert!(status.iops_bind && !status.bandwidth_binds);
        assert_eq!(serde_json::to_string(&status).unwrap(), text);
        assert_eq!(status.limits.to_string(), "500 IOPS, 50Mi/s (burst 2000 IOPS for 30s)");
        assert!(!status.limits.is_none() && DiskLimits::default().is_none());
    }
}
