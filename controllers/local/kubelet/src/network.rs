//! How pods are connected.
//!
//! As root every node and every pod has a network namespace:
//!
//! ```text
//! host       nvHASH (bridge, 10.90.X.254) ── nvHASHNODE ═╗ one for each node
//! node       up0 (10.90.X.N) ═╝   br0 (gateway of the pods) ── pPOD ═╗ one for each pod
//! pod        eth0 ═╝
//! ```
//!
//! A pod may also have an interface on the overlay, joined to the bridge of that name in its node's namespace; what joins
//! those bridges is not the node's business.
//!
//! Nodes route to each other's pods over the underlay; the host routes to all of them, and hides them behind its own
//! address on the way out, if it has one. Without root each pod has a loopback address.

pub(crate) mod attachments;
mod clean_up;
mod command;
pub mod firewall;
mod host;
mod leases;
mod namespaces;
mod ports;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use clean_up::clean_up;
use leases::Leases;

use crate::naming::{self, Subnet};
use crate::{Config, Error, NamespaceNetwork, Network};

/// Another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    pub(crate) pods: Subnet,
    /// Its address on the underlay.
    pub(crate) via: Ipv4Addr,
}

#[derive(Debug)]
pub(crate) struct NodeNetwork {
    cluster: String,
    node: String,
    mode: Network,
    leases: parking_lot::Mutex<Leases>,
}

/// The namespace of a name, as `ip netns` keeps it.
fn namespace_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

fn open_namespace(name: &str) -> io::Result<OwnedFd> {
    Ok(std::fs::File::open(namespace_path(name))?.into())
}

impl NodeNetwork {
    /// Sets up what is the node's own; what is there already is kept.
    ///
    /// # Errors
    /// If addresses are in use elsewhere, or privileges or programs are missing.
    pub(crate) async fn start(config: &Config) -> Result<Self, Error> {
        let pool = match &config.network {
            Network::Namespaces(net) => net.pods,
            Network::User => {
                let [.., y, x] = naming::digest(&config.cluster);
                Subnet::new(Ipv4Addr::new(127, 64 + x % 128, y, 0), 24)
            }
        };
        let failed = |error: io::Error| Error::Network(error.to_string());
        let leases = Leases::open(&config.data.join("leases.json"), pool).map_err(failed)?;
        let (cluster, node) = (config.cluster.clone(), config.name.clone());
        if let Network::Namespaces(net) = &config.network {
            host::set_up(&cluster, &node, net).await.map_err(failed)?;
            namespaces::set_up_node(&cluster, &node, net).await.map_err(failed)?;
        }
        Ok(Self { cluster, node, mode: config.network.clone(), leases: parking_lot::Mutex::new(leases) })
    }

    fn namespaces(&self) -> Option<&NamespaceNetwork> {
        match &self.mode {
            Network::Namespaces(net) => Some(net),
            Network::User => None,
        }
    }

    /// Whether each pod has a network namespace.
    pub(crate) fn has_namespaces(&self) -> bool {
        self.namespaces().is_some()
    }

    /// The file of a pod's network namespace, if it has one.
    pub(crate) fn namespace(&self, uid: &str) -> PathBuf {
        namespace_path(&naming::pod_namespace(&self.cluster, &self.node, uid))
    }

    /// The word for it in the environment of runners.
    pub(crate) fn word(&self) -> &'static str {
        if self.namespaces().is_some() { "tap" } else { "user" }
    }

    pub(crate) fn node_address(&self, listen: Option<SocketAddr>) -> String {
        match (self.namespaces(), listen) {
            (Some(net), _) => net.address.to_string(),
            (None, Some(listen)) if !listen.ip().is_unspecified() => listen.ip().to_string(),
            (None, _) => Ipv4Addr::LOCALHOST.to_string(),
        }
    }

    /// Network of the node's pods, if it is a part of the cluster's network.
    pub(crate) fn pods(&self) -> Option<Subnet> {
        self.namespaces().map(|net| net.pods)
    }

    /// Listens for the node's server: in the node's namespace, unless an address is configured.
    pub(crate) fn listen(&self, wanted: Option<SocketAddr>) -> Result<std::net::TcpListener, Error> {
        let failed = |address| move |source| Error::Listen { address, source };
        match (self.namespaces(), wanted) {
            (Some(net), None) => {
                let address = SocketAddr::from((net.address, 10250));
                let namespace = open_namespace(&naming::node_namespace(&self.cluster, &self.node));
                let bind = move || std::net::TcpListener::bind(address);
                namespace
                    .and_then(|namespace| crate::sys::in_network(namespace, bind))
                    .map_err(failed(address))
            }
            (_, wanted) => {
                let address = wanted.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
                std::net::TcpListener::bind(address).map_err(failed(address))
            }
        }
    }

    /// Connects a pod, and by these interfaces to the overlay; what is there already is kept. Its address.
    ///
    /// Without namespaces there is no overlay, and the runner reports that.
    pub(crate) async fn attach(&self, uid: &str, interfaces: &[String]) -> io::Result<Ipv4Addr> {
        let address = self.leases.lock().take(uid)?;
        if let Some(net) = self.namespaces() {
            namespaces::attach(&self.cluster, &self.node, net, uid, (address, interfaces)).await?;
        }
        Ok(address)
    }

    /// Removes all of a pod's network. Its address may be used again.
    pub(crate) async fn detach(&self, uid: &str) -> io::Result<()> {
        if self.namespaces().is_some() {
            namespaces::detach(&self.cluster, &self.node, uid).await?;
        }
        self.leases.lock().release(uid)
    }

    /// The network namespace of a pod. None: it is the node's own.
    pub(crate) fn enter(&self, uid: &str) -> io::Result<Option<OwnedFd>> {
        let name = naming::pod_namespace(&self.cluster, &self.node, uid);
        self.namespaces().map(|_| open_namespace(&name)).transpose()
    }

    /// Removes what pods left behind, except those of `keep`.
    pub(crate) async fn sweep(&self, keep: &std::collections::BTreeSet<String>) -> io::Result<()> {
        for uid in self.leases.lock().others(keep) {
            self.leases.lock().release(&uid)?;
        }
        if self.namespaces().is_some() {
            let kept: Vec<String> =
                keep.iter().map(|uid| naming::pod_namespace(&self.cluster, &self.node, uid)).collect();
            namespaces::sweep(&naming::pod_namespace_prefix(&self.cluster, &self.node), &kept).await?;
        }
        Ok(())
    }

    /// Routes to the pods of other nodes.
    pub(crate) async fn set_peers(&self, peers: &[Peer]) -> io::Result<()> {
        match self.namespaces() {
            Some(net) => namespaces::set_peers(&self.cluster, &self.node, net, peers).await,
            None => Ok(()),
        }
    }
}
