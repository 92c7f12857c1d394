//! Settings of a node.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use neonvm_types::Accelerator;

use crate::naming::Subnet;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the node.
    pub name: String,
    /// Identity of the cluster on this machine: names of namespaces, interfaces and cgroups are derived from it.
    pub cluster: String,
    /// Directory of the node; no other process writes there.
    pub data: PathBuf,
    /// How to reach the API server, with the rights of a node.
    pub kubeconfig: PathBuf,
    /// Directory of the cluster's authority (`ca.crt`, `ca.key`): signs the node's server certificate.
    pub authority: PathBuf,
    /// Where the node's server listens. None: port 10250 of the underlay address, or a free port of 127.0.0.1.
    pub listen: Option<SocketAddr>,
    /// What the node offers.
    pub capacity: Capacity,
    /// How pods are connected.
    pub network: Network,
    /// Files that runners need.
    pub machine: MachineFiles,
    /// Program that is run for `neond`; none: this program.
    pub executable: Option<PathBuf>,
    pub images: ImageConfig,
    /// First pause before a container is started again; doubles up to 30 times that. Kubernetes: 10 s.
    pub restart_pause: Duration,
}

/// What a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Thousandths of a CPU; none: all of the host.
    pub cpu_milli: Option<u64>,
    /// Bytes of memory; none: all of the host.
    pub memory: Option<u64>,
    /// Bytes of memory kept for the system; none: a tenth, at most 1 GiB, if `memory` is not given, else nothing.
    pub reserved_memory: Option<u64>,
    /// Most pods; none: 250.
    pub pods: Option<u32>,
}

/// How pods are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// A network namespace for the node and one for each pod; needs root.
    Namespaces(NamespaceNetwork),
    /// A loopback address for each pod, and user-mode networking for its machine; a single node.
    User,
}

/// Addresses of a node with namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceNetwork {
    /// Network that joins the nodes; its address .254 is the host's.
    pub underlay: Subnet,
    /// Address of the node there.
    pub address: Ipv4Addr,
    /// Network of the node's pods; its first address is the gateway.
    pub pods: Subnet,
    /// The overlay network of the cluster's machines; its first address is that of the first node.
    pub overlay: Subnet,
}

/// How many clusters on one host can have separate addresses.
pub const NETWORKS: u8 = 112;

impl NamespaceNetwork {
    /// Addresses of the `index`-th node (1 to 253) of the cluster with this number (below [`NETWORKS`]): underlay
    /// 10.90.N.0/24, pods 10.(128+N).INDEX.0/24, overlay 10.(16+N).0.0/16 (10.15.0.0/16 in place of 10.90.0.0/16). Clusters of
    /// one machine have different numbers.
    #[must_use]
    pub fn numbered(number: u8, index: u8) -> Self {
        let number = number % NETWORKS;
        Self {
            underlay: Subnet::new(Ipv4Addr::new(10, 90, number, 0), 24),
            address: Ipv4Addr::new(10, 90, number, index),
            pods: Subnet::new(Ipv4Addr::new(10, 128 + number, index, 0), 24),
            overlay: overlay(number),
        }
    }
}

/// The overlay of a cluster's machines; see [`NamespaceNetwork::numbered`].
#[must_use]
pub fn overlay(number: u8) -> Subnet {
    let second = match 16 + number % NETWORKS {
        90 => 15,
        second => second,
    };
    Subnet::new(Ipv4Addr::new(10, second, 0, 0), 16)
}

/// Files that runners need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFiles {
    /// Kernel of VMs that name none.
    pub kernel: Option<PathBuf>,
    /// Its initramfs, if it needs one.
    pub initramfs: Option<PathBuf>,
    /// Program that is put into VMs with an image that is too old to have it.
    pub guest: Option<PathBuf>,
    pub accelerator: Accelerator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// The local image store, as `neonctl vm build -t` fills it; searched before any registry.
    pub store: Option<PathBuf>,
    /// Cache of what comes from registries.
    pub cache: PathBuf,
    /// Disks taken out of images, once for each digest; shared by the nodes of a host.
    pub directory: PathBuf,
    /// Bytes of unused disks that are kept for the next pod. What is used longest ago goes first.
    pub keep: u64,
    /// Registries that may be spoken to without TLS.
    pub insecure: bool,
    /// Certificates (PEM) of authorities of registries, trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Directories of files that may be named as images, `file://PATH`. Without one such names are refused: a pod's author would read
    /// every file of the user that runs this.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// Settings of a node below a cluster's directory, without root: loopback addresses.
    #[must_use]
    pub fn new(cluster: &str, name: &str, cluster_data: &std::path::Path) -> Self {
        Self {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            data: cluster_data.join("nodes").join(name),
            kubeconfig: cluster_data.join("kubeconfig"),
            authority: cluster_data.to_path_buf(),
            listen: None,
            capacity: Capacity::default(),
            network: Network::User,
            machine: MachineFiles::default(),
            executable: None,
            images: ImageConfig {
                store: None,
                cache: cluster_data.join("image-cache"),
                directory: cluster_data.join("images"),
                keep: 20 << 30,
                insecure: false,
                ca_file: None,
                files: Vec::new(),
            },
            restart_pause: Duration::from_secs(10),
        }
    }
}
