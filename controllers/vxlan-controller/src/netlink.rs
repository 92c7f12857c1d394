//! Requests to the kernel by netlink, one at a time. A socket belongs to the namespace it was made in, and speaks one protocol: that
//! of routing, or the generic one, by which WireGuard is set up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

/// The kernel answers at once; this is for a kernel that does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest datagram of a dump.
const DATAGRAM: usize = 64 << 10;
/// Receive buffer for events that are not read yet, in bytes.
const ROOM: usize = 1 << 20;
/// `RTMGRP_LINK` and `RTMGRP_NEIGH`.
const GROUPS: u32 = 1 | 4;

/// A socket for requests.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens it in the namespace of this thread, for routing.
    pub(crate) fn open() -> io::Result<Self> {
        Self::from_protocol(None)
    }

    /// Opens it in the namespace of this thread, for the generic protocol.
    pub(crate) fn open_generic() -> io::Result<Self> {
        Self::from_protocol(Some(GENERIC))
    }

    fn from_protocol(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Has something done, and returns what is answered. The error is the kernel's.
    pub(crate) fn ask<M: Message>(&mut self, message: M, flags: u16) -> io::Result<Vec<M>> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        self.receive()
    }

    /// Lists something; what cannot be read is left out.
    pub(crate) fn list<M: Message>(&mut self, message: M) -> io::Result<Vec<M>> {
        self.send(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        self.receive()
    }

    fn send<M: Message>(&mut self, message: M, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// Reads answers until the last.
    fn receive<M: Message>(&mut self) -> io::Result<Vec<M>> {
        let mut all = Vec::new();
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let (length, _) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            for message in messages(buffer.get(..length).unwrap_or_default()) {
                if number(message) != Some(self.sequence) {
                    continue;
                }
                // Of what others made of a link not everything can be read; it is none of ours then.
                let Ok(message) = NetlinkMessage::<M>::deserialize(message) else {
                    continue;
                };
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => all.push(inner),
                    NetlinkPayload::Done(_) => return Ok(all),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(all),
                        Some(code) => return Err(io::Error::from_raw_os_error(code.get().saturating_neg())),
                    },
                    NetlinkPayload::Overrun(_) => return Err(io::Error::other("netlink overrun")),
                    _ => {}
                }
            }
        }
    }
}

/// What a socket can carry.
pub(crate) trait Message: NetlinkSerializable + NetlinkDeserializable {}

impl<M: NetlinkSerializable + NetlinkDeserializable> Message for M {}

/// The messages of a datagram. Each begins with its length and is padded to four bytes.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok().filter(|n| *n >= 16)?;
        let message = bytes.get(..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The sequence number of a message.
fn number(message: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*message.get(8..)?.first_chunk()?))
}

/// A socket that becomes readable when interfaces or forwarding tables of this thread's namespace change; reading never
/// blocks.
pub(crate) fn changes() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    let _ = set_socket_recv_buffer_size(&socket, ROOM);
    Ok(socket)
}

/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_DELNEIGH`; `AF_BRIDGE`.
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const DELETED_NEIGHBOUR: u16 = 29;
const BRIDGE_FAMILY: u8 = 7;

/// Reads what [`changes`] has, until that would block. `matters` is set if something of it does: links, and entries
/// that were taken out of forwarding tables. Changes of neighbours, which are frequent on a busy node, do not.
pub(crate) fn drain(socket: impl AsFd, matters: &mut bool) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        match recv(&socket, buffer.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => {
                *matters |= messages(buffer.get(..length).unwrap_or_default()).any(is_of_interest);
            }
            Err(rustix::io::Errno::INTR) => {}
            // Something was lost: it may have mattered.
            Err(rustix::io::Errno::NOBUFS) => *matters = true,
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_of_interest(message: &[u8]) -> bool {
    let kind = message.get(4..).and_then(|rest| rest.first_chunk()).map(|bytes| u16::from_ne_bytes(*bytes));
    match kind {
        Some(NEW_LINK | DELETED_LINK) => true,
        Some(DELETED_NEIGHBOUR) => message.get(16) == Some(&BRIDGE_FAMILY),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_cut_into_messages() {
        let mut bytes = Vec::new();
        for (length, kind) in [(17_u32, NEW_LINK), (20, DELETED_NEIGHBOUR)] {
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 2]);
            bytes.extend(7_u32.to_ne_bytes());
            bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
            let kind_at = bytes.len();
            bytes.resize(kind_at + usize::try_from(length).unwrap().next_multiple_of(4) - 16, 7);
        }
        let all: Vec<&[u8]> = messages(&bytes).collect();
        assert_eq!(all.iter().map(|message| message.len()).collect::<Vec<_>>(), [17, 20]);
        assert!(all.iter().all(|message| number(message) == Some(7) && is_of_interest(message)));
        assert!(!is_of_interest(&[0; 16]));
        for cut in 0..bytes.len() {
            assert!(messages(&bytes[..cut]).count() <= 2);
        }
        assert_eq!(messages(&[1, 0, 0, 0, 0, 0]).count(), 0);
    }
}
