//! The guest's second interface: its tap device is joined to the pod's interface on the overlay by a bridge without an
//! address. Pod and overlay are separate: no rule forwards between them, and nothing from there reaches the pod. What the
//! guest sends carries its own hardware address and the address that the controller gave it, or is dropped at the tap device; and
//! neighbours cannot reach the guest program's own ports, which do not authenticate.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use neonvm_api::overlay::PASSED_ON;
use neonvm_types::guest;
use neonvm_types::monitor_protocol::MONITOR_PORT;

use super::interface::{Interfaces, run};
use super::{Error, Tap};

/// The tap device.
pub(super) const TAP: &str = "tap-overlay";
const BRIDGE: &str = "br-overlay";

/// Ports of the guest program that are for the runner and the agent: sizes and files, the monitor, metrics.
const PRIVATE: [u16; 3] = [guest::DAEMON_PORT, MONITOR_PORT, guest::METRICS_PORT];

/// Frames that are queued at the tap device for a guest that is paused, such as one that is just arriving. About 10 MB.
pub(super) const WAITING: u32 = 4096;

/// The guest's end.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) tap: Tap,
    /// Greatest packet of the overlay.
    pub(crate) mtu: u16,
}

/// Addresses of the guest on the overlay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// Its hardware address.
    pub(crate) hardware: [u8; 6],
    /// The address that the controller gave it.
    pub(crate) ip: Ipv4Addr,
}

/// Joins a new tap device for a guest with these addresses to an interface of the pod, one of these.
pub(crate) fn join(interface: &str, interfaces: &Interfaces, guest: Addresses) -> Result<Overlay, Error> {
    let missing = || Error::NoOverlay { interface: interface.to_owned() };
    let mtu = *interfaces.get(interface).ok_or_else(missing)?;
    let tap = Tap::open(TAP)?;
    // Rules go by names: they are there before anything passes.
    run("nft", &["-f", "-"], &rules(interface, guest))?;
    run("ip", &["-batch", "-"], &wiring(interface, mtu, interfaces.contains_key(BRIDGE), has_v6(mtu)))?;
    Ok(Overlay { tap, mtu })
}

