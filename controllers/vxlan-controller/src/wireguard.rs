//! The WireGuard interface of the node. Its private key is generated here and given to the kernel only, which returns the public
//! key.
//!
//! The key lives as long as the interface: until the node restarts, or `--delete`. A controller that restarts keeps the
//! interface, so an upgrade interrupts nothing. The key is not rotated: it only authenticates the node. Packets are encrypted
//! with WireGuard's session keys, which change every two minutes and cannot be derived from it; and a process that can read it
//! (root on the node) could read its successor as well. If it may have leaked: `--delete`, then start again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use neonvm_core_overlay::encryption::{Change, Key, OVERHEAD_V4, OVERHEAD_V6, PREFIX, Peer, address};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_route::link::{InfoData, InfoKind};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd,
    WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::io::Errno;

use crate::Config;
use crate::kernel::{self, Path, find, named, underlay_mtu};
use crate::netlink::Netlink;

/// Name of the interface.
pub(crate) const LINK: &str = "neon-wg0";
/// Metric of the route that holds when the interface has none.
const LAST: u32 = 1 << 20;
/// Smallest packet that IPv6 must carry.
const SMALLEST: u32 = 1280;

/// The interface, ready for peers.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) key: Key,
    /// What the tunnel goes over.
    pub(crate) path: Path,
    pub(crate) peers: BTreeMap<Key, Peer>,
    generic: Netlink,
    family: u16,
}

/// Whether the kernel can do it; loads the module if it can be loaded. In the namespace of this thread; blocks.
pub(crate) fn probe() -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    if find(&mut netlink, LINK)?.is_some() {
        return Ok(());
    }
    let made =
        kernel::add(&mut netlink, LINK, InfoKind::Wireguard, InfoData::Wireguard(Vec::new()), SMALLEST);
    made.map(drop).map_err(without_module)
}

/// Makes the interface what it should be, but for its peers. In the namespace of this thread; blocks.
pub(crate) fn ensure(netlink: &mut Netlink, config: &Config, underlay: IpAddr) -> io::Result<Device> {
    let overhead = if underlay.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
    let mtu = underlay_mtu(netlink, underlay)?.saturating_sub(overhead);
    if mtu < SMALLEST {
        let least = SMALLEST.saturating_add(overhead);
        return Err(io::Error::other(format!(
            "WireGuard needs an MTU of {least} on the interface of {underlay}"
        )));
    }
    let link = match find(netlink, LINK)? {
        Some(link) if link.kind == Some(InfoKind::Wireguard) => link,
        Some(_) => return Err(io::Error::other(format!("the interface {LINK} is not of WireGuard"))),
        None => kernel::add(netlink, LINK, InfoKind::Wireguard, InfoData::Wireguard(Vec::new()), mtu)
            .map_err(without_module)?,
    };
    // Hardened nodes disable IPv6 on new interfaces. If this write fails, the next step reports it.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{LINK}/disable_ipv6"), "0");
    kernel::settle(netlink, &link, mtu, None)?;
    let inner = address(&config.node, config.vni);
    kernel::address(netlink, &link, inner.into(), PREFIX).map_err(|error| {
        io::Error::other(format!(
            "{LINK} cannot have an IPv6 address ({error}): set net.ipv6.conf.default.disable_ipv6=0 on the node, and start it without ipv6.disable=1"
        ))
    })?;
    last_resort(netlink, inner, true).map_err(named("the route that ends what WireGuard does not carry"))?;
    let mut generic = Netlink::open_generic()?;
    let family = family(&mut generic)?;
    let mut device = Device {
        key: Key::new([1; 32]).ok_or_else(|| io::Error::other("no key"))?,
        path: Path {
            local: inner.into(),
            over: link.index,
            mtu: mtu.saturating_sub(neonvm_api::overlay::OVERHEAD_V6),
        },
        peers: BTreeMap::new(),
        generic,
        family,
    };
    let (mut key, mut port) = device.read()?;
    if key.is_none() {
        device.set(vec![WireguardAttribute::PrivateKey(private_key()?)]).map_err(named("a new key"))?;
        (key, port) = device.read()?;
        tracing::info!(link = LINK, mtu, address = %inner, key = ?key, "made, with a new key");
    }
    if port != config.encryption_port {
        let set = device.set(vec![WireguardAttribute::ListenPort(config.encryption_port)]);
        set.map_err(named(format!("WireGuard cannot use UDP port {}", config.encryption_port)))?;
    }
    device.key = key.ok_or_else(|| io::Error::other(format!("{LINK} has no key")))?;
    Ok(device)
}

fn without_module(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::Unsupported {
        return error;
    }
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the kernel of the node has no WireGuard: load its module (modprobe wireguard; it is part of Linux since 5.6, some distributions have it in a package of extra modules), or start with --encryption none",
    )
}

fn private_key() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers for a key"))?;
    Ok(bytes)
}

