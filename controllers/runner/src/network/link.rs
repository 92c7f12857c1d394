//! The guest's network on tap devices, from what the node service hands over: the guest's settings, and the tasks that serve it.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use neonvm_hypervisor::tap::Tap;
use neonvm_types::guest::Network;
use neonvm_types::node_protocol::{GATEWAY, GUEST, Link as Made, PREFIX};
use tokio::task::JoinHandle;

use super::dhcp::Lease;
use super::node::{Files, Node};
use super::router::{self, Advertisement};
use super::{Error, Frames, Meter, Reach};

/// What the runner adds to what its node makes.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Hardware address of the guest.
    pub(crate) hardware: [u8; 6],
    /// The same on the overlay, if the guest is there.
    pub(crate) overlay: Option<[u8; 6]>,
    /// Name the guest gets.
    pub(crate) hostname: String,
    /// Whether the guest's traffic is counted.
    pub(crate) counted: bool,
}

/// The link, and the tasks that serve it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) tap: Tap,
    /// Greatest packet of the pod's network.
    pub(crate) mtu: u16,
    pub(crate) reach: Reach,
    /// What the guest gets of the link, by DHCP and beforehand.
    pub(crate) guest: Network,
    pub(crate) overlay: Option<OnOverlay>,
    pub(crate) services: Vec<JoinHandle<()>>,
    /// Counters of the guest's traffic, if it is counted.
    pub(crate) meter: Option<Meter>,
    /// What could not be had and can be done without.
    pub(crate) notes: Vec<String>,
}

/// The guest's end of the overlay.
#[derive(Debug)]
pub(crate) struct OnOverlay {
    pub(crate) tap: Tap,
    /// Greatest packet of the overlay.
    pub(crate) mtu: u16,
    /// Its frames during a migration.
    pub(crate) frames: Frames,
}

/// Gets it from the node. To be called in a runtime, where it may block.
pub(crate) fn set_up(node: &Node, settings: &Settings) -> Result<Link, Error> {
    let (made, files) = node.network()?;
    let Files { tap, dhcp, advertisements, overlay, copies } = files;
    let tap = Tap(tap.ok_or(Error::Answer)?);
    let mut services = vec![router::serve_dhcp(dhcp.ok_or(Error::Answer)?, lease(&made, settings))?];
    if let (Some(socket), Some(gateway)) = (advertisements, made.gateway_v6) {
        let advertisement =
            Advertisement { prefix: gateway, mtu: made.mtu, name_servers: made.name_servers_v6.clone() };
        services.push(router::advertise(socket, &advertisement)?);
    }
    let overlay =
        settings.overlay.map(|hardware| on_overlay(&made, hardware, overlay, copies)).transpose()?;
    let guest = Network {
        address: GUEST,
        prefix: PREFIX,
        gateway: GATEWAY,
        name_servers: made.name_servers,
        search: made.search,
        mtu: Some(made.mtu),
    };
    let meter = settings.counted.then(|| Meter::new(Arc::new(node.clone())));
    let reach = Reach::Address(IpAddr::V4(GUEST));
    Ok(Link { tap, mtu: made.mtu, reach, guest, overlay, services, meter, notes: made.notes })
}

fn lease(made: &Made, settings: &Settings) -> Lease {
    Lease {
        hardware: settings.hardware,
        address: GUEST,
        mask: Ipv4Addr::from(u32::MAX << (32 - PREFIX)),
        gateway: GATEWAY,
        name_servers: made.name_servers.clone(),
        search: made.search.clone(),
        mtu: made.mtu,
        hostname: settings.hostname.clone(),
    }
}

fn on_overlay(
    made: &Made,
    hardware: [u8; 6],
    tap: Option<OwnedFd>,
    copies: Option<OwnedFd>,
) -> Result<OnOverlay, Error> {
    let (Some(tap), Some(mtu)) = (tap, made.overlay_mtu) else { return Err(Error::Answer) };
    let tap = Tap(tap);
    let frames = Frames::new(&tap, hardware, copies)?;
    Ok(OnOverlay { tap, mtu, frames })
}
