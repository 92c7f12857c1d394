//! Sockets that a runner may not make: it gets them open.
#![expect(unsafe_code, reason = "packet sockets have no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::mem::size_of_val;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

use neonvm_types::node_protocol::TAP;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, netdevice, sockopt};

use super::Error;

/// Port of DHCP servers.
const DHCP: u16 = 67;
/// The kernel's buffer in bytes for copies of frames, for what arrives between two reads.
const BUFFER: c_int = 4 << 20;

/// Serves DHCP at the link, and nowhere else.
pub(super) fn dhcp() -> Result<UdpSocket, Error> {
    let make = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DHCP))?;
        let name: Vec<u8> = TAP.bytes().collect();
        set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_slice())?;
        socket.set_broadcast(true)?;
        Ok(socket)
    };
    make().map_err(Error::system("cannot serve DHCP to the guest"))
}

/// Announces a router at the link.
pub(super) fn advertisements() -> Result<OwnedFd, Error> {
    let make = || {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::ICMPV6))?;
        let index = netdevice::name_to_index(&socket, TAP)?;
        // Nothing of another interface of the pod is read or sent.
        let name: Vec<u8> = TAP.bytes().collect();
        set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_slice())?;
        // Receivers drop what has passed a router: 255 hops must be left (RFC 4861 §6.1.2).
        sockopt::set_ipv6_multicast_hops(&socket, 255)?;
        sockopt::set_ipv6_unicast_hops(&socket, Some(255))?;
        let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
        sockopt::set_ipv6_add_membership(&socket, &routers, index)?;
        Ok(socket)
    };
    make().map_err(Error::system("cannot announce an IPv6 router to the guest"))
}

/// Copies the frames that come and go at a device, once it is bound to it.
///
/// # Errors
/// Without the right to do so, or if there is no such device.
pub fn copies(device: &str) -> io::Result<OwnedFd> {
    // Without a protocol the socket gets nothing.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    netdevice::name_to_index(&socket, device)?;
    // The header that the device's frames have, so that they can be given back as they are.
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &(1 as c_int))?;
    // More than the limit of the system needs NET_ADMIN.
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER)?;
    Ok(socket)
}

fn set<T: ?Sized>(socket: &impl std::os::fd::AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = u32::try_from(size_of_val(value)).unwrap_or_default();
    // SAFETY: the kernel reads `length` bytes of the value before it returns.
    let done = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
