//! Settings of the service.

pub(crate) mod file;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use neonvm_core_scheduling::permits::Settings;
use neonvm_kit::lease::{Beside, Times};

/// Which component places pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// This scheduler, every pod, whatever scheduler it names: for clusters without another scheduler.
    #[default]
    Bind,
    /// A stock kube-scheduler, which calls this scheduler as its extender.
    Extender,
}

/// Settings of the service.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How to reach the API server; none: as the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease and of the internal authority.
    pub namespace: String,
    /// Name in the lease; unique among replicas. A replica that restarts under the same name need not wait for its old
    /// lease to end.
    pub identity: String,
    /// Which component places pods.
    pub mode: Mode,
    /// Address for requests of agents, operators and kube-schedulers, over mutual TLS.
    pub listen: SocketAddr,
    /// Address for requests of agents over plain HTTP; none: not served. On a loopback address the extender is served
    /// there too.
    pub plain: Option<SocketAddr>,
    /// Where metrics and health are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where the state is served as upstream's scheduler does, over plain HTTP; none: nowhere.
    pub dump_state: Option<SocketAddr>,
    /// Where probes are answered, and nothing else; none: nowhere.
    pub probes: Option<SocketAddr>,
    /// Address of our pod: written to the lease if `listen` is unspecific.
    pub pod_ip: Option<IpAddr>,
    /// Scheduler name that pods request; shown in events.
    pub scheduler_name: String,
    /// What decisions depend on.
    pub settings: Settings,
    /// Longest time for one request to the API server.
    pub request_timeout: Duration,
    pub node_metric_labels: BTreeMap<String, String>,
    pub lease: Times,
    /// The kube-scheduler in the same pod; none: there is none, or it has no lease.
    pub beside: Option<Beside>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: "neonvm-system".to_owned(),
            identity: format!("neonvm-scheduler-{}", std::process::id()),
            mode: Mode::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            plain: None,
            metrics: None,
            dump_state: None,
            probes: None,
            pod_ip: None,
            scheduler_name: "autoscale-scheduler".to_owned(),
            settings: Settings::default(),
            request_timeout: Duration::from_secs(4),
            node_metric_labels: BTreeMap::new(),
            lease: Times::default(),
            beside: None,
        }
    }
}

impl Config {
    /// Whether the state is dumped at the address of the plain server, which only this machine reaches.
    pub(crate) fn shares_dump(&self) -> bool {
        let port = |address: Option<SocketAddr>| {
            address.filter(|address| address.ip().is_loopback()).map(|address| address.port())
        };
        self.dump_state.is_some() && port(self.dump_state) == port(self.plain)
    }
}
