//! User-mode networking: QEMU forwards ports of the pod's address to the guest.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use neonvm_hypervisor::plan::{USER_GUEST_ADDRESS, USER_HOST_ADDRESS, USER_NAME_SERVER};
use neonvm_types::guest::Network;

/// A port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) udp: bool,
    pub(crate) port: u16,
}

/// What QEMU's own network stack gives to the guest, which the guest gets beforehand.
pub(crate) fn guest() -> Network {
    Network {
        address: USER_GUEST_ADDRESS,
        prefix: 24,
        gateway: USER_HOST_ADDRESS,
        name_servers: vec![USER_NAME_SERVER],
        search: Vec::new(),
        mtu: None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostForward {
    pub(crate) udp: bool,
    pub(crate) host: SocketAddr,
    pub(crate) guest: u16,
}

/// Ports to forward: those of the VM at their own number if it is free, and those of the runner itself at any.
/// Also returns a message for each port that could not be bound.
pub(crate) fn forwards(pod: IpAddr, wanted: &[Forward], own: &[u16]) -> (Vec<HostForward>, Vec<String>) {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for forward in wanted {
        let host = SocketAddr::new(pod, forward.port);
        match can_bind(host, forward.udp) {
            Ok(_) => all.push(HostForward { udp: forward.udp, host, guest: forward.port }),
            Err(error) => problems
                .push(format!("port {} of the guest is not reachable at {host}: {error}", forward.port)),
        }
    }
    for &guest in own {
        if all.iter().any(|known| known.guest == guest && !known.udp) {
            continue;
        }
        match can_bind(SocketAddr::new(pod, 0), false) {
            Ok(host) => all.push(HostForward { udp: false, host, guest }),
            Err(error) => problems.push(format!("no free port on {pod}: {error}")),
        }
    }
    (all, problems)
}

/// The TCP ports of the guest by number.
pub(crate) fn reach(forwards: &[HostForward]) -> BTreeMap<u16, SocketAddr> {
    forwards.iter().filter(|forward| !forward.udp).map(|forward| (forward.guest, forward.host)).collect()
}

fn can_bind(address: SocketAddr, udp: bool) -> std::io::Result<SocketAddr> {
    if udp { UdpSocket::bind(address)?.local_addr() } else { TcpListener::bind(address)?.local_addr() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_ports_go_anywhere_and_taken_ones_are_reported() {
        let pod: IpAddr = [127, 91, 4, 7].into();
        let taken = TcpListener::bind((pod, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let (all, problems) = forwards(pod, &[Forward { udp: false, port }], &[25183, 22]);
        assert_eq!(all.iter().map(|forward| forward.guest).collect::<Vec<_>>(), [25183, 22]);
        assert!(problems.len() == 1 && problems[0].contains(&format!("port {port} of the guest")));
        assert_eq!(reach(&all).len(), 2);
    }
}
