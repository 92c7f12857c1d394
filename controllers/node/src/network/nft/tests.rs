use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use neonvm_hypervisor::tap::Tap;
use neonvm_test_support::{lab, need};
use neonvm_types::node_protocol::{GATEWAY, PREFIX};

use super::super::program::run;
use super::*;

const GUEST_V6: &str = "fd6e:656f:6e00:0:12:34ff:fe56:789a";
const HARDWARE: [u8; 6] = [2, 0x12, 0x34, 0x56, 0x78, 0x9a];
const POD: [u8; 6] = [2, 0x6e, 0x65, 0x6f, 0x6e, 1];
/// Experimental (RFC 3692), TCP, UDP.
const OTHER: u8 = 253;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn rules_of_a_pod_with_both_families() {
    let forwards = [Forward { udp: false, port: 5432 }, Forward { udp: true, port: 53 }].into();
    let names = Resolver { v4: vec![[169, 254, 20, 10].into()], ..Resolver::default() };
    let text = rules("eth0", &forwards, Some("fd00::2".parse().unwrap()), Some(&names), false);
    for line in [
        "iifname \"eth0\" meta nfproto ipv4 tcp dport 5432 dnat ip to 169.254.254.254",
        "iifname \"eth0\" meta nfproto ipv6 udp dport 53 dnat ip6 to fd00::2",
        "fib daddr type local meta nfproto ipv4 tcp dport 5432 dnat ip to 169.254.254.254",
        "oifname \"eth0\" ip6 saddr fd00::2 masquerade",
        "iifname \"tap-def\" drop",
        "iifname \"tap-def\" ip saddr != 169.254.254.254 drop",
        "iifname \"tap-def\" ip6 saddr != fd00::2 drop",
        "ip daddr 169.254.20.10 meta l4proto { tcp, udp } th dport 53 return",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let open = rules("eth0", &forwards, None, None, false);
    assert!(
        !open.contains("counter")
            && !open.contains("ip6 ")
            && open.contains("meta nfproto ipv6 drop")
            && !open.contains("10250")
    );
}

/// A frame of the guest with a packet to an address, whose content begins with two ports.
fn to(address: IpAddr, protocol: u8, port: u16) -> Vec<u8> {
    let content = [&40_000_u16.to_be_bytes()[..], &port.to_be_bytes(), &[0, 20, 0, 0], &[0x50; 12]].concat();
    let (kind, packet) = match address {
        IpAddr::V4(address) => {
            let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
            ip.extend(GUEST.octets());
            ip.extend(address.octets());
            let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
            let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ([8, 0], ip)
        }
        IpAddr::V6(address) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
            ip.extend(GUEST_V6.parse::<Ipv6Addr>().unwrap().octets());
            ip.extend(address.octets());
            ([0x86, 0xdd], ip)
        }
    };
    [&POD[..], &HARDWARE, &kind, &packet, &content].concat()
}

/// A frame with tags in front of its type.
fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

/// A pod between the guest and a network, both of which are tap devices of the test.
struct Pod {
    guest: Tap,
    network: Tap,
}

impl Pod {
    /// In the namespace of this thread.
    fn new(names: Option<&Resolver>) -> Self {
        let pod = Self { guest: Tap::open(TAP).unwrap(), network: Tap::open("eth0").unwrap() };
        let hardware = HARDWARE.map(|byte| format!("{byte:02x}")).join(":");
        let lines = format!(
            "link set dev {TAP} address 02:6e:65:6f:6e:01 up\nlink set dev eth0 up\n\
             address add {GATEWAY}/{PREFIX} dev {TAP}\naddress add fd6e:656f:6e00::1/64 dev {TAP} nodad\n\
             neighbour replace {GUEST} lladdr {hardware} nud permanent dev {TAP}\n\
             neighbour replace {GUEST_V6} lladdr {hardware} nud permanent dev {TAP}\n\
             address add 10.7.0.2/24 dev eth0\naddress add 2001:db8::2/64 dev eth0 nodad\n\
             neighbour replace 10.7.0.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0\n\
             neighbour replace 2001:db8::1 lladdr 02:00:00:00:00:01 nud permanent dev eth0\n\
             route add default via 10.7.0.1\nroute add default via 2001:db8::1\n"
        );
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{key}"), "1").unwrap();
        }
        run("ip", &["-batch", "-"], &lines).unwrap();
        let forwards = [Forward { udp: true, port: overlay::PORT }].into();
        let text = rules("eth0", &forwards, Some(GUEST_V6.parse().unwrap()), names, true);
        run("nft", &["-f", "-"], &text).unwrap();
        pod
    }

    /// Whether a frame of the guest leads to a packet to the address, before one that surely does and is sent behind it.
    fn passes(&self, frame: &[u8], address: IpAddr) -> bool {
        let last: IpAddr = Ipv4Addr::new(198, 51, 100, 9).into();
        let is_to = |frame: &[u8], address: IpAddr| match address {
            IpAddr::V4(address) => {
                frame.get(12..14) == Some(&[8, 0]) && frame.get(30..34) == Some(&address.octets())
            }
            IpAddr::V6(address) => {
                frame.get(12..14) == Some(&[0x86, 0xdd]) && frame.get(38..54) == Some(&address.octets())
            }
        };
        self.guest.send(frame).unwrap();
        let mut seen = false;
        neonvm_test_support::eventually_blocking(
            || "no packet passes".to_owned(),
            || {
                self.guest.send(&to(last, OTHER, 0)).unwrap();
                let mut ends = None;
                while let Some(received) = self.network.receive().unwrap() {
                    seen |= is_to(received.bytes(), address);
                    ends = ends.or(is_to(received.bytes(), last).then_some(()));
                }
                ends
            },
        );
        seen
    }

    fn reaches(&self, address: &str, protocol: u8, port: u16) -> bool {
        let address = address.parse().unwrap();
        self.passes(&to(address, protocol, port), address)
    }
}