/// Where the interface is down or gone, its network is nowhere: nothing for it leaves by a default route.
fn last_resort(netlink: &mut Netlink, inner: Ipv6Addr, is_wanted: bool) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: AddressFamily::Inet6,
        destination_prefix_length: PREFIX,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Universe,
        kind: RouteType::Unreachable,
        ..RouteHeader::default()
    };
    let network = Ipv6Addr::from(u128::from(inner) & (u128::MAX << (128 - u32::from(PREFIX))));
    message.attributes =
        vec![RouteAttribute::Destination(RouteAddress::Inet6(network)), RouteAttribute::Priority(LAST)];
    let (message, flags) = if is_wanted {
        (RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    } else {
        (RouteNetlinkMessage::DelRoute(message), 0)
    };
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match netlink.ask(message, flags) {
        Err(error) if is_wanted && is(&error, Errno::EXIST) => Ok(()),
        Err(error) if !is_wanted && is(&error, Errno::SRCH) => Ok(()),
        done => done.map(drop),
    }
}

/// Number of the generic protocol's family.
fn family(generic: &mut Netlink) -> io::Result<u16> {
    let name = GenlCtrlAttrs::FamilyName("wireguard".to_owned());
    let request = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] };
    let answers = generic.ask(GenlMessage::from_payload(request), 0).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => without_module(io::ErrorKind::Unsupported.into()),
        _ => error,
    })?;
    let id = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    id.ok_or_else(|| io::Error::other("the kernel did not return the id of its WireGuard netlink family"))
}

impl Device {
    fn message(&self, cmd: WireguardCmd, more: Vec<WireguardAttribute>) -> GenlMessage<WireguardMessage> {
        let attributes = std::iter::once(WireguardAttribute::IfName(LINK.to_owned())).chain(more).collect();
        let mut message = GenlMessage::from_payload(WireguardMessage { cmd, attributes });
        message.set_resolved_family_id(self.family);
        message
    }

    fn set(&mut self, attributes: Vec<WireguardAttribute>) -> io::Result<()> {
        let message = self.message(WireguardCmd::SetDevice, attributes);
        self.generic.ask(message, 0).map(drop)
    }

    /// Reads key and port, and the peers into `peers`.
    fn read(&mut self) -> io::Result<(Option<Key>, u16)> {
        let message = self.message(WireguardCmd::GetDevice, Vec::new());
        let (mut key, mut port) = (None, 0);
        self.peers.clear();
        for answer in self.generic.list(message)? {
            for attribute in answer.payload.attributes {
                match attribute {
                    WireguardAttribute::PublicKey(bytes) => key = Key::new(bytes),
                    WireguardAttribute::ListenPort(number) => port = number,
                    WireguardAttribute::Peers(peers) => {
                        for peer in peers {
                            self.take(peer);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok((key, port))
    }

    /// One with many addresses comes in several parts.
    fn take(&mut self, peer: WireguardPeer) {
        let key = peer.0.iter().find_map(|attribute| match attribute {
            WireguardPeerAttribute::PublicKey(bytes) => Key::new(*bytes),
            _ => None,
        });
        let Some(key) = key else { return };
        let known = self.peers.entry(key).or_default();
        for attribute in peer.0 {
            match attribute {
                WireguardPeerAttribute::Endpoint(endpoint) => known.endpoint = Some(endpoint),
                WireguardPeerAttribute::AllowedIps(all) => {
                    // Those of IPv4 are none of ours; the next change of this peer removes them.
                    known.allowed.extend(all.iter().flat_map(|one| &one.0).filter_map(|part| match part {
                        WireguardAllowedIpAttr::IpAddr(IpAddr::V6(address)) => Some(*address),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn apply(&mut self, change: &Change) -> io::Result<()> {
        let (attributes, key) = match change {
            Change::Remove(key) => (vec![WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe)], key),
            Change::Set(key, peer) => (settings(peer), key),
        };
        let whose = std::iter::once(WireguardPeerAttribute::PublicKey(key.bytes()));
        let peer = WireguardPeer(whose.chain(attributes).collect());
        self.set(vec![WireguardAttribute::Peers(vec![peer])]).map_err(named(format!("peer {key}")))
    }
}

fn settings(peer: &Peer) -> Vec<WireguardPeerAttribute> {
    let allowed = |address: &Ipv6Addr| {
        WireguardAllowedIp(vec![
            WireguardAllowedIpAttr::Family(WireguardAddressFamily::Ipv6),
            WireguardAllowedIpAttr::IpAddr((*address).into()),
            WireguardAllowedIpAttr::Cidr(128),
        ])
    };
    let mut all = vec![
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        WireguardPeerAttribute::AllowedIps(peer.allowed.iter().map(allowed).collect()),
    ];
    all.extend(peer.endpoint.map(WireguardPeerAttribute::Endpoint));
    all
}

/// Removes interface and route, if they are there. The tunnel over it goes with it.
pub(crate) fn delete(netlink: &mut Netlink, config: &Config) -> io::Result<()> {
    if let Some(link) = find(netlink, LINK)?.filter(|link| link.kind == Some(InfoKind::Wireguard)) {
        kernel::remove(netlink, &link)?;
    }
    last_resort(netlink, address(&config.node, config.vni), false)
}
