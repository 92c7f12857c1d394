//! One comparison of what is with what should be.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use neonvm_core_overlay::forwarding::{Wanted, plan};
use neonvm_kit::metrics::double;

use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::{Config, kernel, nat};

/// What is kept between comparisons.
#[derive(Debug)]
pub(crate) struct Sync {
    config: Config,
    namespace: Arc<Namespace>,
    netlink: Netlink,
    /// What was wanted when changes were made last.
    before: Wanted,
    metrics: Arc<Metrics>,
    /// What is wrong with the rules against translation; told once.
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
            before: Wanted::default(),
            metrics,
            nat_problem: None,
            is_exempt: false,
        })
    }

    /// Makes everything what it should be; without `wanted` the forwarding table is left alone. Blocks.
    pub(crate) fn run(&mut self, local: IpAddr, wanted: Option<Wanted>) -> io::Result<()> {
        self.metrics.runs.inc();
        let done = self.work(local, wanted);
        if done.is_err() {
            self.metrics.failures.inc();
        }
        done
    }

    fn work(&mut self, local: IpAddr, wanted: Option<Wanted>) -> io::Result<()> {
        let kernel::Devices { tunnel, are_new } = kernel::ensure(&mut self.netlink, &self.config, local)?;
        // Whoever removed the devices may have removed the rules as well.
        if are_new || !self.is_exempt {
            self.translate();
        }
        let Some(wanted) = wanted else { return Ok(()) };
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

    /// The overlay works without these rules wherever nobody translates; so they hold nothing up.
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
