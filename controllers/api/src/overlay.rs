//! The overlay network: names and numbers that controllers, nodes and runners must agree on.

/// Bridge of a node that everything on the overlay is joined to.
pub const BRIDGE: &str = "neon-br0";
/// Tunnel of a node to the others.
pub const TUNNEL: &str = "neon-vxlan0";
/// Number of the virtual network, 24 bits.
pub const VNI: u32 = 100;
/// UDP port of the tunnels.
pub const PORT: u16 = 4789;
/// Addresses of the overlay.
pub const RANGE: &str = "10.100.0.0/16";
/// First address of that range that a VM may have; those before it are for pods.
pub const FIRST_VM_ADDRESS: &str = "10.100.128.0";
/// Name of the network in the names of its pools.
pub const NETWORK: &str = "neonvm";
/// Name of the network attachment of runner pods, in the namespace of the services.
pub const ATTACHMENT: &str = "neonvm-overlay-for-vms";
/// Interface of a runner pod on the overlay, unless its VM names another.
pub const INTERFACE: &str = "net1";
/// Annotation of an `IPPool`: offset → second of Unix time when it was given back, JSON. Such addresses rest for a while.
pub const RELEASED: &str = "vm.neon.tech/released";

/// Hardware address from which runners forward frames for a VM that was migrated: bridges must not learn the senders of
/// those frames at that runner. It belongs to no interface.
pub const PASSED_ON: [u8; 6] = [0x02, 0x6e, 0x65, 0x6f, 0x6e, 0x02];

/// Bytes that a tunnel over IPv4 adds to a packet: Ethernet 14, VXLAN 8, UDP 8, IP 20.
pub const OVERHEAD_V4: u32 = 50;
/// The same over IPv6, whose header has 20 bytes more.
pub const OVERHEAD_V6: u32 = 70;

/// Hardware address of a VM on the overlay: unicast, locally administered, made of the UID of the VM alone, so that it
/// is the same wherever the VM runs and every component can compute it.
#[must_use]
pub fn hardware_address(uid: &str) -> [u8; 6] {
    // FNV-1a of 64 bits: any spread will do. The word keeps it apart from the address of the first interface.
    let bytes = uid.bytes().chain(*b"/overlay");
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Similar texts differ little in the high bits.
    let [_, _, a, b, c, d, e, f] = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    [(a & 0xfc) | 2, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn hardware_addresses_are_stable_local_and_differ() {
        let one = hardware_address("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d");
        assert_eq!(one, hardware_address("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d"));
        assert_eq!(one[0] & 3, 2);
        let all: BTreeSet<[u8; 6]> = (0..100_000).map(|n| hardware_address(&format!("{n:032x}"))).collect();
        assert_eq!(all.len(), 100_000);
    }
}
