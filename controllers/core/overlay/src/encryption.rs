//! Encryption of the tunnels by WireGuard: the peers of each node, and their addresses on the encrypted network.
//!
//! Each node has a WireGuard interface with an address derived from the node's name ([`address`]). The tunnel runs
//! between these addresses, which are routed by no other interface. So no frame can be sent in plaintext to a node
//! whose key is unknown, and tunnel packets of a node come only from the holder of its key. Addresses of the underlay
//! would need policy routing to separate tunnel packets from others; a missing rule would then be a leak, and a node
//! that claims the address of another would get its frames.
//!
//! Only the node that has a key publishes it (see [`Key`]); the address of a node comes from its object. Neither is trusted more
//! than needed: a node that publishes another's key, or claims its address, does not receive the other's frames and does not
//! make the other unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// UDP port of WireGuard, between nodes.
pub const PORT: u16 = 51872;
/// Bytes that WireGuard over IPv4 adds to a packet: IP 20, UDP 8, header 16, authentication 16.
pub const OVERHEAD_V4: u32 = 60;
/// The same over IPv6.
pub const OVERHEAD_V6: u32 = 80;
/// Length of the network that [`address`] is of.
pub const PREFIX: u8 = 64;

/// The public key of a node: 32 bytes, in base64 wherever it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// None if all bytes are zero, by which the kernel reports that there is no key.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Option<Self> {
        (bytes != [0; 32]).then_some(Self(bytes))
    }

    /// Reads what [`Display`](std::fmt::Display) writes, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::new(STANDARD.decode(text).ok()?.try_into().ok()?)
    }

    /// Bytes of the key.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Address of a node on the encrypted network of a virtual network: `fd6e:656f:6eVV:VVVV::/64`, with the 24 bits of the VNI and
/// the first 64 bits of the SHA-256 of the node's name.
#[must_use]
pub fn address(node: &str, vni: u32) -> Ipv6Addr {
    let hash: [u8; 32] = Sha256::digest(node).into();
    let [_, high, middle, low] = vni.to_be_bytes();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    Ipv6Addr::from([0xfd, 0x6e, 0x65, 0x6f, 0x6e, high, middle, low, a, b, c, d, e, f, g, h])
}

/// The other end of an encrypted path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address on the underlay. `None` if several nodes publish its key: the kernel then takes it from packets
    /// received.
    pub endpoint: Option<SocketAddr>,
    /// Its addresses on the encrypted network: what it may send from, and what is sent to it.
    pub allowed: BTreeSet<Ipv6Addr>,
}

/// The node whose peers are computed.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    pub node: &'a str,
    /// Its address on the underlay.
    pub address: IpAddr,
    pub key: Key,
}

/// The encrypted network as one node should see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    pub peers: BTreeMap<Key, Peer>,
    /// Addresses of nodes on the encrypted network, its own among them: the nodes that tunnels may lead to.
    pub nodes: BTreeMap<String, IpAddr>,
    /// Nodes that are not reached, because they have published no key that can be used.
    pub keyless: BTreeSet<String>,
}

impl Mesh {
    /// What node `own` should have. `nodes` are all nodes with their addresses on the underlay, `keys` the keys that each has
    /// published. Nodes whose address is of another family than that of `own` are left out.
    #[must_use]
    pub fn from_own(
        own: Own<'_>,
        nodes: &BTreeMap<String, IpAddr>,
        keys: &BTreeMap<String, Key>,
        vni: u32,
        port: u16,
    ) -> Self {
        let mut mesh = Self::default();
        let here = address(own.node, vni);
        mesh.nodes.insert(own.node.to_owned(), here.into());
        let others = nodes.iter().filter(|(name, at)| {
            name.as_str() != own.node && at.is_ipv4() == own.address.is_ipv4() && **at != own.address
        });
        let others: Vec<(&String, &IpAddr, Ipv6Addr)> =
            others.map(|(name, at)| (name, at, address(name, vni))).collect();
        let mut claims: BTreeMap<Ipv6Addr, usize> = BTreeMap::from([(here, 1)]);
        for (_, _, inner) in &others {
            *claims.entry(*inner).or_default() += 1;
        }
        for (name, at, inner) in others {
            // Its own key, published by another, is no way to reach that.
            let key = keys.get(name).filter(|key| **key != own.key);
            let Some(key) = key.filter(|_| claims.get(&inner) == Some(&1)) else {
                mesh.keyless.insert(name.clone());
                continue;
            };
            let endpoint = Some(SocketAddr::new(*at, port));
            let peer = mesh.peers.entry(*key).or_insert_with(|| Peer { endpoint, ..Peer::default() });
            if peer.endpoint != endpoint {
                peer.endpoint = None;
            }
            peer.allowed.insert(inner);
            mesh.nodes.insert(name.clone(), inner.into());
        }
        mesh
    }
}

/// A change of the kernel's peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing is sent to it nor taken from it any more.
    Remove(Key),
    /// It has these addresses and no others; an endpoint of none is left as it is.
    Set(Key, Peer),
}

/// The changes that lead from the kernel's state to the desired one; removals first, so that no address is taken from a
/// peer that has just got it. `before` is the desired state of the previous call: an endpoint that the kernel took from
/// packets stays while the peer's address stays the same.
#[must_use]
pub fn plan(
    wanted: &BTreeMap<Key, Peer>,
    before: &BTreeMap<Key, Peer>,
    have: &BTreeMap<Key, Peer>,
) -> Vec<Change> {
    let gone = have.keys().filter(|key| !wanted.contains_key(key));
    let mut changes: Vec<Change> = gone.map(|key| Change::Remove(*key)).collect();
    for (key, peer) in wanted {
        let endpoint = match have.get(key) {
            None => peer.endpoint,
            Some(now) if now.endpoint.is_none() => peer.endpoint,
            Some(_) => {
                peer.endpoint.filter(|_| before.get(key).is_none_or(|was| was.endpoint != peer.endpoint))
            }
        };
        let now = have.get(key);
        let moves = endpoint.is_some() && now.is_none_or(|now| now.endpoint != endpoint);
        if moves || now.is_none_or(|now| now.allowed != peer.allowed) {
            changes.push(Change::Set(*key, Peer { endpoint, allowed: peer.allowed.clone() }));
        }
    }
    changes
}
