//! Bridge, tunnel and forwarding table of the node, as netlink shows and changes them.

use std::io;
use std::net::IpAddr;

use neonvm_core_overlay::forwarding::{ALL, BridgeEntry, Change, Entry, Hardware, bridge_address};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::Config;
use crate::netlink::Netlink;

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) index: u32,
    name: String,
    hardware: Vec<u8>,
    mtu: u32,
    is_up: bool,
    master: Option<u32>,
    pub(crate) kind: Option<InfoKind>,
    data: Option<InfoData>,
    port: Vec<InfoBridgePort>,
}

impl Link {
    fn from_message(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            hardware: Vec::new(),
            mtu: 0,
            is_up: message.header.flags.contains(LinkFlags::Up),
            master: None,
            kind: None,
            data: None,
            port: Vec::new(),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Address(hardware) => link.hardware = hardware,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Controller(master) => link.master = Some(master),
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        match info {
                            LinkInfo::Kind(kind) => link.kind = Some(kind),
                            LinkInfo::Data(data) => link.data = Some(data),
                            LinkInfo::PortData(InfoPortData::BridgePort(port)) => link.port = port,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        link
    }
}

pub(crate) fn named(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn links(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    let all = netlink.list(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let link = |message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(Link::from_message(link)),
        _ => None,
    };
    Ok(all.into_iter().filter_map(link).collect())
}

pub(crate) fn find(netlink: &mut Netlink, name: &str) -> io::Result<Option<Link>> {
    Ok(links(netlink)?.into_iter().find(|link| link.name == name))
}

/// Greatest packet of the interface that has an address.
pub(crate) fn underlay_mtu(netlink: &mut Netlink, address: IpAddr) -> io::Result<u32> {
    let all = netlink.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let index = all.iter().find_map(|message| {
        let RouteNetlinkMessage::NewAddress(message) = message else { return None };
        let own = message.attributes.iter().any(|attribute| match attribute {
            AddressAttribute::Local(local) => *local == address,
            AddressAttribute::Address(local) => address.is_ipv6() && *local == address,
            _ => false,
        });
        own.then_some(message.header.index)
    });
    let link = links(netlink)?.into_iter().find(|link| Some(link.index) == index);
    link.map(|link| link.mtu).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("no interface of the node has the address {address}"),
        )
    })
}

/// What the tunnel goes over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Where it starts.
    pub(crate) local: IpAddr,
    /// The only interface it may leave by, without which it goes away; 0: any.
    pub(crate) over: u32,
    /// Greatest packet of the overlay.
    pub(crate) mtu: u32,
}

/// What [`ensure`] found or made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    bridge: u32,
    tunnel: u32,
    /// Bridge or tunnel were not there.
    pub(crate) are_new: bool,
}

/// Makes bridge and tunnel what they should be; what was made is logged. `returns`: what comes from the tunnel may go back into it.
pub(crate) fn ensure(
    netlink: &mut Netlink,
    config: &Config,
    path: Path,
    returns: bool,
) -> io::Result<Devices> {
    let mut are_new = false;
    let Path { local, mtu, .. } = path;
    let bridge = match find(netlink, &config.bridge)? {
        Some(link) if link.kind == Some(InfoKind::Bridge) => link,
        Some(_) => return Err(io::Error::other(format!("the interface {} is no bridge", config.bridge))),
        None => {
            are_new = true;
            tracing::info!(bridge = config.bridge, "made");
            let data = InfoData::Bridge(vec![InfoBridge::ForwardDelay(0)]);
            add(netlink, &config.bridge, InfoKind::Bridge, data, mtu)?
        }
    };
    settle(netlink, &bridge, mtu, None)?;
    fix_address(netlink, &bridge, &config.node)?;
    if let Some(gateway) = config.gateway {
        address(netlink, &bridge, gateway, config.range.length())
            .map_err(named(format!("{gateway} on {}", config.bridge)))?;
    }
    let tunnel = match find(netlink, &config.tunnel)? {
        Some(link) if fits(&link, config, &path) => link,
        other => {
            if let Some(other) = other {
                tracing::info!(tunnel = config.tunnel, "differs from the desired one and is created again");
                remove(netlink, &other)?;
            }
            are_new = true;
            tracing::info!(tunnel = config.tunnel, vni = config.vni, %local, mtu, "made");
            let data = attributes(config, &path);
            let made = add(netlink, &config.tunnel, InfoKind::Vxlan, InfoData::Vxlan(data), mtu);
            made.map_err(named(format!("VNI {} on port {}", config.vni, config.port)))?
        }
    };
    if let Some(InfoData::Vxlan(data)) = &tunnel.data
        && data.contains(&InfoVxlan::Learning(true))
    {
        // Made by an earlier version. The kernel changes it in place, and packets go on.
        tracing::info!(tunnel = config.tunnel, "learns no addresses any more");
        let off = InfoData::Vxlan(vec![InfoVxlan::Learning(false)]);
        change(netlink, &tunnel, vec![LinkInfo::Kind(InfoKind::Vxlan), LinkInfo::Data(off)])?;
    }
    settle(netlink, &tunnel, mtu, Some(bridge.index))?;
    let port = [InfoBridgePort::UnicastFlood(false), InfoBridgePort::HairpinMode(returns)];
    if tunnel.master != Some(bridge.index) || !port.iter().all(|one| tunnel.port.contains(one)) {
        let data = InfoPortData::BridgePort(port.to_vec());
        change(netlink, &tunnel, vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(data)])?;
    }
    Ok(Devices { bridge: bridge.index, tunnel: tunnel.index, are_new })
}

