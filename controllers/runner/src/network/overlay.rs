//! The guest's second interface: its tap device is joined to the pod's interface on the overlay by a bridge without an
//! address. Pod and overlay see nothing of each other: no rule forwards between them, and nothing from there reaches the pod.

use std::fmt::Write as _;

use super::interface::{mtu, run};
use super::{Error, Tap};

/// The tap device.
const TAP: &str = "tap-overlay";
/// The bridge.
const BRIDGE: &str = "br-overlay";

/// Frames that wait at the tap device for a guest that stands still, such as one that is just arriving. About 10 MB.
const WAITING: u32 = 4096;

/// Says on the overlay that the guest is here.
#[derive(Debug)]
pub(crate) struct Claim {
    tap: Tap,
    hardware: [u8; 6],
}

impl Claim {
    /// For a guest behind a tap device.
    pub(crate) fn new(tap: &Tap, hardware: [u8; 6]) -> Result<Self, Error> {
        let failed = |source| Error::System { what: format!("cannot keep the device {TAP}"), source };
        Ok(Self { tap: tap.copy().map_err(failed)?, hardware })
    }

    /// From now on bridges and tunnels send frames for the guest here, where they wait until it reads them.
    pub(crate) fn send(&self) -> std::io::Result<()> {
        self.tap.send(&frame(self.hardware))
    }
}

/// A reverse ARP request for one's own address (RFC 903), to all: what QEMU sends, too, when a guest has arrived. No host
/// takes anything from it, but whatever forwards frames learns where the sender is.
fn frame(hardware: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    let head = [[0xff; 6], hardware].concat();
    // EtherType; Ethernet, IPv4, lengths of their addresses, request.
    let kind = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    let bytes = head.into_iter().chain(kind).chain(hardware).chain([0; 4]).chain(hardware);
    for (to, from) in frame.iter_mut().zip(bytes) {
        *to = from;
    }
    frame
}

/// The guest's end.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) tap: Tap,
    /// Greatest packet of the overlay.
    pub(crate) mtu: u16,
}

/// Joins a new tap device to an interface of the pod.
pub(crate) fn join(interface: &str) -> Result<Overlay, Error> {
    let missing = |_| Error::NoOverlay { interface: interface.to_owned() };
    let mtu = mtu(&run("ip", &["-o", "link", "show", "dev", interface], "").map_err(missing)?);
    let tap = Tap::open(TAP)?;
    let there = run("ip", &["-o", "link", "show", "dev", BRIDGE], "").is_ok();
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
    for name in [interface, TAP, BRIDGE] {
        // Where there is no IPv6, there is nothing to switch off.
        if let Err(error) = run("ip", &["link", "set", "dev", name, "addrgenmode", "none"], "") {
            tracing::debug!(name, %error, "no IPv6 address to switch off");
        }
    }
    run("ip", &["-batch", "-"], &lines)?;
    run("nft", &["-f", "-"], &rules(interface))?;
    let up: String = [BRIDGE, TAP, interface].iter().map(|name| format!("link set {name} up\n")).collect();
    run("ip", &["-batch", "-"], &up)?;
    Ok(Overlay { tap, mtu })
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
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::process::Command;

    use super::*;

    /// In a network namespace of its own: this thread's, which ends with the test.
    #[test]
    fn the_guest_is_joined_to_the_overlay_and_to_nothing_else() {
        if !rustix::process::geteuid().is_root() || Command::new("nft").arg("-v").output().is_err() {
            println!("SKIP joining the overlay: needs root and nft");
            return;
        }
        let name = format!("nvovl-{}", std::process::id());
        let ip = |arguments: &str| {
            let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
            assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        ip(&format!("netns add {name}"));
        let inside = std::thread::spawn({
            let name = name.clone();
            move || {
                let namespace = std::fs::File::open(format!("/run/netns/{name}")).expect("a namespace");
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                    .expect("root may enter");
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
                let claim = Claim::new(&overlay.tap, [2, 0, 0, 0, 0, 7]).expect("a claim");
                // Ports of the bridges forward a moment after they are up.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
                let known = || run("bridge", &["fdb", "show", "dev", "far"], "").expect("a table");
                while !known().contains("02:00:00:00:00:07") {
                    assert!(std::time::Instant::now() < until, "the node does not know where: {}", known());
                    claim.send().expect("sent");
                }
                drop((overlay, claim));
                assert!(join("net1").is_ok(), "a second time");
            }
        });
        let result = inside.join();
        ip(&format!("netns del {name}"));
        result.expect("well");
    }
}
