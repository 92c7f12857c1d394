//! `neond kubelet`

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use neonvm_kubelet::{Config, NamespaceNetwork, Network};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the node
    #[arg(long)]
    name: String,
    /// Number of the node in the cluster, from 1; its addresses are derived from it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=253))]
    index: u8,
    /// Number of the cluster on this host; its addresses are derived from it
    #[arg(long, default_value_t = 0)]
    network_number: u8,
    /// Directory of the cluster: kubeconfig, authority, nodes
    #[arg(long)]
    cluster_dir: PathBuf,
    /// Kubeconfig file [default: kubeconfig in the cluster's directory]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Address of the kubelet's server
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Use loopback addresses and user-mode networking instead of network namespaces
    #[arg(long)]
    user_network: bool,
    /// Allocatable CPUs, in thousandths [default: those of this host]
    #[arg(long)]
    cpu_milli: Option<u64>,
    /// Allocatable memory, in bytes [default: that of this host, without a reserve]
    #[arg(long)]
    memory: Option<u64>,
    /// Accelerator of VMs: auto, kvm or tcg
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accel: String,
    /// Directory of kernels; VMs use its default kernel
    #[arg(long)]
    kernels: Option<PathBuf>,
    /// Guest program for VMs whose disk has an older one
    #[arg(long)]
    guest: Option<PathBuf>,
    /// Local image store
    #[arg(long)]
    image_store: Option<PathBuf>,
    /// Cache of layers from registries
    #[arg(long)]
    image_cache: Option<PathBuf>,
    /// Allow registries without TLS
    #[arg(long)]
    insecure_registries: bool,
    /// Certificate authority (PEM) of registries to trust in addition to those of the system
    #[arg(long, value_name = "FILE")]
    registry_ca_file: Option<PathBuf>,
    /// Directory of files that VMs may name as images, file://PATH; may be repeated
    #[arg(long, value_name = "DIR")]
    image_files: Vec<PathBuf>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::close_files();
    crate::service::run(async {
        let config = config(args)?;
        crate::service::wait_for(Some(&config.kubeconfig)).await?;
        Ok(neonvm_kubelet::run(config, neonvm_kit::termination::requested()?).await?)
    })
}

/// What the names of everything that a cluster makes on this machine are derived from.
pub(crate) fn identity(directory: &std::path::Path) -> String {
    let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
    path.display().to_string()
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let cluster = identity(&args.cluster_dir);
    let mut config = Config::new(&cluster, &args.name, &args.cluster_dir);
    if let Some(kubeconfig) = &args.kubeconfig {
        config.kubeconfig.clone_from(kubeconfig);
    }
    config.listen = args.listen;
    config.executable = Some(crate::runner_program()?);
    config.capacity.cpu_milli = args.cpu_milli;
    config.capacity.memory = args.memory;
    if !args.user_network {
        config.network = Network::Namespaces(NamespaceNetwork::numbered(args.network_number, args.index));
    }
    config.machine.accelerator = args.accel.parse().map_err(anyhow::Error::msg)?;
    config.machine.guest.clone_from(&args.guest);
    // The link to the default kernel: one that is fetched later is used by the next machine.
    config.machine.kernel = args.kernels.as_ref().map(|directory| directory.join("default/vmlinux"));
    config.images.store.clone_from(&args.image_store);
    if let Some(cache) = &args.image_cache {
        config.images.cache.clone_from(cache);
    }
    config.images.insecure = args.insecure_registries;
    config.images.ca_file.clone_from(&args.registry_ca_file);
    config.images.files.clone_from(&args.image_files);
    anyhow::Ok(config).context("flags")
}
