//! Names and addresses that belong to one cluster, one node, one pod. Everything the node makes outside its directory
//! carries such a name, so that it can be found again and those of others are left alone.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use sha2::Digest as _;

/// SHA-256 of a text.
#[must_use]
pub(crate) fn digest(text: &str) -> [u8; 32] {
    sha2::Sha256::digest(text.as_bytes()).into()
}

fn short(text: &str, bytes: usize) -> String {
    digest(text).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Six digits that stand for a cluster.
#[must_use]
pub fn cluster_hash(cluster: &str) -> String {
    short(cluster, 3)
}

/// The bridge of the underlay in the host's namespace; at most 15 characters, as interfaces need.
#[must_use]
pub fn bridge(cluster: &str) -> String {
    format!("nv{}", cluster_hash(cluster))
}

/// The table with the cluster's rules in the host's namespace.
#[must_use]
pub fn table(cluster: &str) -> String {
    format!("nv_{}", cluster_hash(cluster))
}

/// The comment of the cluster's rules in chains of other programs.
#[must_use]
pub fn rule_comment(cluster: &str) -> String {
    format!("neonvm-{}", cluster_hash(cluster))
}

#[must_use]
pub fn node_namespace(cluster: &str, node: &str) -> String {
    format!("nv-{}-n-{node}", cluster_hash(cluster))
}

/// The host's end of a node's link to the underlay.
#[must_use]
pub fn node_link(cluster: &str, node: &str) -> String {
    format!("nv{}{}", cluster_hash(cluster), short(node, 3))
}

/// The network namespace of a pod. The node is part of the name, so that a node removes its own leftovers only.
#[must_use]
pub fn pod_namespace(cluster: &str, node: &str, uid: &str) -> String {
    format!("{}{}", pod_namespace_prefix(cluster, node), pod_key(uid))
}

/// What the namespaces of a node's pods begin with.
#[must_use]
pub fn pod_namespace_prefix(cluster: &str, node: &str) -> String {
    format!("nv-{}-p-{}-", cluster_hash(cluster), short(node, 2))
}

/// What every namespace of a cluster begins with.
#[must_use]
pub fn namespace_prefix(cluster: &str) -> String {
    format!("nv-{}-", cluster_hash(cluster))
}

/// Eight digits that stand for a pod.
#[must_use]
pub fn pod_key(uid: &str) -> String {
    short(uid, 4)
}

/// The node's end of a pod's link.
#[must_use]
pub fn pod_link(uid: &str) -> String {
    format!("p{}", pod_key(uid))
}

/// What the node's ends of a pod's links to the overlay begin with.
#[must_use]
pub(crate) fn overlay_link_prefix(uid: &str) -> String {
    format!("o{}", pod_key(uid))
}

/// The node's end of a pod's link to the overlay; the first has index 0.
#[must_use]
pub(crate) fn overlay_link(uid: &str, index: usize) -> String {
    format!("{}{index}", overlay_link_prefix(uid))
}

/// First user id of [`pod_user`]: behind those of systemd's containers (524288 to 1879048191), before those of its foreign users
/// (2147352576 and up), see "Users, Groups, UIDs and GIDs on systemd Systems".
const FIRST_POD_USER: u32 = 2_000_000_000;

/// How many pods' users there are.
const POD_USERS: u32 = 1 << 24;
/// Group of volumes that outlive a pod: pods of different users have them one after the other, and disks that are shared at the same time.
pub(crate) const VOLUMES_GROUP: u32 = FIRST_POD_USER + 2 * POD_USERS;

/// The user and group of a pod's runner and QEMU, by the pod's address: no two pods of a host that run have the same one, of whatever
/// cluster, so none may look into another. From 2000000000 to 2016777215.
#[must_use]
pub(crate) fn pod_user(pod: Ipv4Addr) -> u32 {
    // The first byte is the same for all pods.
    FIRST_POD_USER + (u32::from(pod) & (POD_USERS - 1))
}

/// The user and group of commands in a pod that are not ours. From 2016777216 to 2033554431.
#[must_use]
pub(crate) fn command_user(pod: Ipv4Addr) -> u32 {
    pod_user(pod) + POD_USERS
}

/// The cgroup of a cluster, relative to a hierarchy.
#[must_use]
pub fn cluster_cgroup(cluster: &str) -> String {
    format!("neonvm-{}", cluster_hash(cluster))
}

/// The cgroup of a pod, relative to a hierarchy.
#[must_use]
pub fn pod_cgroup(cluster: &str, node: &str, uid: &str) -> String {
    format!("{}/{node}/{uid}", cluster_cgroup(cluster))
}

/// A network: `10.90.7.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    address: Ipv4Addr,
    length: u8,
}

impl Subnet {
    /// The network of an address; bits beyond `length` (0 to 32, longer is taken as 32) are dropped.
    #[must_use]
    pub fn new(address: Ipv4Addr, length: u8) -> Self {
        let length = length.min(32);
        Self { address: Ipv4Addr::from_bits(address.to_bits() & mask(length)), length }
    }

    /// Bits of the prefix.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The `index`-th address, 0 being the network's own. None beyond the end.
    #[must_use]
    pub fn nth(self, index: u32) -> Option<Ipv4Addr> {
        let address = self.address.to_bits().checked_add(index)?;
        let address = Ipv4Addr::from_bits(address);
        self.contains(address).then_some(address)
    }

    /// Number of addresses.
    #[must_use]
    pub fn size(self) -> u64 {
        1 << (32 - self.length)
    }

    /// Whether an address lies within.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.length) == self.address.to_bits()
    }

    /// Whether two networks share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0)
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IPv4 network such as 10.90.7.0/24")]
pub struct NotASubnet;

impl FromStr for Subnet {
    type Err = NotASubnet;

    fn from_str(text: &str) -> Result<Self, NotASubnet> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let length: u8 = length.parse().map_err(|_| NotASubnet)?;
        let address: Ipv4Addr = address.parse().map_err(|_| NotASubnet)?;
        if length > 32 { Err(NotASubnet) } else { Ok(Self::new(address, length)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_short_enough_for_interfaces() {
        for name in
            [bridge("a cluster"), node_link("a cluster", "node"), pod_link("uid"), overlay_link("uid", 9999)]
        {
            assert!(name.len() <= 15, "{name}");
        }
        assert!(pod_namespace("c", "n", "u").starts_with(&namespace_prefix("c")));
        assert_ne!(pod_namespace("c", "n1", "u"), pod_namespace("c", "n2", "u"));
    }

    proptest! {
        #[test]
        fn networks_hold_their_addresses(bits: u32, length in 0_u8..=32, index: u32) {
            let net = Subnet::new(Ipv4Addr::from_bits(bits), length);
            prop_assert!(net.contains(Ipv4Addr::from_bits(bits)));
            prop_assert_eq!(net.to_string().parse::<Subnet>(), Ok(net));
            if let Some(address) = net.nth(index) {
                prop_assert!(net.contains(address));
            } else {
                prop_assert!(u64::from(index) >= net.size() || length == 0);
            }
            let other = Subnet::new(Ipv4Addr::from_bits(index), 24);
            prop_assert_eq!(net.overlaps(other), other.overlaps(net));
        }
    }
}
