//! With encryption, packets of the tunnel pass between WireGuard and the node, and nowhere else: a table of our own drops those that
//! come or go by other interfaces. Those of other virtual networks on the same port are none of ours.
//!
//! Received packets are checked after their fragments were reassembled: the number of the virtual network may be in the
//! second.

use std::io;

use crate::nft::run;

/// Name of the table.
const TABLE: &str = "neonvm_overlay";

fn script(port: u16, vni: u32, through: &str) -> String {
    // Behind the 8 bytes of UDP come 4 of flags and reserved bits, then the 24 bits of the VNI.
    let ours = format!("udp dport {port} @th,96,24 {vni} drop");
    format!(
        "table inet {TABLE} {{}}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n \
         chain arriving {{\n  type filter hook input priority raw; policy accept;\n  \
         iifname != \"{through}\" {ours}\n }}\n \
         chain leaving {{\n  type filter hook output priority raw; policy accept;\n  \
         oifname != \"{through}\" {ours}\n }}\n}}\n"
    )
}

/// Makes the table. In the namespace of this thread; blocks.
pub(crate) fn ensure(port: u16, vni: u32, through: &str) -> io::Result<()> {
    run(&script(port, vni, through))
}

/// Removes it.
pub(crate) fn delete() -> io::Result<()> {
    run(&format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n"))
}
