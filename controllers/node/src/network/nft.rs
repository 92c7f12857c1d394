//! The rules between pod and guest, as text for `nft -f -`. Pure.
//!
//! Ports of the guest are reached at the pod's address, from outside and from the pod itself; the guest reaches out
//! with the pod's address; and of the pod itself the guest reaches DHCP and echo only, so that the runner's port is out of its
//! reach. What the guest sends is IPv4, ARP or, if the pod has it, IPv6, and carries its own address; none of it reaches the tunnel
//! of a node's overlay. Unless the policy of its namespace allows it, the guest reaches neither the addresses of
//! [`neonvm_core_overlay::closed`], such as metadata services that hand out the node's credentials, nor kubelets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use neonvm_api::overlay;
use neonvm_core_overlay::closed::{self, KUBELET_PORTS, Pattern};

use neonvm_types::node_protocol::{GUEST, TAP};

use super::resolver::Resolver;
use super::traffic;
use crate::decision::Forward;

/// The rules. `uplink` is the pod's interface; `guest_v6` the guest's address if the pod has IPv6; `names` the name servers, which the
/// guest reaches wherever they are, or `None` if nothing is closed to it; `counted`: its traffic is counted.
pub(super) fn rules(
    uplink: &str,
    forwards: &BTreeSet<Forward>,
    guest_v6: Option<Ipv6Addr>,
    names: Option<&Resolver>,
    counted: bool,
) -> String {
    let mut text = String::from("table inet neonvm {}\ndelete table inet neonvm\ntable inet neonvm {\n");
    if counted {
        text.push_str(&traffic::counters());
    }
    text.push_str(" chain incoming {\n  type nat hook prerouting priority dstnat; policy accept;\n");
    targets(&mut text, &format!("iifname \"{uplink}\""), forwards, guest_v6);
    text.push_str(" }\n chain own {\n  type nat hook output priority -100; policy accept;\n");
    targets(&mut text, "fib daddr type local", forwards, guest_v6);
    text.push_str(" }\n chain leaving {\n  type nat hook postrouting priority srcnat; policy accept;\n");
    let _ = writeln!(text, "  oifname \"{uplink}\" ip saddr {GUEST} masquerade");
    if let Some(guest) = guest_v6 {
        let _ = writeln!(text, "  oifname \"{uplink}\" ip6 saddr {guest} masquerade");
    }
    // What the pod itself sends to the guest comes from an address that the guest can answer.
    let _ = writeln!(text, "  oifname \"{TAP}\" fib saddr type local masquerade");
    text.push_str(" }\n chain to_pod {\n  type filter hook input priority filter; policy accept;\n");
    let _ = writeln!(text, "  iifname \"{TAP}\" ct state established,related accept");
    let _ = writeln!(text, "  iifname \"{TAP}\" udp dport 67 accept");
    let _ = writeln!(text, "  iifname \"{TAP}\" icmp type echo-request accept");
    let _ = writeln!(text, "  iifname \"{TAP}\" meta l4proto icmpv6 accept");
    let _ = writeln!(text, "  iifname \"{TAP}\" drop");
    text.push_str(" }\n chain through {\n  type filter hook forward priority filter; policy accept;\n");
    let _ = writeln!(text, "  iifname \"{TAP}\" ip saddr != {GUEST} drop");
    match guest_v6 {
        Some(guest) => {
            let _ = writeln!(text, "  iifname \"{TAP}\" ip6 saddr != {guest} drop");
        }
        None => {
            let _ = writeln!(text, "  iifname \"{TAP}\" meta nfproto ipv6 drop");
        }
    }
    let _ = writeln!(text, "  iifname \"{TAP}\" udp dport {} drop", overlay::PORT);
    if names.is_some() {
        let _ = writeln!(text, "  iifname \"{TAP}\" jump closed");
    }
    if counted {
        text.push_str(&traffic::rules());
    }
    text.push_str(" }\n");
    if let Some(names) = names {
        close(&mut text, names, guest_v6.is_some());
    }
    text.push_str("}\n");
    text.push_str(&frames(guest_v6.is_some()));
    text
}

/// The frames that the pod takes from the guest. The type is read from the frame as it came: a tag, of whatever type, is another.
/// Senders are checked where packets go on: a guest may request its address with that of its other interface.
fn frames(v6: bool) -> String {
    let six = if v6 { "  @ll,96,16 0x86dd accept\n" } else { "" };
    format!(
        "table netdev neonvm {{}}\ndelete table netdev neonvm\ntable netdev neonvm {{\n \
         chain from_guest {{\n  type filter hook ingress device \"{TAP}\" priority filter; policy drop;\n  \
         @ll,96,16 0x0800 accept\n  @ll,96,16 0x0806 accept\n{six} }}\n}}\n"
    )
}

/// The chain for connections that the guest opens.
fn close(text: &mut String, names: &Resolver, v6: bool) {
    text.push_str(" chain closed {\n  ct state established,related return\n");
    let servers = names.v4.iter().map(|server| format!("ip daddr {server}"));
    for server in servers.chain(names.v6.iter().map(|server| format!("ip6 daddr {server}"))) {
        let _ = writeln!(text, "  {server} meta l4proto {{ tcp, udp }} th dport 53 return");
    }
    let [one, other] = KUBELET_PORTS;
    let _ = writeln!(text, "  tcp dport {{ {one}, {other} }} drop");
    for net in closed::networks().filter(|net| net.mask().is_ipv4()) {
        let _ = writeln!(text, "  ip daddr {net} drop");
    }
    for Pattern { value, mask } in closed::patterns().filter(|_| v6) {
        let _ = writeln!(text, "  ip6 daddr & {mask} == {value} drop");
    }
    text.push_str(" }\n");
}

fn targets(text: &mut String, matching: &str, forwards: &BTreeSet<Forward>, guest_v6: Option<Ipv6Addr>) {
    for forward in forwards {
        let protocol = if forward.udp { "udp" } else { "tcp" };
        let port = forward.port;
        let _ = writeln!(text, "  {matching} meta nfproto ipv4 {protocol} dport {port} dnat ip to {GUEST}");
        if let Some(guest) = guest_v6 {
            let _ =
                writeln!(text, "  {matching} meta nfproto ipv6 {protocol} dport {port} dnat ip6 to {guest}");
        }
    }
}

#[cfg(test)]
mod tests;
