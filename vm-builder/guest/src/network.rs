//! Network interfaces: loopback, addresses from the kernel command line, DHCP on the first one.
//!
//! Interfaces with configured addresses are set up by init, which takes a few messages to the kernel. DHCP is a child
//! of init ([`dhcp`]): it parses messages of others. IPv6 is left to the kernel and its router advertisements.

pub mod client;
pub mod dhcp;
pub mod hosts;
pub mod link;
pub mod packet;
pub mod resolver;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use neonvm_types::guest::Network;

use crate::config::CommandLine;

/// The interface that gets its address by DHCP.
pub const FIRST: &str = "eth0";
/// How long the link may take to be up; packets sent before that are lost.
const CARRIER: Duration = Duration::from_millis(500);

/// Brings loopback up and gives interfaces the addresses of `ip=`, unless the kernel has done so. Returns what failed.
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

/// Gives the first interface its address, route and packet size, and the guest its name servers. Returns what failed. Without the
/// interface nothing is done: it may come later. The role `dhcp` runs beside this: it has newer settings after a migration, and keeps the
/// name of the host.
pub fn apply(network: &Network) -> Vec<String> {
    if !exists(FIRST) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut note = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            problems.push(format!("{FIRST}: {what}: {error}"));
        }
    };
    match link::Links::open() {
        Ok(mut links) => {
            note("bring it up", links.up(FIRST, network.mtu.map(u32::from)));
            note("address", links.add_address(FIRST, network.address, network.prefix));
            let any = Ipv4Addr::UNSPECIFIED;
            note("default route", links.add_route(FIRST, any, 0, Some(network.gateway)));
        }
        Err(error) => note("open netlink", Err(error)),
    }
    if let Some(text) = resolver::text(&network.search, &network.name_servers) {
        note(resolver::PATH, resolver::write(Path::new(resolver::PATH), &text));
    }
    note(hosts::HOSTS, hosts::write(Some(network.address)));
    let deadline = Instant::now() + CARRIER;
    while !link::has_carrier(FIRST) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    problems
}

/// Whether DHCP is to be used: unless `ip=` gives the first interface its address.
pub fn wants_dhcp(line: &CommandLine) -> bool {
    !line.interfaces.iter().any(|interface| interface.device == FIRST)
}

/// Whether the interface is there.
pub fn exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}