/// What the kernel would forward of the closed addresses; it forwards none of loopback, link-local of IPv6, multicast and reserved ones.
const FORWARDED: [&str; 23] = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "169.254.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",
    "fd00:a9fe:a9fe::1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::127.0.0.1",
    "64:ff9b::100.100.100.200",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:2:3:4:a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2002:7f00:1::",
    "2001:0:808:808:8000:1:5601:5601",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
];

/// Finding 12: each entry of the list and each spelling, through the rules of a pod; and what is open beside it.
#[test]
fn what_is_closed_is_not_reached() {
    need!(lab::inside("closed", || {
        let server: Ipv4Addr = [169, 254, 20, 10].into();
        let names =
            Resolver { v4: vec![server], v6: vec!["fd00:ec2::253".parse().unwrap()], ..Resolver::default() };
        let pod = Pod::new(Some(&names));
        for address in FORWARDED {
            assert!(!pod.reaches(address, OTHER, 0), "{address}");
            assert!(!pod.reaches(address, TCP, 80), "{address}");
        }
        for net in closed::networks() {
            let address = net.at(0).unwrap().to_string();
            assert!(!pod.reaches(&address, UDP, 53), "{address}");
        }
        // Kubelets are at any address: this node's, its gateway for pods, another's.
        for address in ["10.7.0.1", "10.8.0.9", "203.0.113.7", "2001:db8::1", "2600::7"] {
            for (port, passes) in [(10250, false), (10255, false), (10251, true), (443, true)] {
                assert_eq!(pod.reaches(address, TCP, port), passes, "{address} {port}");
            }
            assert!(!pod.reaches(address, UDP, 4789), "{address}");
            assert!(pod.reaches(address, UDP, 4790) && pod.reaches(address, OTHER, 0), "{address}");
        }
        // Name servers are reached wherever they are, and nothing else there.
        for server in ["169.254.20.10", "fd00:ec2::253"] {
            assert!(pod.reaches(server, UDP, 53) && pod.reaches(server, TCP, 53), "{server}");
            assert!(!pod.reaches(server, TCP, 80), "{server}");
        }
    }));
}

/// With the power `node-access` all of it is open, but for the tunnel of the overlay.
#[test]
fn what_an_administrator_opens_is_reached() {
    need!(lab::inside("open", || {
        let pod = Pod::new(None);
        for address in FORWARDED {
            assert!(pod.reaches(address, OTHER, 0), "{address}");
        }
        for address in ["10.8.0.9", "2600::7"] {
            assert!(pod.reaches(address, TCP, 10250) && !pod.reaches(address, UDP, 4789), "{address}");
        }
    }));
}

/// Finding 9b, on the pod's own side: no frame but IPv4, ARP and IPv6, and none in another's name.
#[test]
fn the_pod_takes_few_kinds_of_frames() {
    need!(lab::inside("kinds", || {
        let pod = Pod::new(None);
        for address in ["203.0.113.7", "2600::7"] {
            let address: IpAddr = address.parse().unwrap();
            let good = to(address, OTHER, 0);
            assert!(pod.passes(&good, address));
            let [c, s, old] = [0x8100_u16, 0x88a8, 0x9100].map(u16::to_be_bytes).map(|[a, b]| [a, b, 0, 0]);
            for tags in [vec![c], vec![s], vec![old], vec![c, c], vec![s, c], vec![c, s], vec![c, c, c]] {
                assert!(!pod.passes(&tagged(&good, &tags), address), "{tags:x?}");
            }
        }
        // Nor a packet with another's address.
        let mut other = to([203, 0, 113, 7].into(), OTHER, 0);
        other[29] ^= 1;
        other[24] ^= 1;
        assert!(!pod.passes(&other, [203, 0, 113, 7].into()));
    }));
}

/// A guest has the address of its other interface before it has one here, and requests this one with that.
#[test]
fn a_guest_requests_its_address_with_another() {
    need!(lab::inside("request", || {
        let pod = Pod::new(None);
        let server = std::net::UdpSocket::bind("0.0.0.0:67").unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        let to_all = ([2, 0, 0, 0, 0, 7], [0xff; 6]);
        let addresses = (Ipv4Addr::new(10, 100, 128, 1), Ipv4Addr::BROADCAST);
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{TAP}/rp_filter"), "0").unwrap();
        pod.guest.send(&lab::packet(to_all, addresses, UDP, 67, b"request")).unwrap();
        let mut buffer = [0; 64];
        let length = server.recv(&mut buffer).unwrap();
        assert!(buffer[..length].starts_with(b"request"));
    }));
}