/// Changes what is special about a kind of links.
fn change(netlink: &mut Netlink, link: &Link, what: Vec<LinkInfo>) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    message.attributes = vec![LinkAttribute::LinkInfo(what)];
    let done = netlink.ask(RouteNetlinkMessage::NewLink(message), 0);
    done.map(drop).map_err(named(format!("cannot change {}", link.name)))
}

/// Gives the bridge the address by which other nodes know it.
fn fix_address(netlink: &mut Netlink, bridge: &Link, node: &str) -> io::Result<()> {
    let hardware = bridge_address(node);
    if bridge.hardware == hardware {
        return Ok(());
    }
    // VMs that know the bridge by another address get this one at once, where the file can be written.
    let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{}/arp_notify", bridge.name), "1");
    let mut message = LinkMessage::default();
    message.header.index = bridge.index;
    message.attributes = vec![LinkAttribute::Address(hardware.to_vec())];
    let done = netlink.ask(RouteNetlinkMessage::SetLink(message), 0);
    done.map(drop).map_err(named(format!("cannot give {} its address", bridge.name)))
}

/// Gives an interface an address, unless it has it.
pub(crate) fn address(netlink: &mut Netlink, link: &Link, address: IpAddr, length: u8) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = length;
    message.header.index = link.index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    netlink.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE).map(drop)
}

fn attributes(config: &Config, path: &Path) -> Vec<InfoVxlan> {
    let source = match path.local {
        IpAddr::V4(local) => InfoVxlan::Local(local),
        IpAddr::V6(local) => InfoVxlan::Local6(local),
    };
    let mut all =
        vec![InfoVxlan::Id(config.vni), source, InfoVxlan::Learning(false), InfoVxlan::Port(config.port)];
    all.extend((path.over != 0).then_some(InfoVxlan::Link(path.over)));
    all
}

fn fits(link: &Link, config: &Config, path: &Path) -> bool {
    let Some(InfoData::Vxlan(data)) = &link.data else { return false };
    let is_bound = data.iter().any(|one| matches!(one, InfoVxlan::Link(index) if *index != 0));
    link.kind == Some(InfoKind::Vxlan)
        && is_bound == (path.over != 0)
        && attributes(config, path)
            .iter()
            .all(|attribute| data.contains(attribute) || *attribute == InfoVxlan::Learning(false))
}

pub(crate) fn add(
    netlink: &mut Netlink,
    name: &str,
    kind: InfoKind,
    data: InfoData,
    mtu: u32,
) -> io::Result<Link> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]),
    ];
    let made = netlink.ask(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL);
    match (made, find(netlink, name)?) {
        (_, Some(link)) => Ok(link),
        (made, None) => {
            made.map_err(named(format!("cannot make {name}")))?;
            Err(io::Error::other(format!("{name} vanished")))
        }
    }
}

/// Size of packets, master, up.
pub(crate) fn settle(netlink: &mut Netlink, link: &Link, mtu: u32, master: Option<u32>) -> io::Result<()> {
    if link.mtu == mtu && link.is_up && (master.is_none() || link.master == master) {
        return Ok(());
    }
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    if link.mtu != mtu {
        message.attributes.push(LinkAttribute::Mtu(mtu));
    }
    message.attributes.extend(master.filter(|_| link.master != master).map(LinkAttribute::Controller));
    netlink
        .ask(RouteNetlinkMessage::SetLink(message), 0)
        .map(drop)
        .map_err(named(format!("cannot set up {}", link.name)))
}

