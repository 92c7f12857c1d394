//! Settings of the first interface that came with the VM's configuration: there before anything is started.
//!
//! The role `dhcp` runs beside this: it has newer settings after a migration, and keeps the name of the host.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use neonvm_types::guest::Network;

use super::{FIRST, hosts, link, resolver};

/// How long the link may take to be up; packets sent before that are lost.
const CARRIER: Duration = Duration::from_millis(500);

/// Gives the first interface its address, route and packet size, and the guest its name servers. Returns what failed. Without the
/// interface nothing is done: it may come later.
#[must_use]
pub fn apply(network: &Network) -> Vec<String> {
    if !super::exists(FIRST) {
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
