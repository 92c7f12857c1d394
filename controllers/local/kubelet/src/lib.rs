//! A node on this machine: runs runner pods as processes, in network namespaces if it may.
//!
//! `core` decides what happens to a pod next; `pod` carries it out, one task for each pod; `volumes`, `images`,
//! `network`, `cgroup` and `process` are what a pod is made of; `server` answers what the API server passes on (logs,
//! exec, attach, port-forward); `node_object` keeps the Node and its lease; `lifecycle` removes nodes that the cluster no longer has.

mod cgroup;
mod clock;
mod config;
mod confined;
mod downward;
mod env;
mod events;
mod files;
mod images;
pub mod lifecycle;
mod mount;
pub mod naming;
mod network;
pub mod network_number;
mod node;
mod node_object;
mod objects;
mod pod;
mod probe;
mod problem;
mod process;
mod rooms;
mod runner_service;
mod server;
mod service;
mod stop;
mod storage;
mod sys;
mod volumes;

pub use config::{Capacity, Config, ImageConfig, MachineFiles, NETWORKS, NamespaceNetwork, Network, overlay};
pub use naming::Subnet;
pub use network::clean_up;
pub use network::firewall;
pub use service::run;
pub use stop::{RunningPod, running, stop_all};

/// Why a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("cannot use the API server")]
    Client(#[from] neonvm_kit::client::Error),
    /// A request to the API server was refused.
    #[error("the API server refused: {what}")]
    Api {
        /// The request that failed.
        what: &'static str,
        /// Error of the request.
        #[source]
        source: Box<kube::Error>,
    },
    /// Certificates.
    #[error("cannot make the certificate of the node")]
    Certificate(#[from] neonvm_kit::ca::Error),
    /// A file or directory.
    #[error("cannot {what} {path}")]
    File {
        /// What was tried: `create`, `read`, …
        what: &'static str,
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The network of the node.
    #[error("cannot set up the network of the node: {0}")]
    Network(String),
    /// The address of the node's server.
    #[error("cannot listen on {address}")]
    Listen {
        address: std::net::SocketAddr,
        /// Error of the socket.
        #[source]
        source: std::io::Error,
    },
    /// Settings that contradict each other.
    #[error("{0}")]
    Config(String),
    /// Part of it ended.
    #[error(transparent)]
    Task(#[from] neonvm_kit::supervise::TaskEnded),
}
