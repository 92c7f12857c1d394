//! The record of a disk's build, stored in the disk: read again by `image inspect`.

use serde::{Deserialize, Serialize};

/// Where the record is in the root file system.
pub const PATH: &str = "/neonvm/build.json";

/// How a disk was made. Holds nothing that changes when the same is built again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    pub source: String,
    pub source_digest: String,
    /// `amd64` or `arm64`.
    pub architecture: String,
    pub builder: String,
    /// SHA-256 of the guest program.
    pub guest_digest: String,
    /// SHA-256 of the specification, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// When the source was made, RFC 3339, by its own record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}
