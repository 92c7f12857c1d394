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
    /// No encryption: anyone with access to the network path can read and change the frames
    None,
    /// WireGuard of the node's kernel
    Wireguard,
}

/// Flags. The variables of the environment are those of upstream's controller.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kubeconfig file [default: the pod's service account]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Name of the node
    #[arg(long, env = "K8S_NODE_NAME")]
    node: String,
    /// Address of the node for tunnels [default: the internal address in its object]
    #[arg(long, env = "MY_NODE_IP")]
    address: Option<IpAddr>,
    /// Network namespace of the node: a name below /run/netns, or a path [default: that of the process]
    #[arg(long)]
    netns: Option<PathBuf>,
    /// Name of the bridge of pods
    #[arg(long, default_value = overlay::BRIDGE)]
    bridge: String,
    /// Name of the tunnel interface
    #[arg(long, default_value = overlay::TUNNEL)]
    tunnel: String,
    /// VXLAN network identifier
    #[arg(long, default_value_t = overlay::VNI, value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    vni: u32,
    /// UDP port of the tunnel
    #[arg(long, default_value_t = overlay::PORT)]
    port: u16,
    /// Networks of the overlay: packets between them are not translated
    #[arg(long, default_value = overlay::RANGE)]
    range: String,
    /// Overlay address of the node; clients that reach the node reach the VMs through it [default: none]
    #[arg(long)]
    gateway: Option<IpAddr>,
    /// Encryption of packets between nodes, the same on all nodes: a node without a key is not reachable. The MTU of the overlay
    /// is 80 bytes smaller with wireguard
    #[arg(long, value_enum, default_value_t = Protection::None)]
    encryption: Protection,
    /// UDP port of WireGuard, open between nodes
    #[arg(long, default_value_t = neonvm_vxlan_controller::ENCRYPTION_PORT)]
    encryption_port: u16,
    /// Namespace of the services, where nodes publish their keys
    #[arg(long, default_value = SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// Address of the server for metrics and health; the IP address may be one of IPv6 without brackets, such as
    /// $(MY_NODE_IP):10303 of a manifest [default: nowhere]
    #[arg(long, value_parser = socket_address)]
    metrics_bind_address: Option<SocketAddr>,
    /// Address of the server for liveness and readiness probes only, for example 0.0.0.0:8081 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
    /// Remove what a controller with these flags creates, and exit
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
        Ok(neonvm_vxlan_controller::run(config, neonvm_kit::termination::requested()?).await?)
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

/// An IP address and a port. A manifest has no brackets for an address that may be one of IPv6: what follows the last colon is the port.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let bare = || {
        let (ip, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    };
    let parsed = text.parse().ok().or_else(bare);
    parsed.ok_or_else(|| "it is not ADDRESS:PORT, such as 10.0.0.1:10303 or [fd00::1]:10303".to_owned())
}

#[cfg(test)]
mod tests {
    use super::socket_address;

    #[test]
    fn addresses_of_nodes_need_no_brackets() {
        for (text, expected) in [
            ("10.0.0.1:10303", "10.0.0.1:10303"),
            ("[fd00::1]:10303", "[fd00::1]:10303"),
            ("fd00::1:10303", "[fd00::1]:10303"),
            ("2001:db8:0:1:2:3:4:5:10303", "[2001:db8:0:1:2:3:4:5]:10303"),
        ] {
            assert_eq!(socket_address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for text in ["", ":10303", "10.0.0.1", "10.0.0.1:70000", "node:10303", "fd00::", "[fd00::1]"] {
            assert!(socket_address(text).is_err(), "{text}");
        }
    }
}
