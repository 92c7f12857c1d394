//! Makes a guest's network in the network namespace of its pod, and the sockets that the runner needs there.

mod forwarding;
mod link;
mod namespace;
mod nft;
mod overlay;
mod program;
mod resolver;
mod sockets;
mod traffic;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use neonvm_types::node_protocol::{Link, Traffic};

pub(crate) use namespace::Namespace;
pub use overlay::{Addresses, Overlay, join};
pub use sockets::copies;

use crate::cpu::Cgroups;
use crate::decision::Order;
use program::run;

/// Where the node's files are for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The file that makes tap devices, usually `/dev/net/tun`.
    pub tun: PathBuf,
    /// The node's `/proc/sys/net`.
    pub parameters: PathBuf,
    /// The node's own network namespace, which no guest is connected to; `None`: the callers have other ones in any case.
    pub own_namespace: Option<PathBuf>,
    pub cgroups: Cgroups,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            tun: "/dev/net/tun".into(),
            parameters: "/proc/sys/net".into(),
            own_namespace: None,
            cgroups: Cgroups::default(),
        }
    }
}

/// Why a network cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the system.
    #[error("{what}: {source}")]
    System {
        what: String,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A tap device.
    #[error("{0}")]
    Tap(std::io::Error),
    /// A program.
    #[error("{program} failed: {output}")]
    Program { program: &'static str, output: String },
    /// A program that does not end.
    #[error("{program} did not end within 10 s")]
    Hangs { program: &'static str },
    /// There is nothing to connect the guest to.
    #[error(
        "the pod has no network interface with a default route or an address; a runner needs one to connect its guest"
    )]
    NoInterface,
    /// The overlay is not in the pod.
    #[error(
        "spec.extraNetwork: the pod has no interface {interface}; it comes from the network attachment of the pod, which on a cluster \
         Multus makes"
    )]
    NoOverlay { interface: String },
    /// The rules have no counters.
    #[error("the traffic of this guest is not counted")]
    NotCounted,
    /// The pod's network is the node's.
    #[error("the pod has the network of its node (hostNetwork): a VM needs one of its own")]
    HostNetwork,
}

impl Error {
    fn system(what: &str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let what = what.to_owned();
        move |source| Self::System { what, source }
    }
}

/// The interfaces of the pod, each with its greatest packet.
pub type Interfaces = BTreeMap<String, u16>;

/// The interfaces of the network namespace of this thread.
///
/// # Errors
/// If `ip` fails.
pub fn interfaces() -> Result<Interfaces, Error> {
    // Not from `/sys`: what is mounted there may be of another network namespace.
    Ok(run("ip", &["-o", "link", "show"], "")?.lines().filter_map(interface).collect())
}

/// `3: eth0@if4: <…> mtu 1450 …`
fn interface(line: &str) -> Option<(String, u16)> {
    let name = line.split(": ").nth(1)?.split('@').next()?.to_owned();
    let mut words = line.split_whitespace().skip_while(|word| *word != "mtu");
    // That of the loopback interface, 65536, is of no use here.
    Some((name, words.nth(1)?.parse().ok()?))
}

/// Makes what was ordered. The files of the answer are in its order.
pub(crate) fn make(namespace: Namespace, order: Order, paths: Paths) -> Result<(Link, Vec<OwnedFd>), Error> {
    let resolver = namespace.resolver();
    namespace.inside(move || link::make(&order, resolver, &paths))
}

/// Reads the counters of the guest's traffic.
pub(crate) fn traffic(namespace: Namespace) -> Result<Traffic, Error> {
    namespace.inside(traffic::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_packets_is_that_of_the_pod() {
        let line = "2: eth0@if6: <UP> mtu 1440 qdisc noqueue\\    link/ether";
        assert_eq!(interface(line), Some(("eth0".to_owned(), 1440)));
        assert_eq!((interface("nonsense mtu"), interface("1: lo: <> mtu 65536 x")), (None, None));
    }
}
