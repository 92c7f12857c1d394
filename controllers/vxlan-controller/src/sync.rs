//! One comparison of what is with what should be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_api::overlay::{OVERHEAD_V4, OVERHEAD_V6};
use neonvm_core_overlay::encryption::{self, Key, Mesh, Own, Peer};
use neonvm_core_overlay::forwarding::{DesiredForwarding, plan, plan_bridge};
use neonvm_kit::metrics::double;
use tokio::sync::watch;

use crate::guard::{Guard, Senders};
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::watch::Observed;
use crate::wireguard::{self, Device};
use crate::{Config, Encryption, kernel, nat};

/// Time after the last migration from here, in which nodes that do not know of its end still send here.
const LATE: Duration = Duration::from_secs(10);

/// What is kept between comparisons.
#[derive(Debug)]
pub(crate) struct Sync {
    config: Config,
    namespace: Arc<Namespace>,
    netlink: Netlink,
    guard: Guard,
    /// When a VM was last being migrated from here.
    left: Option<Instant>,
    /// Peers that were wanted when changes were made last.
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
            guard: Guard::default(),
            left: None,
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
        let encrypts = self.config.encryption == Encryption::Wireguard;
        let mut device = None;
        // Without the watches, tables that are there stay; those of a node that has just started let nothing in.
        if encrypts || (observed.is_none() && kernel::find(&mut self.netlink, &self.config.tunnel)?.is_none())
        {
            self.protect(None)?;
        }
        if encrypts {
            device = Some(self.encrypt(underlay)?);
        }
        let wanted =
            observed.map(|observed| self.desired(device.as_mut(), underlay, observed)).transpose()?;
        if let Some(wanted) = &wanted {
            self.protect(Some(wanted))?;
            if !wanted.leaving.is_empty() {
                self.left = Some(Instant::now());
            }
        }
        let path = match &device {
            Some(device) => device.path,
            None => self.plain(underlay)?,
        };
        let returns = self.left.is_some_and(|at| at.elapsed() < LATE);
        let (config, netlink) = (&self.config, &mut self.netlink);
        let devices = self.namespace.run(|| kernel::ensure(netlink, config, path, returns))?;
        // If another process removed the devices, it may have removed the rules as well.
        if devices.are_new || !self.is_exempt {
            self.translate();
        }
        wanted.map_or(Ok(()), |wanted| self.forward(devices, &wanted))
    }

    fn desired(
        &mut self,
        device: Option<&mut Device>,
        underlay: IpAddr,
        mut observed: Observed,
    ) -> io::Result<DesiredForwarding> {
        let node = self.config.node.clone();
        observed.nodes.insert(node.clone(), underlay);
        let nodes = match device {
            None => observed.nodes,
            Some(device) => self.mesh(device, underlay, &observed)?,
        };
        Ok(DesiredForwarding::from_own(&node, &nodes, &observed.members))
    }

    fn protect(&mut self, wanted: Option<&DesiredForwarding>) -> io::Result<()> {
        let remotes: BTreeSet<_> = wanted.map(|wanted| wanted.senders().collect()).unwrap_or_default();
        let senders = wanted.map(|wanted| Senders { nodes: &wanted.peers, remotes: &remotes });
        self.namespace.run(|| self.guard.ensure(&self.config, senders))
    }

    fn forward(&mut self, devices: kernel::Devices, wanted: &DesiredForwarding) -> io::Result<()> {
        let (tunnel, bridge) = kernel::entries(&mut self.netlink, devices)?;
        let mut failed = None;
        for change in plan(wanted, &tunnel).into_iter().chain(plan_bridge(wanted, &bridge)) {
            tracing::debug!(?change, "forwarding");
            self.metrics.changes.inc();
            if let Err(error) = kernel::apply(&mut self.netlink, devices, change) {
                failed.get_or_insert(error);
            }
        }
        self.metrics.peers.set(double(wanted.peers.len() as u64));
        self.metrics.machines.set(double(wanted.remotes.len() as u64));
        failed.map_or(Ok(()), Err)
    }

    /// The path without encryption. What encryption has left behind would be in its way.
    fn plain(&mut self, underlay: IpAddr) -> io::Result<kernel::Path> {
        if !self.is_clean {
            wireguard::delete(&mut self.netlink, &self.config)?;
            self.is_clean = true;
        }
        let overhead = if underlay.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
        let mtu = kernel::underlay_mtu(&mut self.netlink, underlay)?.saturating_sub(overhead).max(576);
        Ok(kernel::Path { local: underlay, over: 0, mtu })
    }

    fn encrypt(&mut self, underlay: IpAddr) -> io::Result<Device> {
        let (config, netlink) = (&self.config, &mut self.netlink);
        let device = self.namespace.run(|| wireguard::ensure(netlink, config, underlay))?;
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
