//! The rules between pod and guest, as text for `nft -f -`. Pure.
//!
//! Ports of the guest are reached at the pod's address, from outside and from the pod itself; the guest reaches out
//! with the pod's address; and of the pod itself the guest reaches DHCP and echo only, so that the runner's port is out of its
//! reach. What the guest sends carries its own address. Unless the policy of its namespace allows it, the guest reaches neither
//! the metadata service of the cloud (which hands out the node's credentials) nor the kubelet of its node.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use super::{GUEST, TAP_NAME, traffic};

/// A port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) udp: bool,
    pub(crate) port: u16,
}

/// Where clouds answer a node about itself: most of them; containers and pods of AWS; Azure's host.
const METADATA_V4: &str = "{ 169.254.169.254, 169.254.170.2, 169.254.170.23, 168.63.129.16 }";
/// The same over IPv6, on AWS.
const METADATA_V6: &str = "{ fd00:ec2::254, fd00:ec2::23 }";
/// Ports of a kubelet: its interface, and the old one without authentication.
const KUBELET: &str = "{ 10250, 10255 }";

/// The rules. `uplink` is the pod's interface; `guest_v6` the guest's address if the pod has IPv6; `closed` the addresses of the node
/// whose kubelet the guest does not reach, or `None` if it may reach that and the metadata services; `counted`: its traffic is counted.
pub(crate) fn rules(
    uplink: &str,
    forwards: &[Forward],
    guest_v6: Option<Ipv6Addr>,
    closed: Option<&[IpAddr]>,
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
    let _ = writeln!(text, "  oifname \"{TAP_NAME}\" fib saddr type local masquerade");
    text.push_str(" }\n chain to_pod {\n  type filter hook input priority filter; policy accept;\n");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" ct state established,related accept");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" udp dport 67 accept");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" icmp type echo-request accept");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" meta l4proto icmpv6 accept");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" drop");
    text.push_str(" }\n chain through {\n  type filter hook forward priority filter; policy accept;\n");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" ip saddr != {GUEST} drop");
    match guest_v6 {
        Some(guest) => {
            let _ = writeln!(text, "  iifname \"{TAP_NAME}\" ip6 saddr != {guest} drop");
        }
        None => {
            let _ = writeln!(text, "  iifname \"{TAP_NAME}\" meta nfproto ipv6 drop");
        }
    }
    if let Some(node) = closed {
        close(&mut text, node);
    }
    if counted {
        text.push_str(&traffic::rules());
    }
    text.push_str(" }\n}\n");
    text
}

fn close(text: &mut String, node: &[IpAddr]) {
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" ip daddr {METADATA_V4} drop");
    let _ = writeln!(text, "  iifname \"{TAP_NAME}\" ip6 daddr {METADATA_V6} drop");
    for address in node {
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        let _ = writeln!(text, "  iifname \"{TAP_NAME}\" {family} daddr {address} tcp dport {KUBELET} drop");
    }
}

fn targets(text: &mut String, matching: &str, forwards: &[Forward], guest_v6: Option<Ipv6Addr>) {
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
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    #[test]
    fn rules_of_a_pod_with_both_families() {
        let forwards = [Forward { udp: false, port: 5432 }, Forward { udp: true, port: 53 }];
        let node: [IpAddr; 2] = ["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()];
        let text = rules("eth0", &forwards, Some("fd00::2".parse().unwrap()), Some(&node), false);
        for line in [
            "iifname \"eth0\" meta nfproto ipv4 tcp dport 5432 dnat ip to 169.254.254.254",
            "iifname \"eth0\" meta nfproto ipv6 udp dport 53 dnat ip6 to fd00::2",
            "fib daddr type local meta nfproto ipv4 tcp dport 5432 dnat ip to 169.254.254.254",
            "oifname \"eth0\" ip6 saddr fd00::2 masquerade",
            "iifname \"tap-def\" drop",
            "iifname \"tap-def\" ip saddr != 169.254.254.254 drop",
            "iifname \"tap-def\" ip6 saddr != fd00::2 drop",
            "iifname \"tap-def\" ip daddr { 169.254.169.254, 169.254.170.2, 169.254.170.23, 168.63.129.16 } drop",
            "iifname \"tap-def\" ip daddr 10.0.0.9 tcp dport { 10250, 10255 } drop",
            "iifname \"tap-def\" ip6 daddr fd00::9 tcp dport { 10250, 10255 } drop",
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

    #[test]
    fn the_program_takes_them() {
        let node = ["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()];
        let text = rules(
            "eth0",
            &[Forward { udp: false, port: 1 }],
            Some("fd00::2".parse().unwrap()),
            Some(&node),
            true,
        );
        need!(needs::root());
        let mut child = std::process::Command::new(need!(needs::program("nft")))
            .args(["-c", "-f", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
    }
}