/// Whether interfaces have IPv6, of themselves: if the kernel has it and packets may be long enough for it (RFC 8200, section 5).
fn has_v6(mtu: u16) -> bool {
    mtu >= 1280 && std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// What makes the bridge and its two ports, as lines for `ip`; `there`: the bridge is, from a runner that was here before.
fn wiring(interface: &str, mtu: u16, there: bool, v6: bool) -> String {
    let mut lines = String::new();
    if !there {
        let _ = writeln!(lines, "link add {BRIDGE} type bridge forward_delay 0 mcast_snooping 0");
    }
    let _ = writeln!(lines, "link set {BRIDGE} arp off");
    for name in [interface, TAP] {
        let _ = writeln!(lines, "address flush dev {name}");
        let _ = writeln!(lines, "link set {name} mtu {mtu} master {BRIDGE}");
        // Two ports need no table: what comes in here goes out there.
        let _ = writeln!(lines, "link set {name} type bridge_slave learning off");
    }
    let _ = writeln!(lines, "link set {BRIDGE} mtu {mtu}");
    let _ = writeln!(lines, "link set {TAP} txqueuelen {WAITING}");
    for name in [BRIDGE, TAP, interface] {
        if v6 {
            let _ = writeln!(lines, "link set {name} addrgenmode none");
        }
        let _ = writeln!(lines, "link set {name} up");
    }
    lines
}

fn rules(interface: &str, guest: Addresses) -> String {
    let filter = filter(guest);
    format!(
        "table inet neonvm_overlay {{}}\ndelete table inet neonvm_overlay\ntable inet neonvm_overlay {{\n \
         chain to_pod {{\n  type filter hook input priority filter; policy accept;\n  \
         iifname {{ \"{BRIDGE}\", \"{TAP}\", \"{interface}\" }} drop\n }}\n \
         chain through {{\n  type filter hook forward priority filter; policy accept;\n  \
         iifname \"{BRIDGE}\" oifname != \"{BRIDGE}\" drop\n  \
         oifname \"{BRIDGE}\" iifname != \"{BRIDGE}\" drop\n }}\n}}\n{filter}"
    )
}

/// What the guest may send: IPv4 and ARP with its own addresses (an ARP probe has no address yet, RFC 5227), and reverse ARP, by which
/// QEMU announces a guest that has arrived. Frames that the runner passes on carry another sender, but go to this guest only.
/// What it may be sent: anything but connections to the guest program, which come by way of the pod.
fn filter(Addresses { hardware, ip }: Addresses) -> String {
    let text = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let (own, passed) = (text(hardware), text(PASSED_ON));
    let ports = PRIVATE.map(|port| port.to_string()).join(", ");
    format!(
        "table bridge neonvm_overlay {{}}\ndelete table bridge neonvm_overlay\ntable bridge neonvm_overlay {{\n \
         chain from_guest {{\n  type filter hook prerouting priority filter; policy accept;\n  \
         iifname != \"{TAP}\" accept\n  \
         ether saddr {passed} ether daddr {own} accept\n  \
         ether saddr != {own} drop\n  \
         ether type ip ip saddr {ip} accept\n  \
         ether type arp arp saddr ether {own} arp saddr ip {{ 0.0.0.0, {ip} }} accept\n  \
         ether type 0x8035 accept\n  \
         drop\n }}\n \
         chain to_guest {{\n  type filter hook forward priority filter; policy accept;\n  \
         oifname \"{TAP}\" ip protocol tcp tcp dport {{ {ports} }} drop\n }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::need;

    use super::super::{Frames, interfaces, lab};
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 8];
    const ALL: [u8; 6] = [0xff; 6];
    const GUEST: Addresses = Addresses { hardware: OWN, ip: Ipv4Addr::new(10, 9, 9, 7) };

    fn frame(to: [u8; 6], from: [u8; 6], kind: [u8; 2], content: &[u8]) -> Vec<u8> {
        let mut frame = [&to[..], &from, &kind, content].concat();
        frame.resize(60, 0);
        frame
    }

    /// A packet that fills its frame. Where bridges give packets to the rules of the host, padding is cut off, and the checksum of the
    /// header must be right (RFC 1071).
    fn packet(to: [u8; 6], from: [u8; 6], address: u8, identification: u8) -> Vec<u8> {
        let mut ip = [0; 46];
        let head = [0x45, 0, 0, 46, 0, identification, 0, 0, 64, 17, 0, 0, 10, 9, 9, address, 10, 9, 9, 1];
        ip[..20].copy_from_slice(&head);
        let sum: u32 = head.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame(to, from, [8, 0], &ip)
    }

    /// The beginning of a connection to the guest.
    fn to_port(port: u16) -> Vec<u8> {
        let mut frame = packet(OWN, OTHER, 8, 0);
        let (protocol, checksum, content) = (23, 24, 34);
        frame[protocol] = 6;
        // One number less where the sum is negated is one number more.
        let sum = u16::from_be_bytes([frame[checksum], frame[checksum + 1]]) + (17 - 6);
        frame[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        frame[content + 2..content + 4].copy_from_slice(&port.to_be_bytes());
        frame
    }

    fn arp(sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
        let content = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &sender, &address, &[0; 6], &[10, 9, 9, 1]].concat();
        frame(ALL, OWN, [8, 6], &content)
    }

    /// The pod's interface is a tap device with a simulated node at its other end.
    #[test]
    fn a_guest_sends_as_itself_only() {
        need!(lab::inside("source", || {
            let node = Tap::open("net1").expect("the node's end");
            let overlay = join("net1", &interfaces().expect("interfaces"), GUEST).expect("joined");
            let sent = [
                ("its own packet", packet(ALL, OWN, 7, 0), true),
                ("a packet with another's address", packet(ALL, OWN, 8, 0), false),
                ("a packet with another's hardware address", packet(ALL, OTHER, 7, 0), false),
                ("an ARP request of its own", arp(OWN, [10, 9, 9, 7]), true),
                ("an ARP probe", arp(OWN, [0; 4]), true),
                ("an announcement of another's address", arp(OWN, [10, 9, 9, 8]), false),
                ("an announcement for another", arp(OTHER, [10, 9, 9, 7]), false),
                ("another protocol", frame(ALL, OWN, [0x86, 0xdd], &[0x60]), false),
                ("a tagged frame", frame(ALL, OWN, [0x81, 0], &[0, 1, 8, 0, 0x45]), false),
                ("a frame as if the runner passed it on to another", packet(OTHER, PASSED_ON, 9, 0), false),
                ("what the runner passes on to it", packet(OWN, PASSED_ON, 9, 0), true),
            ];
            for (what, frame, passes) in sent {
                assert_eq!(arrives(&overlay.tap, &node, &frame), passes, "{what}");
            }
            for (port, passes) in [(22, true), (25183, false), (10301, false), (9100, false), (5432, true)] {
                assert_eq!(arrives(&node, &overlay.tap, &to_port(port)), passes, "port {port}");
            }
        }));
    }

    /// Whether a frame arrives at the other end: before one that surely does and is sent behind it. Ports of a bridge forward a
    /// moment after they are up, so both are repeated until then.
    fn arrives(from: &Tap, to: &Tap, frame: &[u8]) -> bool {
        let behind = packet(ALL, OWN, 7, 9);
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
            let join = |name: &str| join(name, &interfaces().expect("interfaces"), GUEST);
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
            let frames = Frames::new(&overlay.tap, [2, 0, 0, 0, 0, 7]).expect("frames");
            // Ports of the bridges forward a moment after they are up.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let known = || run("bridge", &["fdb", "show", "dev", "far"], "").expect("a table");
            while !known().contains("02:00:00:00:00:07") {
                assert!(std::time::Instant::now() < until, "the node does not know where: {}", known());
                frames.claim().expect("sent");
            }
            drop((overlay, frames));
            assert!(join("net1").is_ok(), "a second time");
        }));
    }
}
