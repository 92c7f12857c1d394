//! Packets of the overlay must not be translated: a separate table excludes them from connection tracking, so that no
//! masquerading rule of another component applies, present or future. Only packets from outside get the node's address
//! on the overlay, if it has one, so that VMs have an address to reply to.

use std::io;
use std::net::IpAddr;

use neonvm_api::overlay::PASSED_ON;
use neonvm_core_overlay::{Family, Net};

use crate::nft::run;

/// Name of the table, in the family of the range.
const TABLE: &str = "neonvm_vxlan";

fn family(range: Net) -> &'static str {
    match range.family() {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// The script that makes the table what it should be; all of it takes effect, or nothing.
fn script(range: Net, gateway: Option<(IpAddr, &str)>) -> String {
    let family = family(range);
    let (mut except, mut passed_on, mut leaving) = (String::new(), String::new(), String::new());
    if let Some((address, bridge)) = gateway {
        // Its answers must be translated back.
        except = format!(" {family} saddr != {address} {family} daddr != {address}");
        // Where bridges call these tables, a packet that a runner forwards passes a second time. Tracked, it would be
        // taken for a separate connection that conflicts with the first, and get another port: no reply would ever be
        // matched to it.
        let from = PASSED_ON.map(|byte| format!("{byte:02x}")).join(":");
        passed_on = format!("  ether saddr {from} {family} daddr {range} notrack\n");
        leaving = format!(
            " chain leaving {{\n  type nat hook postrouting priority srcnat; policy accept;\n  \
             oifname \"{bridge}\" {family} saddr != {range} snat to {address}\n }}\n"
        );
    }
    let rule = format!("{family} saddr {range} {family} daddr {range}{except} notrack");
    format!(
        "table {family} {TABLE} {{}}\ndelete table {family} {TABLE}\ntable {family} {TABLE} {{\n \
         chain arriving {{\n  type filter hook prerouting priority raw; policy accept;\n{passed_on}  {rule}\n }}\n \
         chain own {{\n  type filter hook output priority raw; policy accept;\n  {rule}\n }}\n{leaving}}}\n"
    )
}

/// Makes the table. In the namespace of this thread; blocks.
pub(crate) fn ensure(range: Net, gateway: Option<(IpAddr, &str)>) -> io::Result<()> {
    run(&script(range, gateway))
}

/// Removes the tables of both families.
pub(crate) fn delete() -> io::Result<()> {
    run(&["ip", "ip6"]
        .map(|family| format!("table {family} {TABLE} {{}}\ndelete table {family} {TABLE}\n"))
        .concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_of_the_family_of_the_range() {
        let text = script("10.100.0.0/16".parse().unwrap(), None);
        assert!(text.contains("ip saddr 10.100.0.0/16 ip daddr 10.100.0.0/16 notrack"), "{text}");
        let text = script("fd00::/64".parse().unwrap(), None);
        assert!(text.starts_with("table ip6 neonvm_vxlan") && !text.contains("snat"), "{text}");
    }

    #[test]
    fn who_comes_through_the_node_has_its_address() {
        let gateway = "10.100.0.1".parse().unwrap();
        let text = script("10.100.0.0/16".parse().unwrap(), Some((gateway, "neon-br0")));
        assert!(text.contains("oifname \"neon-br0\" ip saddr != 10.100.0.0/16 snat to 10.100.0.1"), "{text}");
        assert!(text.contains("ip saddr != 10.100.0.1 ip daddr != 10.100.0.1 notrack"), "{text}");
        assert!(text.contains("ether saddr 02:6e:65:6f:6e:02 ip daddr 10.100.0.0/16 notrack"), "{text}");
    }
}
