//! How an autoscaler is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_kit::{lease, webhook};

use crate::reach::Network;

/// Name of the lease of the leader.
const LEASE: &str = "neonvm-pod-autoscaler";

/// How an autoscaler is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Kubeconfig file; absent: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    pub namespace: String,
    /// Objects worked on at the same time; at least 1.
    pub concurrency: usize,
    /// Endpoints read at the same time, over all objects; at least 1.
    pub scrapes: usize,
    /// Endpoints of one object read at the same time; at least 1.
    pub scrapes_of_one: usize,
    /// Time for one endpoint to answer.
    pub scrape_timeout: Duration,
    /// Time for all endpoints of one object, in each of its reconciles.
    pub scrape_turn: Duration,
    /// Bytes for answers longer than 32 KiB, all together; half of it is for those longer than 1 MiB, and at least one of those
    /// (16 MiB) is read.
    pub scrape_memory: usize,
    /// Networks that endpoints may be in although they are refused otherwise.
    pub scrape_allowed: Vec<Network>,
    /// Networks of Services, which are refused; empty: those of the cluster's `ServiceCIDR` objects.
    pub service_networks: Vec<Network>,
    /// PEM file with the authorities that certificates of endpoints are checked against; absent: they are not checked, as
    /// with probes of the kubelet, because pods rarely have certificates for their addresses.
    pub scrape_authority: Option<PathBuf>,
    /// Compete for the lead; absent: this is the only replica.
    pub leader_election: Option<lease::Config>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are answered, and nothing else; absent: nowhere.
    pub probes: Option<SocketAddr>,
    /// Admission webhooks; absent: none are served.
    pub webhooks: Option<WebhookConfig>,
}

#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The client that may call them, with its authority read at start; absent: any client may.
    pub client: Option<webhook::Client>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: "neonvm-system".to_owned(),
            concurrency: 64,
            scrapes: 512,
            scrapes_of_one: 128,
            scrape_timeout: Duration::from_secs(2),
            scrape_turn: Duration::from_secs(10),
            scrape_memory: 64 << 20,
            scrape_allowed: Vec::new(),
            service_networks: Vec::new(),
            scrape_authority: None,
            leader_election: None,
            metrics: None,
            probes: None,
            webhooks: None,
        }
    }
}

impl Config {
    /// The lease that replicas with this configuration compete for.
    #[must_use]
    pub fn lease(&self, identity: String) -> lease::Config {
        lease::Config::new(self.namespace.clone(), LEASE, identity)
    }
}
