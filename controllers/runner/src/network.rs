//! How the guest is connected: by a tap device in the pod's network namespace, which the node service makes, with our own DHCP; or by
//! QEMU's user-mode stack where there is no privilege.

mod capture;
pub(crate) mod dhcp;
mod frames;
mod link;
mod node;
mod router;
mod traffic;
pub(crate) mod user;
pub(crate) mod vhost;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(crate) use frames::Frames;
pub(crate) use link::{Settings, set_up};
pub(crate) use node::{Node, Reports};
pub(crate) use traffic::{Meter, Reading};
pub(crate) use user::Forward;

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

/// What can go wrong while the network is made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    System { what: String, source: std::io::Error },
    #[error("the node service: {0}")]
    Refused(String),
    #[error(
        "the node service gave an answer that does not belong to the request; are node service and runner of one version?"
    )]
    Answer,
    #[error(
        "spec.extraNetwork: this node connects machines by user-mode networking (it runs without root), which has no overlay network"
    )]
    OverlayNeedsRoot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_looked_up() {
        let to: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let reach = Reach::Forwards(Arc::new([(22, to)].into()));
        assert_eq!((reach.address(22), reach.address(23)), (Some(to), None));
    }
}
