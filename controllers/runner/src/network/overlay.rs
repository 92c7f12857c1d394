//! The guest's second interface: its tap device is joined to the pod's interface on the overlay by a bridge without an
//! address. Pod and overlay see nothing of each other: no rule forwards between them, and nothing from there reaches the pod.

use std::fmt::Write as _;

use super::interface::{Interfaces, run};
use super::{Error, Tap};

/// The tap device.
const TAP: &str = "tap-overlay";
/// The bridge.
const BRIDGE: &str = "br-overlay";

/// Frames that wait at the tap device for a guest that stands still, such as one that is just arriving. About 10 MB.
pub(super) const WAITING: u32 = 4096;

/// The guest's end.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) tap: Tap,
    /// Greatest packet of the overlay.
    pub(crate) mtu: u16,
}

/// Joins a new tap device to an interface of the pod, one of these.
pub(crate) fn join(interface: &str, interfaces: &Interfaces) -> Result<Overlay, Error> {
    let missing = || Error::NoOverlay { interface: interface.to_owned() };
    let mtu = *interfaces.get(interface).ok_or_else(missing)?;
    let tap = Tap::open(TAP)?;
    // Rules go by names: they are there before anything passes.
    run("nft", &["-f", "-"], &rules(interface))?;
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

fn rules(interface: &str) -> String {
    format!(
        "table inet neonvm_overlay {{}}\ndelete table inet neonvm_overlay\ntable inet neonvm_overlay {{\n \
         chain to_pod {{\n  type filter hook input priority filter; policy accept;\n  \
         iifname {{ \"{BRIDGE}\", \"{TAP}\", \"{interface}\" }} drop\n }}\n \
         chain through {{\n  type filter hook forward priority filter; policy accept;\n  \
         iifname \"{BRIDGE}\" oifname != \"{BRIDGE}\" drop\n  \
         oifname \"{BRIDGE}\" iifname != \"{BRIDGE}\" drop\n }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::need;

    use super::super::{Frames, interfaces, lab};
    use super::*;

    #[test]
    fn the_guest_is_joined_to_the_overlay_and_to_nothing_else() {
        need!(lab::inside("overlay", || {
            let join = |name: &str| join(name, &interfaces().expect("interfaces"));
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
