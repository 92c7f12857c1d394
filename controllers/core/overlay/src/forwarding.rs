//! Where a node sends frames of the overlay, and whose frames it takes from the tunnel: both come from the controller alone, and the
//! kernel learns neither.
//!
//! Two tables hold it: that of the tunnel (hardware address → node) and that of the bridge (hardware address → tunnel). The only
//! exception is a VM that is being migrated: its node lets its own bridge learn from the tunnel where that VM is, because the
//! switchover is quicker than the object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

/// An Ethernet address.
pub type Hardware = [u8; 6];

/// Address of the entries for broadcast frames.
pub const ALL: Hardware = [0; 6];

/// Hardware address of a node's bridge: unicast, locally administered, made of the node's name, so that every node knows it.
#[must_use]
pub fn bridge_address(node: &str) -> Hardware {
    let hash: [u8; 32] = Sha256::digest(format!("{node}/bridge")).into();
    let [a, b, c, d, e, f, ..] = hash;
    [(a & 0xfc) | 2, b, c, d, e, f]
}

/// Something on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Behind which tunnel.
    pub to: IpAddr,
    /// A VM that is being migrated: it may have arrived at this node already.
    pub is_moving: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredForwarding {
    /// The other nodes: each gets a copy of what is for all, and packets of tunnels come from them only.
    pub peers: BTreeSet<IpAddr>,
    /// VMs on other nodes, and bridges of these.
    pub remotes: BTreeMap<Hardware, Remote>,
    /// VMs of this node that are being migrated: they may have left.
    pub leaving: BTreeSet<Hardware>,
}

/// A VM on the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// MAC address of the guest on the overlay.
    pub hardware: Hardware,
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
        let bridges = others.iter().map(|(name, to)| (bridge_address(name), *to, false));
        let mut all = Self { peers: others.values().copied().collect(), ..Self::default() };
        all.remotes.extend(bridges.map(|(hardware, to, is_moving)| (hardware, Remote { to, is_moving })));
        for Member { hardware, node, is_moving } in members {
            if let Some(to) = others.get(node.as_str()) {
                all.remotes.insert(*hardware, Remote { to: *to, is_moving: *is_moving });
            } else if node == own && *is_moving {
                all.leaving.insert(*hardware);
            }
        }
        all
    }

    /// The senders whose frames the bridge takes from the tunnel.
    pub fn senders(&self) -> impl Iterator<Item = Hardware> {
        self.remotes.keys().chain(&self.leaving).copied()
    }
}

/// An entry of the tunnel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Receiver of the frames.
    pub hardware: Hardware,
    /// Behind which tunnel.
    pub to: IpAddr,
    /// Whether it has the flag of entries that we write. Others are created by the kernel, or written by another
    /// program.
    pub is_external: bool,
}

/// An entry of the bridge's table, but for those of its ports' own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BridgeEntry {
    /// Receiver of the frames.
    pub hardware: Hardware,
    /// Whether they go to the tunnel; to a pod otherwise.
    pub is_tunnel: bool,
    /// As with [`Entry`]. Entries without this flag age.
    pub is_external: bool,
}

/// A change of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The tunnel: frames to all go there, too.
    AddPeer(IpAddr),
    /// They no longer do.
    RemovePeer(IpAddr),
    /// The tunnel: these frames go there, and nowhere else.
    Set(Hardware, IpAddr),
    /// They no longer go there.
    Remove(Hardware, IpAddr),
    /// The bridge: these frames go to the tunnel.
    Lead(Hardware),
    /// They no longer do.
    Forget(Hardware),
}

/// The changes that lead from the tunnel's table to the desired one.
#[must_use]
pub fn plan(wanted: &DesiredForwarding, have: &[Entry]) -> Vec<Change> {
    let flood: BTreeSet<IpAddr> =
        have.iter().filter(|entry| entry.hardware == ALL).map(|entry| entry.to).collect();
    let mut changes: Vec<Change> =
        flood.difference(&wanted.peers).map(|peer| Change::RemovePeer(*peer)).collect();
    changes.extend(wanted.peers.difference(&flood).map(|peer| Change::AddPeer(*peer)));
    let mut current = BTreeSet::new();
    for entry in have.iter().filter(|entry| entry.hardware != ALL) {
        match wanted.remotes.get(&entry.hardware) {
            None => changes.push(Change::Remove(entry.hardware, entry.to)),
            Some(remote) if remote.to == entry.to && entry.is_external => {
                current.insert(entry.hardware);
            }
            Some(_) => {}
        }
    }
    let missing = wanted.remotes.iter().filter(|(hardware, _)| !current.contains(*hardware));
    changes.extend(missing.map(|(hardware, remote)| Change::Set(*hardware, remote.to)));
    changes
}

/// The changes that lead from the bridge's table to the desired one. Entries for pods stay, unless they contradict.
#[must_use]
pub fn plan_bridge(wanted: &DesiredForwarding, have: &[BridgeEntry]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut current = BTreeSet::new();
    for entry in have {
        match wanted.remotes.get(&entry.hardware) {
            // It has arrived here before its object names this node.
            Some(remote) if !entry.is_tunnel && remote.is_moving => current.insert(entry.hardware),
            Some(_) if entry.is_tunnel && entry.is_external => current.insert(entry.hardware),
            Some(_) => false,
            None => {
                if entry.is_tunnel && !wanted.leaving.contains(&entry.hardware) {
                    changes.push(Change::Forget(entry.hardware));
                }
                false
            }
        };
    }
    let missing = wanted.remotes.keys().filter(|hardware| !current.contains(*hardware));
    changes.extend(missing.map(|hardware| Change::Lead(*hardware)));
    changes
}
