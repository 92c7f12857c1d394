//! How the guest is connected: by a tap device in the pod's network namespace, with our own DHCP and nftables rules, or by
//! QEMU's user-mode stack where there is no privilege.

mod capture;
pub(crate) mod dhcp;
mod forwarding;
mod frames;
mod interface;
#[cfg(test)]
mod lab;
mod nft;
mod overlay;
mod resolver;
mod router;
mod tap;
mod traffic;
pub(crate) mod user;
pub(crate) mod vhost;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

pub(crate) use frames::Frames;
pub(crate) use nft::Forward;
pub(crate) use overlay::{Addresses, join};
pub(crate) use tap::Tap;
#[cfg(test)]
pub(crate) use traffic::Traffic;
pub(crate) use traffic::{Meter, Reading};

pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 254);
/// Address of the pod's side: gateway and DHCP server of the guest.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 253);
/// Length of the prefix of both.
pub(crate) const PREFIX: u8 = 30;
pub(crate) const TAP_NAME: &str = "tap-def";
/// Hardware address of the tap device: the same in every pod, so that the guest's neighbour table stays right after a
/// migration.
pub(crate) const TAP_HARDWARE: &str = "02:6e:65:6f:6e:01";

/// How ports of the guest are reached from the runner.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    Address(IpAddr),
    /// Through forwards of QEMU.
    Forwards(Arc<BTreeMap<u16, SocketAddr>>),
}

impl Reach {
    /// Where a TCP port of the guest is reached; none if QEMU does not forward it.
    pub(crate) fn address(&self, port: u16) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(SocketAddr::new(*address, port)),
            Self::Forwards(forwards) => forwards.get(&port).copied(),
        }
    }
}

/// Hardware address of the guest: locally administered, made of the UID of the VM, so that it stays the same across
/// migrations.
pub(crate) fn guest_hardware(uid: &str) -> [u8; 6] {
    // FNV-1a: any spread will do, it only has to be the same everywhere.
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}

/// What can go wrong while the network is made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    System { what: String, source: std::io::Error },
    #[error("{program} failed: {output}")]
    Program { program: &'static str, output: String },
    #[error("{program} did not end within 10 s")]
    Hangs { program: &'static str },
    #[error(
        "the pod has no network interface with a default route or an address; a runner needs one to connect its guest"
    )]
    NoInterface,
    #[error("the pod's configuration: {0:?} is no address on the overlay network")]
    Address(String),
    #[error(
        "spec.extraNetwork: the pod has no interface {interface}; it comes from the network attachment of the pod, which on a cluster \
         Multus makes"
    )]
    NoOverlay { interface: String },
    #[error(
        "spec.extraNetwork: this node connects machines by user-mode networking (it runs without root), which has no overlay network"
    )]
    OverlayNeedsRoot,
}

pub(crate) use interface::{Settings, interfaces, name_guest, set_up};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_stable_and_local() {
        let one = guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d");
        assert_eq!(one, guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d"));
        assert_ne!(one, guest_hardware("5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9e"));
        assert_eq!(one[0] & 3, 2);
    }

    #[test]
    fn forwards_are_looked_up() {
        let to: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let reach = Reach::Forwards(Arc::new([(22, to)].into()));
        assert_eq!((reach.address(22), reach.address(23)), (Some(to), None));
    }
}
