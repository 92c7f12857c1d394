//! Whose packets the tunnel takes, and whose frames the bridge takes from it: two tables of our own, with and without encryption.
//!
//! Packets of the tunnel come from the kernels of known nodes, by the interface that the way to that node leads through (from
//! WireGuard, if there is encryption), and leave to them by the same. They are never forwarded: what a pod sends to the port, with
//! whatever sender, ends at the node that it is on, before a rule that hides pods behind the node's address. Those of other virtual
//! networks on the same port are none of ours, unless their number cannot be read.
//!
//! The bridge takes frames from the tunnel only if their sender is on another node. Frames for a VM that has left this node go after
//! it, once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use neonvm_api::overlay::PASSED_ON;
use neonvm_core_overlay::forwarding::Hardware;

use crate::nft::run;
use crate::wireguard::LINK;
use crate::{Config, Encryption};

/// Name of the table of packets.
const PACKETS: &str = "neonvm_overlay";
/// Name of the table of frames.
const FRAMES: &str = "neonvm_vxlan";

/// Longest time in which what others change in the tables unnoticed stays so: the kernel does not notify of that.
pub(crate) const LOOK: Duration = Duration::from_secs(30);

/// Who may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Senders<'a> {
    /// Addresses of other nodes on the underlay.
    pub(crate) nodes: &'a BTreeSet<IpAddr>,
    /// Whatever is on another node.
    pub(crate) remotes: &'a BTreeSet<Hardware>,
}

/// The tables as they were made last.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<(String, Instant)>);

impl Guard {
    /// Makes the tables, unless they were just made; without `senders` those of before stay. In the namespace of this thread;
    /// blocks.
    pub(crate) fn ensure(&mut self, config: &Config, senders: Option<Senders<'_>>) -> io::Result<()> {
        let made = self.0.as_ref().filter(|(_, at)| at.elapsed() < LOOK);
        let script = script(config, senders);
        if made.is_some_and(|(made, _)| senders.is_none() || *made == script) {
            return Ok(());
        }
        self.0 = None;
        run(&script)?;
        self.0 = Some((script, Instant::now()));
        Ok(())
    }
}

fn script(config: &Config, senders: Option<Senders<'_>>) -> String {
    let Config { port, vni, tunnel, .. } = config;
    // Behind the 8 bytes of UDP come 4 of flags and reserved bits, then the 24 bits of the VNI. A first fragment may end before it.
    let judge = |verdict: &str| {
        let (datagram, number) = (format!("udp dport {port}"), "@th,96,24");
        format!(
            "{datagram} {number} {vni} {verdict}\n  {datagram} {number} != {vni} accept\n  {datagram} drop"
        )
    };
    let from = |family: &str| format!("{family} saddr @{family}_nodes fib saddr . iif oif exists accept\n  ");
    let (arrives, leaves) = if config.encryption == Encryption::Wireguard {
        (format!("iifname \"{LINK}\" accept\n  "), format!("oifname \"{LINK}\" accept\n  {}", judge("drop")))
    } else {
        (from("ip") + &from("ip6"), String::new())
    };
    let (arriving, through, passed_on) = (judge("goto ours"), judge("drop"), text_of(&PASSED_ON));
    let mut text = format!(
        "table inet {PACKETS} {{\n set ip_nodes {{ type ipv4_addr; }}\n set ip6_nodes {{ type ipv6_addr; }}\n \
         chain arriving {{ type filter hook input priority raw; policy accept; }}\n \
         chain through {{ type filter hook forward priority raw; policy accept; }}\n \
         chain leaving {{ type filter hook output priority raw; policy accept; }}\n \
         chain ours {{ }}\n}}\n\
         flush table inet {PACKETS}\n\
         table inet {PACKETS} {{\n \
         chain ours {{\n  {arrives}drop\n }}\n \
         chain arriving {{\n  {arriving}\n }}\n \
         chain through {{\n  {through}\n }}\n \
         chain leaving {{\n  {leaves}\n }}\n}}\n\
         table bridge {FRAMES} {{\n set remotes {{ type ether_addr; }}\n \
         chain arriving {{ type filter hook prerouting priority filter; policy accept; }}\n \
         chain through {{ type filter hook forward priority filter; policy accept; }}\n}}\n\
         flush table bridge {FRAMES}\n\
         table bridge {FRAMES} {{\n \
         chain arriving {{\n  iifname != \"{tunnel}\" accept\n  ether saddr @remotes accept\n  \
         ether saddr {passed_on} ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 accept\n  drop\n }}\n \
         chain through {{\n  iifname != \"{tunnel}\" accept\n  oifname != \"{tunnel}\" accept\n  \
         ether saddr {passed_on} drop\n  \
         ether daddr @remotes ether saddr set {passed_on} accept\n  drop\n }}\n}}\n"
    );
    if let Some(Senders { nodes, remotes }) = senders {
        let of = |v4: bool| {
            nodes.iter().filter(|node| node.is_ipv4() == v4).map(IpAddr::to_string).collect::<Vec<_>>()
        };
        fill(&mut text, &format!("inet {PACKETS} ip_nodes"), &of(true));
        fill(&mut text, &format!("inet {PACKETS} ip6_nodes"), &of(false));
        fill(
            &mut text,
            &format!("bridge {FRAMES} remotes"),
            &remotes.iter().map(text_of).collect::<Vec<_>>(),
        );
    }
    text
}

fn text_of(hardware: &Hardware) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
}

fn fill(text: &mut String, set: &str, elements: &[String]) {
    let _ = writeln!(text, "flush set {set}");
    if !elements.is_empty() {
        let _ = writeln!(text, "add element {set} {{ {} }}", elements.join(", "));
    }
}

/// Removes them.
pub(crate) fn delete() -> io::Result<()> {
    let one = |table: &str| format!("table {table} {{}}\ndelete table {table}\n");
    run(&(one(&format!("inet {PACKETS}")) + &one(&format!("bridge {FRAMES}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of a chain, without those of other chains.
    fn chain(config: &Config, name: &str) -> Vec<String> {
        let script = script(config, None);
        let body = script.rsplit(&format!("chain {name} {{\n")).next().unwrap_or_default().to_owned();
        let body = body.split('}').next().unwrap_or_default();
        body.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    }

    /// Packets of the tunnel come and go by WireGuard alone, and by WireGuard all of them.
    #[test]
    fn with_encryption_the_tunnel_is_behind_its_interface() {
        let plain = Config::new("n1");
        let encrypted = Config { encryption: Encryption::Wireguard, ..Config::new("n1") };
        assert_eq!(chain(&plain, "leaving"), Vec::<String>::new());
        let leaving = chain(&encrypted, "leaving");
        assert_eq!(leaving[0], "oifname \"neon-wg0\" accept");
        assert!(leaving[1..].iter().any(|rule| rule.ends_with("drop")), "{leaving:?}");
    }
}
