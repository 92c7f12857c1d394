//! Interfaces, addresses and routes through the kernel's netlink.
//!
//! Messages are those of the `netlink-packet` crates. The exchange is ours: `rtnetlink` needs an asynchronous runtime, which the
//! role `dhcp` has not, and waits without an end for a kernel that does not answer; `netlink-sys` has no deadline either.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    ErrorBuffer, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto,
    socket_with,
};

/// `RTMGRP_LINK`.
const LINK_GROUP: u32 = 1;
/// The kernel answers at once; this is for a kernel that does not.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

#[derive(Debug)]
pub struct Links {
    socket: OwnedFd,
    sequence: u32,
}

impl Links {
    /// Opens it.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Brings an interface up, and sets its MTU if one is given.
    pub fn up(&mut self, name: &str, mtu: Option<u32>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index(name)?;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.extend(mtu.map(LinkAttribute::Mtu));
        self.ask(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives an interface an address; the same one again is no error.
    pub fn add_address(&mut self, name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = address_message(name, address, prefix)?;
        if prefix < 31 {
            let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            message.attributes.push(AddressAttribute::Broadcast((u32::from(address) | host).into()));
        }
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes an address from an interface; its routes go with it.
    pub fn remove_address(&mut self, name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::DelAddress(address_message(name, address, prefix)?), 0)
    }

    /// Adds or replaces a route; without a router the destination is on the link itself.
    pub fn add_route(
        &mut self,
        name: &str,
        destination: Ipv4Addr,
        prefix: u8,
        router: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: AddressFamily::Inet,
            destination_prefix_length: prefix,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Dhcp,
            scope: if router.is_some() { RouteScope::Universe } else { RouteScope::Link },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Oif(index(name)?));
        if prefix > 0 {
            message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(destination)));
        }
        message.attributes.extend(router.map(|router| RouteAttribute::Gateway(RouteAddress::Inet(router))));
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let mut buffer = [0; 4096];
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if let Some(result) = answer(buffer.get(..length).unwrap_or_default(), self.sequence) {
                return result;
            }
        }
    }
}

/// The kernel's answer to the message of this number, if the bytes are that.
fn answer(bytes: &[u8], sequence: u32) -> Option<io::Result<()>> {
    let message = NetlinkBuffer::new_checked(bytes).ok()?;
    let error = ErrorBuffer::new_checked(message.payload()).ok()?;
    ((message.message_type(), message.sequence_number()) == (NLMSG_ERROR, sequence)).then(|| {
        match error.code() {
            None => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.get().saturating_neg())),
        }
    })
}

fn address_message(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<AddressMessage> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = index(name)?;
    message.attributes =
        vec![AddressAttribute::Local(IpAddr::V4(address)), AddressAttribute::Address(IpAddr::V4(address))];
    Ok(message)
}

fn index(name: &str) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Hardware address of an interface.
pub fn hardware_address(name: &str) -> io::Result<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"))?;
    let mut bytes = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut bytes {
        let part = parts.next().and_then(|part| u8::from_str_radix(part, 16).ok());
        *byte = part.ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(bytes)
}

/// Whether an interface has a carrier.
pub fn has_carrier(name: &str) -> bool {
    std::fs::read(format!("/sys/class/net/{name}/carrier")).is_ok_and(|text| text.starts_with(b"1"))
}

/// A descriptor that becomes readable when an interface changes; reading never blocks.
pub fn changes() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, LINK_GROUP))?;
    Ok(socket)
}

/// Reads away what [`changes`] has.
pub fn drain(socket: &OwnedFd) {
    let mut buffer = [0; 8192];
    // An overrun is an error once and then gone; what counts is looked up anyway.
    while recv(socket, &mut buffer[..], RecvFlags::empty()).is_ok_and(|(length, _)| length > 0) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_is_found_and_a_missing_interface_is_an_error() {
        assert_eq!(index("lo").unwrap(), 1);
        assert!(index("no-such-link").is_err());
        assert_eq!(hardware_address("lo").unwrap(), [0; 6]);
    }

    proptest! {
        #[test]
        fn any_answer_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..64), sequence: u32) {
            let _ = answer(&bytes, sequence);
        }
    }
}
