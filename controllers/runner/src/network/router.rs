//! What a router does for its one host: DHCP (IPv4) and router advertisements (IPv6, RFC 4861, 8106).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::Duration;

use neonvm_types::node_protocol::{TAP, TAP_HARDWARE};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::Error;
use super::dhcp::{self, Lease};

/// Life of the route in seconds, the longest there is; it is announced again long before its end.
const LIFETIME: u16 = u16::MAX;
const INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Types of ICMPv6 messages.
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { what: what.to_owned(), source }
}

/// Serves DHCP on a socket of the tap device.
pub(super) fn serve_dhcp(socket: OwnedFd, lease: Lease) -> Result<JoinHandle<()>, Error> {
    let what = "cannot serve DHCP to the guest";
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true).map_err(failed(what))?;
    let socket = UdpSocket::from_std(socket).map_err(failed(what))?;
    Ok(tokio::spawn(async move {
        let mut buffer = vec![0; 1500];
        loop {
            let Ok((count, _)) = socket.recv_from(&mut buffer).await else { continue };
            if let Some(answer) = dhcp::answer(buffer.get(..count).unwrap_or_default(), &lease)
                && let Err(error) = socket.send_to(&answer, (Ipv4Addr::BROADCAST, 68)).await
            {
                tracing::warn!(%error, "a DHCP answer was not sent");
            }
        }
    }))
}

#[derive(Clone, Debug)]
pub(super) struct Advertisement {
    /// An address with the prefix of 64 bits.
    pub(super) prefix: Ipv6Addr,
    pub(super) mtu: u16,
    pub(super) name_servers: Vec<Ipv6Addr>,
}

impl Advertisement {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ADVERTISEMENT, 0, 0, 0, 64, 0];
        bytes.extend(LIFETIME.to_be_bytes());
        bytes.extend([0; 8]);
        // Source link-layer address.
        bytes.extend([1, 1]);
        bytes.extend(TAP_HARDWARE);
        // MTU.
        bytes.extend([5, 1, 0, 0]);
        bytes.extend(u32::from(self.mtu).to_be_bytes());
        // Prefix: on link, to make addresses of, for ever.
        bytes.extend([3, 4, 64, 0xc0]);
        bytes.extend([0xff; 8]);
        bytes.extend([0; 4]);
        let prefix = u128::from(self.prefix) & !u128::from(u64::MAX);
        bytes.extend(prefix.to_be_bytes());
        if !self.name_servers.is_empty() {
            let servers = self.name_servers.get(..self.name_servers.len().min(8)).unwrap_or_default();
            bytes.extend([25, u8::try_from(1 + 2 * servers.len()).unwrap_or(1), 0, 0]);
            bytes.extend([0xff; 4]);
            bytes.extend(servers.iter().flat_map(Ipv6Addr::octets));
        }
        bytes
    }
}

/// Announces itself on a raw socket of the tap device, and answers solicitations.
pub(super) fn advertise(socket: OwnedFd, advertisement: &Advertisement) -> Result<JoinHandle<()>, Error> {
    let what = "cannot announce an IPv6 router to the guest";
    let index = rustix::net::netdevice::name_to_index(&socket, TAP);
    let index = index.map_err(|error| failed(what)(error.into()))?;
    // Not UDP, but sent to and received from like it.
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true).map_err(failed(what))?;
    let socket = UdpSocket::from_std(socket).map_err(failed(what))?;
    let message = advertisement.encode();
    Ok(tokio::spawn(async move {
        let all_nodes = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, index);
        loop {
            // The link may have no carrier yet: the guest will solicit.
            let _ = socket.send_to(&message, all_nodes).await;
            let _ = tokio::time::timeout(INTERVAL, solicited(&socket)).await;
        }
    }))
}

async fn solicited(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(_) if buffer.first() == Some(&SOLICITATION) => return,
            Ok(_) => {}
            Err(_) => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_multiples_of_eight_bytes() {
        let advertisement = Advertisement {
            prefix: "fd00::1".parse().unwrap(),
            mtu: 1450,
            name_servers: vec!["2001:db8::53".parse().unwrap()],
        };
        let bytes = advertisement.encode();
        assert_eq!(bytes[..8], [134, 0, 0, 0, 64, 0, 255, 255]);
        let (mut rest, mut kinds) = (&bytes[16..], Vec::new());
        while !rest.is_empty() {
            kinds.push((rest[0], rest[1]));
            rest = &rest[usize::from(rest[1]) * 8..];
        }
        assert_eq!(kinds, [(1, 1), (5, 1), (3, 4), (25, 3)]);
    }
}
