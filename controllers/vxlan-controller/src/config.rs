//! How a controller is started.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_api::overlay;
use neonvm_core_overlay::{Net, encryption};

/// What the packets between nodes are protected by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// None: anyone with access to the network path can read and change the frames.
    #[default]
    None,
    /// WireGuard. Nodes that have published no key are not reached.
    Wireguard,
}

/// How a controller is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Kubeconfig file; absent: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    pub node: String,
    /// Address of the node that tunnels start from; absent: the internal address in its object.
    pub address: Option<IpAddr>,
    /// Network namespace of the node, a file such as `/run/netns/NAME`; absent: that of the process. The API server is
    /// always spoken to from there.
    pub namespace: Option<PathBuf>,
    /// Longest wait for that of a node that is just being set up.
    pub namespace_wait: Duration,
    /// Bridge that pods are joined to; at most 15 characters.
    pub bridge: String,
    /// The tunnel; at most 15 characters.
    pub tunnel: String,
    /// Number of the virtual network, 24 bits.
    pub vni: u32,
    pub port: u16,
    /// Addresses of the overlay: packets between them are never translated.
    pub range: Net,
    /// Address of the node itself on the overlay, within the range: clients that reach the node reach the VMs through
    /// it.
    pub gateway: Option<IpAddr>,
    /// What the packets between nodes are protected by.
    pub encryption: Encryption,
    pub encryption_port: u16,
    /// Namespace of the services, where keys are published.
    pub system_namespace: String,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are answered, and nothing else; absent: nowhere.
    pub probes: Option<SocketAddr>,
}

impl Config {
    /// The usual names and numbers.
    #[must_use]
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            kubeconfig: None,
            node: node.into(),
            address: None,
            namespace: None,
            namespace_wait: Duration::from_secs(30),
            bridge: overlay::BRIDGE.to_owned(),
            tunnel: overlay::TUNNEL.to_owned(),
            vni: overlay::VNI,
            port: overlay::PORT,
            range: default_range(),
            gateway: None,
            encryption: Encryption::None,
            encryption_port: encryption::PORT,
            system_namespace: SYSTEM_NAMESPACE.to_owned(),
            metrics: None,
            probes: None,
        }
    }

    /// Rejects settings that cannot work; the error is the reason.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, name) in [("bridge", &self.bridge), ("tunnel", &self.tunnel)] {
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '"' | ':' | '%');
            if name.is_empty() || name.len() > 15 || !name.chars().all(plain) || name.starts_with('.') {
                return Err(format!("{what}: {name:?} cannot name an interface"));
            }
        }
        if self.bridge == self.tunnel {
            return Err(format!("bridge and tunnel are both {:?}", self.bridge));
        }
        for (what, name) in [("bridge", &self.bridge), ("tunnel", &self.tunnel)] {
            if name == crate::wireguard::LINK {
                return Err(format!("{what}: {name} is the name of the interface of WireGuard"));
            }
        }
        if self.encryption == Encryption::Wireguard && self.encryption_port == self.port {
            return Err(format!("port and encryption port are both {}", self.port));
        }
        if self.vni >= 1 << 24 {
            return Err(format!("VNI {}: the largest is 16777215", self.vni));
        }
        if let Some(gateway) = self.gateway.filter(|gateway| !self.range.contains(*gateway)) {
            return Err(format!("gateway: {gateway} is not in {}", self.range));
        }
        if self.node.is_empty() {
            return Err("the name of the node is empty".to_owned());
        }
        Ok(())
    }
}

fn default_range() -> Net {
    let first = IpAddr::from([10, 100, 0, 0]);
    // Cannot fail: a test parses the constant.
    overlay::RANGE.parse().unwrap_or_else(|_| Net::new(first, 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let good = Config::new("n1");
        assert_eq!((good.check(), good.range.to_string()), (Ok(()), overlay::RANGE.to_owned()));
        let bad = [
            Config { bridge: "sixteen-letters-".into(), ..good.clone() },
            Config { tunnel: "a b".into(), ..good.clone() },
            Config { tunnel: good.bridge.clone(), ..good.clone() },
            Config { vni: 1 << 24, ..good.clone() },
            Config { bridge: "neon-wg0".into(), ..good.clone() },
            Config { encryption: Encryption::Wireguard, encryption_port: good.port, ..good.clone() },
            Config { node: String::new(), ..good },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }
}
