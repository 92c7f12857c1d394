//! Reserves a TCP port while no process listens on it.
//!
//! The kernel takes the source ports of connections from the same range as the ports it hands out for port 0. A port that was
//! found free may therefore be in use a moment later, and a server that is started again may find its own port
//! taken by a connection. A socket that is bound but does not listen prevents both: with `SO_REUSEADDR` set on both sides, as
//! every common server sets it, the server may still bind the same address, and the kernel assigns it to no other socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with, sockopt};

/// Reserves an address until it is dropped.
#[derive(Debug)]
pub struct Reserved {
    address: SocketAddr,
    /// Bound for as long as this lives. Closed in programs that this one starts.
    _socket: OwnedFd,
}

impl Reserved {
    /// Reserves `address`; with port 0, a port of the kernel's choice.
    ///
    /// # Errors
    /// If the address is none of this machine's, or another process listens there or has a connection from there.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { address, _socket: socket })
    }

    /// Reserves a port of 127.0.0.1, of the kernel's choice.
    ///
    /// # Errors
    /// If no port is left.
    pub fn loopback() -> io::Result<Self> {
        Self::new((Ipv4Addr::LOCALHOST, 0).into())
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn only_who_knows_the_port_listens_there_again_and_again() {
        let reserved = Reserved::loopback().unwrap();
        assert_eq!(
            TcpStream::connect(reserved.address()).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        for _ in 0..3 {
            let listener = TcpListener::bind(reserved.address()).unwrap();
            let mut client = TcpStream::connect(reserved.address()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut server, b"x").unwrap();
            std::io::Read::read_exact(&mut client, &mut [0]).unwrap();
            let twice = TcpListener::bind(reserved.address()).unwrap_err();
            assert_eq!(twice.kind(), io::ErrorKind::AddrInUse);
            let taken = Reserved::new(reserved.address()).map(|again| TcpListener::bind(again.address()));
            assert!(!matches!(taken, Ok(Ok(_))), "two listen on one port");
        }
    }

    /// A socket that binds the port without `SO_REUSEADDR` is refused.
    #[test]
    fn no_other_socket_gets_the_port() {
        let reserved = Reserved::loopback().unwrap();
        let other = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(bind(&other, &reserved.address()), Err(rustix::io::Errno::ADDRINUSE));
    }

    #[test]
    fn what_is_taken_or_elsewhere_is_refused() {
        let taken = TcpListener::bind(ANY).unwrap();
        let error = Reserved::new(taken.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
        assert_eq!(Reserved::new(elsewhere).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        if let Ok(six) = Reserved::new(SocketAddr::from((Ipv6Addr::LOCALHOST, 0))) {
            assert!(six.address().is_ipv6() && six.address().port() > 0);
        }
    }
}
