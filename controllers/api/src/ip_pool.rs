//! `IPPool`: the addresses of an overlay network and their owners.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range of addresses and their owners.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "vm.neon.tech",
    version = "v1",
    kind = "IPPool",
    plural = "ippools",
    singular = "ippool",
    category = "neon",
    namespaced,
    derive = "PartialEq",
    doc = "The addresses of an overlay network and who has them.",
    printcolumn = r#"{"name":"Range","type":"string","jsonPath":".spec.range"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct IPPoolSpec {
    /// The range in CIDR notation.
    #[schemars(length(min = 1, max = 49))]
    pub range: String,
    /// Offset from the range's first address, in decimal → owner of that address.
    pub allocations: BTreeMap<String, IpAllocation>,
}

/// Owner of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IpAllocation {
    /// `<namespace>/<machine>`.
    pub id: String,
    /// The pod, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub podref: String,
}
