//! Network interfaces: loopback, addresses from the kernel command line, DHCP on the first one.
//!
//! Interfaces with configured addresses are set up by init, which takes a few messages to the kernel. DHCP is a child
//! of init ([`dhcp`]): it parses messages of others. IPv6 is left to the kernel and its router advertisements.

pub mod client;
pub mod dhcp;
pub mod given;
pub mod hosts;
pub mod link;
pub mod packet;
pub mod resolver;

use std::path::Path;

use crate::config::CommandLine;

/// The interface that gets its address by DHCP.
pub const FIRST: &str = "eth0";

/// Brings loopback up and gives interfaces the addresses of `ip=`, unless the kernel has done so. Returns what failed.
#[must_use]
pub fn set_up(line: &CommandLine) -> Vec<String> {
    let mut problems = Vec::new();
    let mut links = match link::Links::open() {
        Ok(links) => links,
        Err(error) => return vec![format!("open netlink: {error}")],
    };
    if let Err(error) = links.up("lo", None) {
        problems.push(format!("bring lo up: {error}"));
    }
    for interface in line.interfaces.iter().filter(|interface| exists(&interface.device)) {
        let name = &interface.device;
        if let Err(error) = links.up(name, None) {
            problems.push(format!("bring {name} up: {error}"));
        }
        if let Err(error) = links.add_address(name, interface.address, interface.prefix) {
            problems.push(format!("address of {name}: {error}"));
        }
        if let Some(gateway) = interface.gateway
            && let Err(error) = links.add_route(name, [0, 0, 0, 0].into(), 0, Some(gateway))
        {
            problems.push(format!("default route by {name}: {error}"));
        }
    }
    problems
}

/// Whether DHCP is to be used: unless `ip=` gives the first interface its address.
#[must_use]
pub fn wants_dhcp(line: &CommandLine) -> bool {
    !line.interfaces.iter().any(|interface| interface.device == FIRST)
}

/// Whether the interface is there.
#[must_use]
pub fn exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}
