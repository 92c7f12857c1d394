//! The guest's second interface: its tap device is joined to the pod's interface on the overlay by a bridge without an
//! address. Pod and overlay are separate: no rule forwards between them, and nothing from there reaches the pod. What the
//! guest sends carries its own hardware address and the address that the controller gave it, or is dropped at the tap device; and
//! neighbours cannot reach the guest program's own ports, which do not authenticate.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use neonvm_api::overlay::PASSED_ON;
use neonvm_types::guest;
use neonvm_types::monitor_protocol::MONITOR_PORT;

use super::program::run;
use super::{Error, Interfaces};
use neonvm_hypervisor::tap::Tap;
use neonvm_types::node_protocol::{OVERLAY_TAP as TAP, WAITING_FRAMES};

const BRIDGE: &str = "br-overlay";

/// Ports of the guest program that are for the runner and the agent: sizes and files, the monitor, metrics.
const PRIVATE: [u16; 3] = [guest::DAEMON_PORT, MONITOR_PORT, guest::METRICS_PORT];

/// The guest's end.
#[derive(Debug)]
pub struct Overlay {
    pub tap: Tap,
    /// Greatest packet of the overlay.
    pub mtu: u16,
}

#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub hardware: [u8; 6],
    /// The address that the controller gave it.
    pub ip: Ipv4Addr,
}

/// Joins a new tap device, made by the file `tun`, for a guest with these addresses to an interface of the pod, one of these.
///
/// # Errors
/// If there is no such interface, or a device or its rules cannot be made.
pub fn join(
    interface: &str,
    interfaces: &Interfaces,
    guest: Addresses,
    tun: &Path,
) -> Result<Overlay, Error> {
    let missing = || Error::NoOverlay { interface: interface.to_owned() };
    let mtu = *interfaces.get(interface).ok_or_else(missing)?;
    let tap = Tap::open_by(tun, TAP).map_err(Error::Tap)?;
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
    let _ = writeln!(lines, "link set {TAP} txqueuelen {WAITING_FRAMES}");
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
/// QEMU and the runner announce a guest that has arrived. Frames that the runner passes on carry another sender, but go to this guest
/// only.
///
/// What it may be sent: IPv4 and ARP for it or for all, but no connections to the guest program, which come by way of the pod.
///
/// The type is read from the frame as it came: a tag, of whatever type, is another, whether the kernel has taken it off or not.
fn filter(Addresses { hardware, ip }: Addresses) -> String {
    let text = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let (own, passed) = (text(hardware), text(PASSED_ON));
    let ports = PRIVATE.map(|port| port.to_string()).join(", ");
    let (v4, arp, rarp) = ("@ll,96,16 0x0800", "@ll,96,16 0x0806", "@ll,96,16 0x8035");
    let to_all = "ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00";
    format!(
        "table bridge neonvm_overlay {{}}\ndelete table bridge neonvm_overlay\ntable bridge neonvm_overlay {{\n \
         chain from_guest {{\n  type filter hook prerouting priority filter; policy accept;\n  \
         iifname != \"{TAP}\" accept\n  \
         {v4} ether saddr {passed} ether daddr {own} accept\n  \
         {arp} ether saddr {passed} ether daddr {own} accept\n  \
         ether saddr != {own} drop\n  \
         {v4} ip saddr {ip} accept\n  \
         {arp} arp saddr ether {own} arp saddr ip {{ 0.0.0.0, {ip} }} accept\n  \
         {rarp} ether daddr ff:ff:ff:ff:ff:ff accept\n  \
         drop\n }}\n \
         chain to_guest {{\n  type filter hook forward priority filter; policy accept;\n  \
         oifname != \"{TAP}\" accept\n  \
         {arp} ether daddr {{ {own}, ff:ff:ff:ff:ff:ff }} accept\n  \
         {v4} ether daddr {own} ip daddr {ip} tcp dport {{ {ports} }} drop\n  \
         {v4} ether daddr {own} ip daddr {ip} accept\n  \
         {v4} {to_all} ip protocol != tcp accept\n  \
         drop\n }}\n}}\n"
    )
}

#[cfg(test)]
mod tests;
