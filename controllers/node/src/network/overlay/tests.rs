use neonvm_test_support::lab::{self, packet};
use neonvm_test_support::need;

use super::super::interfaces;
use super::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 7];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 8];
const ALL: [u8; 6] = [0xff; 6];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 0xfb];
const IP: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 7);
const OTHER_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 8);
const GUEST: Addresses = Addresses { hardware: OWN, ip: IP };
const TUN: &str = "/dev/net/tun";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Types of tags: of customers and services (IEEE 802.1Q), and an old one of the latter.
const TAGS: [[u8; 2]; 3] = [[0x81, 0], [0x88, 0xa8], [0x91, 0]];

fn frame(to: [u8; 6], from: [u8; 6], kind: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &kind.to_be_bytes(), content].concat();
    frame.resize(60, 0);
    frame
}

/// A datagram of the guest to all.
fn own() -> Vec<u8> {
    packet((OWN, ALL), (IP, OTHER_IP), UDP, 5000, b"own")
}

/// The beginning of a connection to the guest.
fn to_port(port: u16) -> Vec<u8> {
    packet((OTHER, OWN), (OTHER_IP, IP), TCP, port, b"")
}

fn arp(head: ([u8; 6], [u8; 6]), operation: u8, sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let content =
        [&[0, 1, 8, 0, 6, 4, 0, operation][..], &sender, &address, &[0; 6], &[10, 9, 9, 1]].concat();
    frame(head.1, head.0, 0x0806, &content)
}

/// The same with tags before the type: one, two and three of each kind, of no network and of one.
fn tagged(frame: &[u8]) -> Vec<Vec<u8>> {
    let tag = |kind: [u8; 2], number: u8| [kind[0], kind[1], 0, number];
    let mut stacks = Vec::new();
    for outer in TAGS {
        for number in [0, 5] {
            stacks.push(tag(outer, number).to_vec());
            for inner in TAGS {
                stacks.push([tag(outer, number), tag(inner, 0)].concat());
                stacks.push([tag(outer, number), tag(inner, 0), tag(inner, 0)].concat());
            }
        }
    }
    stacks.into_iter().map(|stack| [&frame[..12], &stack, &frame[12..]].concat()).collect()
}

/// Other types of frames: IPv6, the length of IEEE 802.3, MPLS, PPPoE, LLDP, MACsec, an experimental one.
const KINDS: [u16; 8] = [0x86dd, 0x0026, 0x8847, 0x8863, 0x8864, 0x88cc, 0x88e5, 0x88b5];

/// The pod's interface is a tap device with a simulated node at its other end.
fn joined(what: &str, test: impl FnOnce(&Tap, &Tap) + Send + 'static) -> neonvm_test_support::Need {
    lab::inside(what, || {
        let node = Tap::open("net1").expect("the node's end");
        let overlay =
            join("net1", &interfaces().expect("interfaces"), GUEST, Path::new(TUN)).expect("joined");
        test(&overlay.tap, &node);
    })
}

#[test]
fn a_guest_sends_as_itself_only() {
    need!(joined("source", |guest, node| {
        let probe = |sender, address| arp((OWN, ALL), 1, sender, address);
        let mut all = vec![
            ("its own packet", own(), true),
            ("its packet to a neighbour", packet((OWN, OTHER), (IP, OTHER_IP), UDP, 5000, b"x"), true),
            ("with another's address", packet((OWN, ALL), (OTHER_IP, IP), UDP, 5000, b"x"), false),
            ("with another's hardware address", packet((OTHER, ALL), (IP, OTHER_IP), UDP, 5000, b"x"), false),
            ("an ARP request of its own", probe(OWN, [10, 9, 9, 7]), true),
            ("an ARP probe", probe(OWN, [0; 4]), true),
            ("an announcement of another's address", probe(OWN, [10, 9, 9, 8]), false),
            ("an announcement for another", probe(OTHER, [10, 9, 9, 7]), false),
            ("a reply with another's address", arp((OWN, OTHER), 2, OWN, [10, 9, 9, 8]), false),
            ("a reply in another's name", arp((OTHER, ALL), 2, OTHER, [10, 9, 9, 8]), false),
            ("a reverse ARP request to all", frame(ALL, OWN, 0x8035, &[]), true),
            ("a reverse ARP request to another", frame(OTHER, OWN, 0x8035, &[]), false),
            ("a reverse ARP request for another", frame(ALL, OTHER, 0x8035, &[]), false),
            (
                "as if the runner passed it on to another",
                packet((PASSED_ON, OTHER), (OTHER_IP, IP), UDP, 1, b"x"),
                false,
            ),
            ("what the runner passes on to it", packet((PASSED_ON, OWN), (OTHER_IP, IP), UDP, 1, b"x"), true),
            ("of another kind, as if it did", frame(OWN, PASSED_ON, 0x88b5, &[]), false),
        ];
        all.extend(KINDS.map(|kind| ("another kind", frame(ALL, OWN, kind, &[0x60]), false)));
        for good in [own(), probe(OWN, [10, 9, 9, 7]), frame(ALL, OWN, 0x8035, &[])] {
            all.extend(tagged(&good).into_iter().map(|frame| ("a tagged frame", frame, false)));
        }
        for (what, frame, passes) in all {
            assert_eq!(arrives(guest, node, &frame, &own()), passes, "{what}: {frame:x?}");
        }
    }));
}

