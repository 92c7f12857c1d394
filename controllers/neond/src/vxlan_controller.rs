//! `neond vxlan-controller`

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_api::overlay;
use neonvm_vxlan_controller::{Config, Encryption};

/// What packets between nodes are protected by.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Protection {
    /// None: anyone with access to the network path can read and change the frames
    None,
    /// WireGuard of the node's kernel
    Wireguard,
}

/// Flags. The variables of the environment are those of upstream's controller.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// File for access to the cluster; absent: the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Name of the node
    #[arg(long, env = "K8S_NODE_NAME")]
    node: String,
    /// Address of the node that tunnels start from [default: the internal address in its object]
    #[arg(long, env = "MY_NODE_IP")]
    address: Option<IpAddr>,
    /// Network namespace of the node: a name below /run/netns, or a path [default: that of the process]
    #[arg(long)]
    netns: Option<PathBuf>,
    /// Bridge that pods are joined to
    #[arg(long, default_value = overlay::BRIDGE)]
    bridge: String,
    /// The tunnel
    #[arg(long, default_value = overlay::TUNNEL)]
    tunnel: String,
    /// Number of the virtual network
    #[arg(long, default_value_t = overlay::VNI, value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    vni: u32,
    /// UDP port
    #[arg(long, default_value_t = overlay::PORT)]
    port: u16,
    /// Addresses of the overlay: packets between them are never translated
    #[arg(long, default_value = overlay::RANGE)]
    range: String,
    /// Address of the node itself on the overlay: who reaches the node reaches the machines through it [default: none]
    #[arg(long)]
    gateway: Option<IpAddr>,
    /// What packets between nodes are protected by. All nodes must agree: those without a key are not reached. The MTU of the overlay
    /// is 80 bytes smaller with wireguard
    #[arg(long, value_enum, default_value_t = Protection::None)]
    encryption: Protection,
    /// UDP port of the encryption, open between nodes
    #[arg(long, default_value_t = neonvm_vxlan_controller::ENCRYPTION_PORT)]
    encryption_port: u16,
    /// Namespace of the services, where nodes publish their keys
    #[arg(long, default_value = SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// Where metrics and health are served
    #[arg(long)]
    metrics_bind_address: Option<SocketAddr>,
    /// Where liveness and readiness probes are answered, and nothing else, for example 0.0.0.0:8081 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
    /// Remove what a controller with these flags makes, and end
    #[arg(long)]
    delete: bool,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let config = config(args)?;
    if args.delete {
        return Ok(neonvm_vxlan_controller::delete(&config)?);
    }
    crate::service::run(async {
        crate::service::wait_for(args.kubeconfig.as_deref()).await?;
        // A node that is started at the same time makes it.
        crate::service::wait_for(config.namespace.as_deref()).await?;
        Ok(neonvm_vxlan_controller::run(config, crate::service::stop()?).await?)
    })
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let named = |name: &PathBuf| Path::new("/run/netns").join(name);
    Ok(Config {
        kubeconfig: args.kubeconfig.clone(),
        address: args.address,
        namespace: args.netns.as_ref().map(named),
        bridge: args.bridge.clone(),
        tunnel: args.tunnel.clone(),
        vni: args.vni,
        port: args.port,
        range: args.range.parse().with_context(|| format!("--range {}", args.range))?,
        gateway: args.gateway,
        encryption: match args.encryption {
            Protection::None => Encryption::None,
            Protection::Wireguard => Encryption::Wireguard,
        },
        encryption_port: args.encryption_port,
        system_namespace: args.system_namespace.clone(),
        metrics: args.metrics_bind_address,
        probes: args.health_probe_bind_address,
        ..Config::new(&args.node)
    })
}
