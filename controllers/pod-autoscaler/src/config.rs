//! How an autoscaler is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_kit::lease;

/// Name of the lease of the leader.
const LEASE: &str = "neonvm-pod-autoscaler";

/// How an autoscaler is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Kubeconfig file; absent: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease.
    pub namespace: String,
    /// Objects worked on at the same time; at least 1.
    pub concurrency: usize,
    /// Endpoints read at the same time, over all objects; at least 1.
    pub scrapes: usize,
    /// Time for one endpoint to answer.
    pub scrape_timeout: Duration,
    /// PEM file with the authorities that certificates of endpoints are checked against; absent: they are not checked, as
    /// with probes of the kubelet, because pods rarely have certificates for their addresses.
    pub scrape_authority: Option<PathBuf>,
    /// Compete for the lead; absent: this is the only replica.
    pub leader_election: Option<lease::Config>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: "neonvm-system".to_owned(),
            concurrency: 64,
            scrapes: 512,
            scrape_timeout: Duration::from_secs(2),
            scrape_authority: None,
            leader_election: None,
            metrics: None,
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