/// Finding 9b: the ports of the guest program stay closed in whatever frame a connection comes.
#[test]
fn a_guest_gets_what_is_for_it_and_no_other_kinds() {
    need!(joined("to-guest", |guest, node| {
        let good = packet((OTHER, OWN), (OTHER_IP, IP), UDP, 5000, b"good");
        let to_all =
            |protocol| packet((OTHER, ALL), (OTHER_IP, Ipv4Addr::new(10, 9, 255, 255)), protocol, 25183, b"");
        let mut all = vec![
            ("a packet for it", good.clone(), true),
            ("a packet that was passed on", packet((PASSED_ON, OWN), (OTHER_IP, IP), UDP, 5000, b"x"), true),
            ("a datagram for all", to_all(UDP), true),
            ("a connection for all", to_all(TCP), false),
            (
                "a datagram for a group",
                packet((OTHER, GROUP), (OTHER_IP, Ipv4Addr::new(224, 0, 0, 251)), UDP, 5353, b"x"),
                true,
            ),
            ("for another", packet((OTHER, [2, 0, 0, 0, 0, 9]), (OTHER_IP, IP), UDP, 5000, b"x"), false),
            (
                "with another's address",
                packet((OTHER, OWN), (OTHER_IP, Ipv4Addr::new(169, 254, 254, 254)), UDP, 5000, b"x"),
                false,
            ),
            ("an ARP request", arp((OTHER, ALL), 1, OTHER, [10, 9, 9, 8]), true),
            ("an ARP reply", arp((OTHER, OWN), 2, OTHER, [10, 9, 9, 8]), true),
            ("an ARP reply for another", arp((OTHER, [2, 0, 0, 0, 0, 9]), 2, OTHER, [10, 9, 9, 8]), false),
            ("a reverse ARP request", frame(ALL, OTHER, 0x8035, &[]), false),
        ];
        for (port, passes) in [(22, true), (25183, false), (10301, false), (9100, false), (5432, true)] {
            all.push(("a port", to_port(port), passes));
            all.extend(tagged(&to_port(port)).into_iter().map(|frame| ("a tagged connection", frame, false)));
        }
        all.extend(tagged(&good).into_iter().map(|frame| ("a tagged packet", frame, false)));
        all.extend(KINDS.map(|kind| ("another kind", frame(OWN, OTHER, kind, &[0x60]), false)));
        for (what, frame, passes) in all {
            assert_eq!(arrives(node, guest, &frame, &good), passes, "{what}: {frame:x?}");
        }
    }));
}

/// Whether a frame arrives at the other end: before one that surely does and is sent behind it. Ports of a bridge forward a
/// moment after they are up, so both are repeated until then.
fn arrives(from: &Tap, to: &Tap, frame: &[u8], behind: &[u8]) -> bool {
    let mut behind = behind.to_vec();
    // The number of the packet, and its checksum, which has one more if the number has one less.
    behind[19] = 9;
    behind[25] = behind[25].wrapping_sub(9);
    neonvm_test_support::eventually_blocking(
        || "no frame that may pass arrives".to_owned(),
        || {
            from.send(frame).expect("sent");
            from.send(&behind).expect("sent");
            let mut seen = false;
            while let Some(received) = to.receive().expect("read") {
                seen |= received.bytes() == frame;
                if received.bytes() == behind {
                    return Some(seen);
                }
            }
            None
        },
    )
}

#[test]
fn the_guest_is_joined_to_the_overlay_and_to_nothing_else() {
    need!(lab::inside("overlay", || {
        let join = |name: &str| join(name, &interfaces().expect("interfaces"), GUEST, Path::new(TUN));
        let none = join("net1").expect_err("there is no such interface").to_string();
        assert!(none.contains("no interface net1"), "{none}");
        run("ip", &["link", "add", "net1", "mtu", "1450", "type", "veth", "peer", "name", "far"], "")
            .expect("veth");
        run("ip", &["addr", "add", "10.9.9.9/24", "dev", "net1"], "").expect("an address");
        let overlay = join("net1").expect("joined");
        assert_eq!(overlay.mtu, 1450);
        let links = run("ip", &["-o", "addr", "show"], "").expect("addresses");
        assert!(!links.contains("10.9.9.9"), "{links}");
        let ports = run("ip", &["-o", "link", "show", "master", BRIDGE], "").expect("ports");
        assert!(ports.contains("net1") && ports.contains(TAP), "{ports}");
        let outside = "link add outside type bridge forward_delay 0\nlink set far master outside\n\
                       link set far up\nlink set outside up\n";
        run("ip", &["-batch", "-"], outside).expect("a bridge of the node");
        // A reverse ARP request for its own address, with which a runner claims its frames.
        let claim = arp((OWN, ALL), 3, OWN, [0; 4]);
        let claim = [&claim[..12], &[0x80, 0x35], &claim[14..]].concat();
        // Ports of the bridges forward a moment after they are up.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let known = || run("bridge", &["fdb", "show", "dev", "far"], "").expect("a table");
        while !known().contains("02:00:00:00:00:07") {
            assert!(std::time::Instant::now() < until, "the node does not know where: {}", known());
            overlay.tap.send(&claim).expect("sent");
        }
        drop(overlay);
        assert!(join("net1").is_ok(), "a second time");
    }));
}
