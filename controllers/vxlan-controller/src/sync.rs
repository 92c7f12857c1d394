//! One comparison of what is with what should be.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use neonvm_api::overlay::{OVERHEAD_V4, OVERHEAD_V6};
use neonvm_core_overlay::encryption::{self, Key, Mesh, Own, Peer};
use neonvm_core_overlay::forwarding::{DesiredForwarding, plan};
use neonvm_kit::metrics::double;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::watch::Observed;
use crate::wireguard::{self, Device};
use crate::{Config, Encryption, guard, kernel, nat};

/// What is kept between comparisons.
#[derive(Debug)]
pub(crate) struct Sync {
    config: Config,
    namespace: Arc<Namespace>,
    netlink: Netlink,
    /// What was wanted when changes were made last.
    before: DesiredForwarding,
    /// Peers that were wanted then.
    peers: BTreeMap<Key, Peer>,
    /// The key to publish; none without encryption.
    key: watch::Sender<Option<Key>>,
    /// What encryption leaves behind where it is off now is gone.
    is_clean: bool,
    metrics: Arc<Metrics>,
    /// Why the rules that prevent translation could not be set; logged once.
    nat_problem: Option<String>,
    /// The rules are in place.
    is_exempt: bool,
}

impl Sync {
    /// Opens the way to the kernel. Blocks.
    pub(crate) fn open(config: Config, namespace: Arc<Namespace>, metrics: Arc<Metrics>) -> io::Result<Self> {
        let netlink = namespace.run(Netlink::open)?;
        Ok(Self {
            config,
            namespace,
            netlink,
            before: DesiredForwarding::default(),
            peers: BTreeMap::new(),
            key: watch::Sender::new(None),
            is_clean: false,
            metrics,
            nat_problem: None,
            is_exempt: false,
        })
    }

    /// The key that the node has and that the other nodes need.
    pub(crate) fn key(&self) -> watch::Receiver<Option<Key>> {
        self.key.subscribe()
    }

    /// Makes everything what it should be; without `observed` peers and forwarding table are left alone. Blocks.
    pub(crate) fn run(&mut self, underlay: IpAddr, observed: Option<Observed>) -> io::Result<()> {
        self.metrics.runs.inc();
        let done = self.work(underlay, observed);
        if done.is_err() {
            self.metrics.failures.inc();
        }
        done
    }

    fn work(&mut self, underlay: IpAddr, observed: Option<Observed>) -> io::Result<()> {
        let mut device = match self.config.encryption {
            Encryption::None => None,
            Encryption::Wireguard => Some(self.encrypt(underlay)?),
        };
        let path = match &device {
            Some(device) => device.path,
            None => self.plain(underlay)?,
        };
        let kernel::Devices { tunnel, are_new } = kernel::ensure(&mut self.netlink, &self.config, path)?;
        // If another process removed the devices, it may have removed the rules as well.
        if are_new || !self.is_exempt {
            self.translate();
        }
        let Some(mut observed) = observed else { return Ok(()) };
        observed.nodes.insert(self.config.node.clone(), underlay);
        let wanted = match &mut device {
            None => DesiredForwarding::from_own(&self.config.node, &observed.nodes, &observed.members),
            Some(device) => {
                let nodes = self.mesh(device, underlay, &observed)?;
                DesiredForwarding::from_own(&self.config.node, &nodes, &observed.members)
            }
        };
        let have = kernel::entries(&mut self.netlink, tunnel)?;
        let mut failed = None;
        for change in plan(&wanted, &self.before, &have) {
            tracing::debug!(?change, "forwarding");
            self.metrics.changes.inc();
            if let Err(error) = kernel::apply(&mut self.netlink, tunnel, change) {
                failed.get_or_insert(error);
            }
        }
        self.metrics.peers.set(double(wanted.peers.len() as u64));
        self.metrics.machines.set(double(wanted.machines.len() as u64));
        match failed {
            Some(error) => Err(error),
            None => {
                self.before = wanted;
                Ok(())
            }
        }
    }

    /// The path without encryption. What encryption has left behind would be in its way.
    fn plain(&mut self, underlay: IpAddr) -> io::Result<kernel::Path> {
        if !self.is_clean {
            wireguard::delete(&mut self.netlink, &self.config)?;
            // Without the program no table can have been made.
            let gone = self.namespace.run(guard::delete);
            gone.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
            self.is_clean = true;
        }
        let overhead = if underlay.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
        let mtu = kernel::underlay_mtu(&mut self.netlink, underlay)?.saturating_sub(overhead).max(576);
        Ok(kernel::Path { local: underlay, over: 0, mtu })
    }

    /// The encrypted path. The table that keeps packets from bypassing it is set first, and on every pass: the kernel does not
    /// notify when another process removes it.
    fn encrypt(&mut self, underlay: IpAddr) -> io::Result<Device> {
        let (config, netlink) = (&self.config, &mut self.netlink);
        let device = self.namespace.run(|| {
            guard::ensure(config.port, config.vni, wireguard::LINK)?;
            wireguard::ensure(netlink, config, underlay)
        })?;
        self.key.send_if_modified(|key| key.replace(device.key) != Some(device.key));
        Ok(device)
    }

    /// Makes the peers what they should be; the nodes that the tunnel may lead to, with their addresses there.
    fn mesh(
        &mut self,
        device: &mut Device,
        underlay: IpAddr,
        observed: &Observed,
    ) -> io::Result<BTreeMap<String, IpAddr>> {
        let own = Own { node: &self.config.node, address: underlay, key: device.key };
        let mesh = Mesh::from_own(
            own,
            &observed.nodes,
            &observed.keys,
            self.config.vni,
            self.config.encryption_port,
        );
        for change in encryption::plan(&mesh.peers, &self.peers, &device.peers) {
            tracing::debug!(?change, "peers");
            device.apply(&change)?;
        }
        self.peers = mesh.peers;
        self.metrics.keyless.set(double(mesh.keyless.len() as u64));
        Ok(mesh.nodes)
    }

    /// Failures do not stop the sync: the overlay works without these rules unless another component translates addresses.
    fn translate(&mut self) {
        let (range, gateway, bridge) = (self.config.range, self.config.gateway, self.config.bridge.clone());
        let ensure = move || nat::ensure(range, gateway.map(|address| (address, bridge.as_str())));
        let problem = self.namespace.run(ensure).err().map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|problem| Some(*problem) != self.nat_problem.as_ref())
        {
            tracing::warn!(problem, "packets of the overlay may be translated by rules of others");
        }
        self.is_exempt = problem.is_none();
        self.nat_problem = problem;
    }
}
