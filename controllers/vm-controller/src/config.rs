//! How a controller is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_api::lifetimes::Lifetimes;
use neonvm_core_vm_lifecycle::Settings;
use neonvm_kit::http::LEAVE;
use neonvm_kit::lease;
use neonvm_kit::webhook::Client as WebhookClient;
use neonvm_types::NamespacedName;

use crate::addresses::AddressConfig;

/// How a controller is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Kubeconfig file; absent: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the controller: internal authority, lease. Made if it is missing.
    pub namespace: String,
    /// Settings of the installation.
    pub settings: Settings,
    /// Machines worked on at the same time.
    pub concurrency: usize,
    /// Election of a leader among replicas; absent: this one leads.
    pub leader_election: Option<lease::Config>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are answered, and nothing else.
    pub probes: Option<SocketAddr>,
    pub webhook: Option<WebhookConfig>,
    /// Machines for which a failing update validation only warns.
    pub skip_update_validation: Vec<NamespacedName>,
    /// Addresses on the overlay network.
    pub addresses: AddressConfig,
    /// How long a VM must have failed without success to count as degraded.
    pub failure_pending_period: Duration,
    /// How long the internal authority lives, and what it signs.
    pub lifetimes: Lifetimes,
    /// Time between two checks of the authorities; absent: what the lifetimes need.
    pub authority_look: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: "neonvm-system".to_owned(),
            settings: Settings::default(),
            concurrency: 128,
            leader_election: None,
            metrics: None,
            probes: None,
            webhook: None,
            skip_update_validation: Vec::new(),
            addresses: AddressConfig::default(),
            failure_pending_period: Duration::from_secs(60),
            lifetimes: Lifetimes::default(),
            authority_look: None,
        }
    }
}

const LEASE: &str = "a3b22509.neon.tech";

impl Config {
    /// The lease that replicas of this controller compete for, with the usual times.
    #[must_use]
    pub fn lease(&self, identity: impl Into<String>) -> lease::Config {
        lease::Config::new(&self.namespace, LEASE, identity)
    }

    /// Reads `ns/name,name,…`; a name alone is in `default`. Empty parts are skipped.
    #[must_use]
    pub fn parse_names(list: &str) -> Vec<NamespacedName> {
        let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        let name = |part: &str| {
            let (namespace, name) = part.split_once('/').unwrap_or(("default", part));
            NamespacedName::new(namespace, name)
        };
        parts.map(name).collect()
    }
}

#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// DNS names and addresses of the serving certificate, beside those of the registration.
    pub names: Vec<String>,
    /// How they are registered at the API server; absent: the user registers them.
    pub register: Option<Registration>,
    /// Which of them are registered. All are served.
    pub scope: WebhookScope,
    /// The webhooks that the pod-autoscaler serves are registered, too; only where ours are registered through a service.
    pub autoscaler: bool,
    /// The client that may call them; absent: any, and requests are verified against the API before they have an effect.
    pub client: Option<WebhookClient>,
}

impl WebhookConfig {
    /// How long new connections are answered after the stop. Behind an address of its own there is no other replica that a
    /// caller could turn to.
    pub(crate) fn leave(&self) -> Duration {
        match self.register {
            Some(Registration::Url(_) | Registration::Listener) => Duration::ZERO,
            Some(Registration::Service { .. }) | None => LEAVE,
        }
    }
}

/// Which webhooks are registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookScope {
    /// Admission of VMs and migrations, and evictions.
    #[default]
    All,
    /// Evictions only: the API server admits machines and migrations itself.
    Evictions,
}

/// Where the API server finds the webhooks.
#[derive(Clone, Debug)]
pub enum Registration {
    Service {
        namespace: String,
        /// Name of the service.
        name: String,
        port: u16,
    },
    /// At an address, `https://host:port`.
    Url(String),
    /// At the very address and port that is listened on, also if the port is any that is free (0).
    Listener,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W-27: upstream takes `ns/name` for a name in `default`.
    #[test]
    fn w27_names_with_a_namespace_are_understood() {
        let names = Config::parse_names("a/b, c,,d/e/f");
        let expected = [("a", "b"), ("default", "c"), ("d", "e/f")];
        let expected: Vec<_> = expected.into_iter().map(|(ns, name)| NamespacedName::new(ns, name)).collect();
        assert_eq!(names, expected);
    }
}
