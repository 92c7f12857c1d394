//! Forwarding between pod and guest. For IPv4 it is set at the interfaces, by netlink: that needs `NET_ADMIN` and
//! nothing more, where `/proc/sys` is read-only in every container that is not privileged. IPv6 has no forwarding per
//! interface.
//!
//! By hand, because the netlink crates encode `IFLA_INET_CONF` as the kernel reports it, an array, and not as it takes it.

use std::io;
use std::path::Path;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice};

/// Numbers of linux/netlink.h, linux/rtnetlink.h, linux/if_link.h and linux/ip.h.
const RTM_SETLINK: u16 = 19;
const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
const NESTED: u16 = 1 << 15;
const IFLA_AF_SPEC: u16 = 26;
const AF_INET: u16 = 2;
const IFLA_INET_CONF: u16 = 1;
const FORWARDING: u16 = 1;
const ROUTE_LOCALNET: u16 = 26;
/// Bytes of a message's head, and of the head of an attribute.
const HEAD: usize = 16;
const ATTRIBUTE: usize = 4;

/// What IPv4 does at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Packets that come in here are forwarded.
    Forward,
    /// That, and packets of loopback addresses may pass: the pod reaches the guest's ports at its own 127.0.0.1.
    ForwardAndLoopback,
}

pub(super) fn set(interface: &str, kind: Kind) -> io::Result<()> {
    // No protocol is NETLINK_ROUTE.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // Any socket can be used to get the index of an interface.
    let index = netdevice::name_to_index(&socket, interface)?;
    rustix::net::send(&socket, &request(index, kind), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    outcome(answer.get(..length).unwrap_or_default())
}

fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE + content.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn request(index: u32, kind: Kind) -> Vec<u8> {
    let on = 1_u32.to_ne_bytes();
    let mut settings = attribute(FORWARDING, &on);
    if kind == Kind::ForwardAndLoopback {
        settings.extend(attribute(ROUTE_LOCALNET, &on));
    }
    let inet = attribute(AF_INET | NESTED, &attribute(IFLA_INET_CONF | NESTED, &settings));
    // Of no family, of no type; no flag is changed.
    let interface = [[0; 4], index.to_ne_bytes(), [0; 4], [0; 4]].concat();
    let body = [interface, attribute(IFLA_AF_SPEC | NESTED, &inet)].concat();
    let length = u32::try_from(HEAD + body.len()).unwrap_or(u32::MAX);
    let kind = [RTM_SETLINK.to_ne_bytes(), REQUEST_AND_ACKNOWLEDGE.to_ne_bytes()].concat();
    let number = 1_u32.to_ne_bytes();
    [&length.to_ne_bytes()[..], &kind, &number, &[0; 4], &body].concat()
}

/// The kernel's answer: a negative error number, or zero.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let code = answer.get(HEAD..HEAD + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of netlink is too short")),
    }
}

/// Whether the pod forwards IPv6, or can be made to. `parameters`: the node's `/proc/sys/net`, which shows the network namespace of the
/// thread that opens a file there, and can be written to where that of a container cannot.
pub(super) fn v6(parameters: &Path) -> bool {
    let path = parameters.join("ipv6/conf/all/forwarding");
    let is_set = std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == "1");
    is_set || std::fs::write(path, "1").is_ok()
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::need;

    use neonvm_hypervisor::tap::Tap;
    use neonvm_test_support::lab;

    use super::super::program::run;
    use super::*;

    #[test]
    fn packets_are_forwarded_although_the_kernel_parameter_is_off() {
        need!(lab::inside("forward", || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").expect("root may");
            let _tap = Tap::open("tap-def").expect("a tap device");
            let lines = "link add outer type veth peer name far\nlink set far up\naddress add 10.0.0.2/24 dev outer\nlink set outer up\n\
                         route add default via 10.0.0.1 dev outer\n\
                         address add 169.254.254.253/30 dev tap-def\nlink set tap-def up\n";
            run("ip", &["-batch", "-"], lines).expect("links");
            let route = || {
                let question = ["route", "get", "8.8.8.8", "from", "169.254.254.254", "iif", "tap-def"];
                run("ip", &question, "")
            };
            route().expect_err("nothing is forwarded");
            set("tap-def", Kind::ForwardAndLoopback).expect("set");
            set("outer", Kind::Forward).expect("set");
            assert!(route().expect("forwarded").contains("dev outer"));
            let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
            for (name, value) in [
                ("ip_forward", "0"),
                ("conf/outer/forwarding", "1"),
                ("conf/outer/route_localnet", "0"),
                ("conf/tap-def/forwarding", "1"),
                ("conf/tap-def/route_localnet", "1"),
            ] {
                assert_eq!(read(name).expect("a parameter").trim(), value, "{name}");
            }
            assert!(set("none", Kind::Forward).is_err());
        }));
    }

    #[test]
    fn answers_are_understood() {
        let answer = |code: i32| [&[0; 16][..], &code.to_ne_bytes()].concat();
        assert!(outcome(&answer(0)).is_ok());
        assert_eq!(outcome(&answer(-1)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        for bad in [vec![], vec![0; 18], answer(i32::MIN)] {
            assert!(outcome(&bad).is_err());
        }
    }
}
