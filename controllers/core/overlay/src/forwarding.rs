//! Where the tunnel of a node sends frames: the receivers of broadcasts, and the node that each VM is on.
//!
//! Entries of VMs are *external*: the kernel does not let them age, but a frame from another node changes them, so that
//! a VM that has just migrated is reached before its object changes. Entries that the kernel changed are therefore left
//! alone until the desired state changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An Ethernet address.
pub type Hardware = [u8; 6];

/// Address of the entries for broadcast and unknown frames.
pub const ALL: Hardware = [0; 6];

/// A node as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Behind which tunnel.
    pub to: IpAddr,
    /// The VM is being migrated: an entry changed by the kernel is newer.
    pub is_moving: bool,
}

/// The desired forwarding table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredForwarding {
    /// The other nodes: each gets a copy of what is for all.
    pub peers: BTreeSet<IpAddr>,
    /// VMs on other nodes.
    pub machines: BTreeMap<Hardware, PeerAddress>,
}

/// A VM on the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// MAC address of the guest on the overlay.
    pub hardware: Hardware,
    /// The node it runs on.
    pub node: String,
    /// Whether a migration of it is under way.
    pub is_moving: bool,
}

impl DesiredForwarding {
    /// What node `own` should have. `nodes` are all, with their addresses on the underlay; nodes of another address
    /// family than its own are ignored.
    #[must_use]
    pub fn from_own<'a>(
        own: &str,
        nodes: &BTreeMap<String, IpAddr>,
        members: impl IntoIterator<Item = &'a Member>,
    ) -> Self {
        let Some(here) = nodes.get(own) else { return Self::default() };
        let others = nodes.iter().filter(|(name, address)| {
            name.as_str() != own && address.is_ipv4() == here.is_ipv4() && *address != here
        });
        let others: BTreeMap<&str, IpAddr> =
            others.map(|(name, address)| (name.as_str(), *address)).collect();
        let machines = members.into_iter().filter_map(|member| {
            let to = *others.get(member.node.as_str())?;
            Some((member.hardware, PeerAddress { to, is_moving: member.is_moving }))
        });
        Self { machines: machines.collect(), peers: others.values().copied().collect() }
    }
}

/// An entry of the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Source address of the frames.
    pub hardware: Hardware,
    /// Behind which tunnel.
    pub to: IpAddr,
    /// Whether it has the flag of entries that we write. Others are created by the kernel, or written by another
    /// program.
    pub is_external: bool,
}

/// A change of the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Frames to all go there, too.
    AddPeer(IpAddr),
    /// They no longer do.
    RemovePeer(IpAddr),
    /// The frames of a VM go there, and nowhere else.
    Set(Hardware, IpAddr),
    /// They no longer go there.
    Remove(Hardware, IpAddr),
}

/// The changes that lead from what the kernel has to what is wanted. `before` is what was wanted when changes were made last.
#[must_use]
pub fn plan(wanted: &DesiredForwarding, before: &DesiredForwarding, have: &[Entry]) -> Vec<Change> {
    let mut changes = Vec::new();
    let flood: BTreeSet<IpAddr> =
        have.iter().filter(|entry| entry.hardware == ALL).map(|entry| entry.to).collect();
    changes.extend(flood.difference(&wanted.peers).map(|peer| Change::RemovePeer(*peer)));
    changes.extend(wanted.peers.difference(&flood).map(|peer| Change::AddPeer(*peer)));
    let unicast = have.iter().filter(|entry| entry.hardware != ALL);
    let unicast: BTreeMap<Hardware, &Entry> = unicast.map(|entry| (entry.hardware, entry)).collect();
    for (hardware, entry) in &unicast {
        let leads_nowhere = !wanted.peers.contains(&entry.to);
        if !wanted.machines.contains_key(hardware) && (entry.is_external || leads_nowhere) {
            changes.push(Change::Remove(*hardware, entry.to));
        }
    }
    for (hardware, place) in &wanted.machines {
        let Some(entry) = unicast.get(hardware) else {
            changes.push(Change::Set(*hardware, place.to));
            continue;
        };
        let is_known = wanted.peers.contains(&entry.to);
        let is_news = before.machines.get(hardware).is_none_or(|was| was.to != place.to);
        let may_be_newer = is_known && (place.is_moving || !is_news);
        let fits = if entry.to == place.to { entry.is_external } else { may_be_newer };
        if !fits {
            changes.push(Change::Set(*hardware, place.to));
        }
    }
    changes
}