pub(crate) fn remove(netlink: &mut Netlink, link: &Link) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    match netlink.ask(RouteNetlinkMessage::DelLink(message), 0) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(()),
        done => done.map(drop).map_err(named(format!("cannot remove {}", link.name))),
    }
}

/// Removes tunnel and bridge, if they are there.
pub(crate) fn delete(netlink: &mut Netlink, config: &Config) -> io::Result<()> {
    for (name, kind) in [(&config.tunnel, InfoKind::Vxlan), (&config.bridge, InfoKind::Bridge)] {
        if let Some(link) = find(netlink, name)?.filter(|link| link.kind == Some(kind)) {
            remove(netlink, &link)?;
        }
    }
    Ok(())
}

/// The forwarding tables of tunnel and bridge.
pub(crate) fn entries(netlink: &mut Netlink, devices: Devices) -> io::Result<(Vec<Entry>, Vec<BridgeEntry>)> {
    let mut ask = NeighbourMessage::default();
    ask.header.family = AddressFamily::Bridge;
    let (mut tunnel, mut bridge) = (Vec::new(), Vec::new());
    for message in netlink.list(RouteNetlinkMessage::GetNeighbour(ask))? {
        let RouteNetlinkMessage::NewNeighbour(NeighbourMessage { header, attributes, .. }) = message else {
            continue;
        };
        let (mut hardware, mut to, mut master, mut has_vlan) = (None, None, None, false);
        for attribute in attributes {
            match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => hardware = Hardware::try_from(bytes).ok(),
                NeighbourAttribute::Destination(address) => to = destination(&address),
                NeighbourAttribute::Controller(index) => master = Some(index),
                NeighbourAttribute::Vlan(_) => has_vlan = true,
                _ => {}
            }
        }
        let Some(hardware) = hardware else { continue };
        let is_tunnel = header.ifindex == devices.tunnel;
        let is_external = header.flags.contains(NeighbourFlags::ExtLearned);
        if is_tunnel && header.flags.contains(NeighbourFlags::Own) {
            tunnel.extend(to.map(|to| Entry { hardware, to, is_external }));
        } else if master == Some(devices.bridge) && !has_vlan && header.state != NeighbourState::Permanent {
            bridge.push(BridgeEntry { hardware, is_tunnel, is_external });
        }
    }
    Ok((tunnel, bridge))
}

fn destination(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        NeighbourAddress::Other(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
            16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
            _ => None,
        },
        _ => None,
    }
}

/// Changes a forwarding table. What is gone already is no error.
pub(crate) fn apply(netlink: &mut Netlink, devices: Devices, change: Change) -> io::Result<()> {
    let (hardware, to, is_new) = match change {
        Change::AddPeer(to) => (ALL, Some(to), true),
        Change::RemovePeer(to) => (ALL, Some(to), false),
        Change::Set(hardware, to) => (hardware, Some(to), true),
        Change::Remove(hardware, to) => (hardware, Some(to), false),
        Change::Lead(hardware) => (hardware, None, true),
        Change::Forget(hardware) => (hardware, None, false),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = devices.tunnel;
    message.header.flags = if to.is_some() { NeighbourFlags::Own } else { NeighbourFlags::Controller };
    message.header.state = NeighbourState::Permanent;
    if hardware != ALL {
        message.header.state = NeighbourState::Reachable;
        message.header.flags |= NeighbourFlags::ExtLearned;
    }
    message.attributes = vec![NeighbourAttribute::LinkLayerAddress(hardware.to_vec())];
    message.attributes.extend(to.map(|to| {
        NeighbourAttribute::Destination(match to {
            IpAddr::V4(to) => NeighbourAddress::Inet(to),
            IpAddr::V6(to) => NeighbourAddress::Inet6(to),
        })
    }));
    let done = if is_new {
        let how = if hardware == ALL { NLM_F_APPEND } else { NLM_F_REPLACE };
        netlink.ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | how)
    } else {
        netlink.ask(RouteNetlinkMessage::DelNeighbour(message), 0)
    };
    let is = |error: &io::Error, errno: rustix::io::Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match done {
        Err(error) if !is_new && is(&error, rustix::io::Errno::NOENT) => Ok(()),
        Err(error) if is_new && is(&error, rustix::io::Errno::EXIST) => Ok(()),
        done => done.map(drop).map_err(named(format!("cannot make the change {change:?}"))),
    }
}
