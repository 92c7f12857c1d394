//! Which addresses endpoints may have. Pure.
//!
//! The author of a `PodAutoscaler` names endpoints that this service connects to from where it runs. Addresses that only the
//! service can reach must be refused: those of [`neonvm_core_overlay::closed`], kubelets, the network of Services with the API server
//! in it. The check is made on the very address that is connected to, so a name that resolves to another one later changes
//! nothing.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use neonvm_core_overlay::closed::{self, KUBELET_PORTS};

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.96.0.0/12 or fd00::/108, nor an address")]
pub struct NotANetwork(String);

impl FromStr for Network {
    type Err = NotANetwork;

    /// Reads `ADDRESS/PREFIX`, or an address, which is a network of one.
    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let of_one = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
        text.parse().ok().or_else(of_one).map(Self).ok_or_else(|| NotANetwork(text.to_owned()))
    }
}

impl Network {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

/// What is refused and what is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    allowed: Vec<Network>,
    refused: Vec<Network>,
}

impl Policy {
    /// With networks that an administrator allows, which wins, and those of Services.
    pub(crate) fn new(allowed: &[Network], services: &[Network]) -> Self {
        let fixed = closed::NETWORKS.iter().filter_map(|text| text.parse().ok());
        Self { allowed: allowed.to_vec(), refused: fixed.chain(services.iter().copied()).collect() }
    }

    /// Whether an endpoint may be here.
    pub(crate) fn permits(&self, endpoint: SocketAddr) -> bool {
        let within = |networks: &[Network], form| networks.iter().any(|network| network.contains(form));
        let is_kubelet = KUBELET_PORTS.contains(&endpoint.port());
        let permitted =
            |form: &IpAddr| within(&self.allowed, *form) || (!is_kubelet && !within(&self.refused, *form));
        closed::forms(endpoint.ip()).iter().all(permitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn permits(policy: &Policy, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let at = |port| policy.permits(SocketAddr::new(address, port));
        assert!(
            !at(10250) && !at(10255) || policy.allowed.iter().any(|net| net.contains(address)),
            "{address}"
        );
        at(9100)
    }

    #[test]
    fn every_network_that_is_refused_can_be_read() {
        let policy = Policy::new(&[], &[]);
        assert_eq!(policy.refused.len(), closed::NETWORKS.len());
    }

    #[test]
    fn what_is_reached_from_here_alone_is_refused_in_every_spelling() {
        let policy = Policy::new(&[], &networks(&["10.96.0.0/12", "fd00:10:96::/112"]));
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "10.96.0.1",
            "10.111.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:10:96::a",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.96.0.1",
            "::127.0.0.1",
            "::a9fe:a9fe",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "::ffff:0:169.254.169.254",
            "2001:0:808:808:8000:1:5601:5601",
        ] {
            assert!(!permits(&policy, address), "{address}");
        }
    }

    #[test]
    fn pods_nodes_and_the_rest_of_the_world_are_permitted() {
        let policy = Policy::new(&[], &networks(&["10.96.0.0/12"]));
        for address in [
            "10.95.255.255",
            "10.112.0.0",
            "10.244.1.7",
            "192.168.1.10",
            "172.18.0.2",
            "100.64.0.1",
            "8.8.8.8",
            "2001:db8::1",
            "fd00::1",
            "::ffff:10.244.1.7",
            "64:ff9b::8.8.8.8",
        ] {
            assert!(permits(&policy, address), "{address}");
        }
    }

    #[test]
    fn what_an_administrator_allows_wins() {
        let policy =
            Policy::new(&networks(&["127.64.0.0/10", "10.96.0.10", "::1"]), &networks(&["10.96.0.0/12"]));
        for (address, is_permitted) in [
            ("127.64.0.1", true),
            ("::ffff:127.127.255.255", true),
            ("127.63.255.255", false),
            ("127.128.0.0", false),
            ("10.96.0.10", true),
            ("10.96.0.11", false),
            ("::1", true),
            ("::", false),
        ] {
            assert_eq!(permits(&policy, address), is_permitted, "{address}");
        }
        assert!(permits(&Policy::new(&networks(&["0.0.0.0/0"]), &[]), "127.0.0.1"));
    }

    #[test]
    fn networks_are_read_strictly() {
        for text in [
            "",
            "a",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "/8",
            "::/129",
            "10.0.0/8",
            "1.2.3.4/8/8",
        ] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.to_string().contains("10.96.0.0/12"), "{text}");
        }
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains([1, 2, 3, 4].into()));
        assert!(!"0.0.0.0/0".parse::<Network>().unwrap().contains(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)));
    }
}
