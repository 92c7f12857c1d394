//! `neond node`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use neonvm_api::{Policy, Power};
use neonvm_node::devices::{self, offer::Kvm};
use neonvm_node::service::{self, Cgroups, Cluster, Paths, Service};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kubeconfig file [default: the pod's service account]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Name of this node
    #[arg(long, env = "K8S_NODE_NAME")]
    node: String,
    /// Directory for the socket that runner pods get; the same path on the node and here
    #[arg(long, default_value = "/run/neonvm/node")]
    socket_directory: PathBuf,
    /// Directory in which the kubelet listens for device plugins
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_directory: PathBuf,
    /// Path of the node's /dev
    #[arg(long, default_value = "/dev")]
    devices: PathBuf,
    /// Path of the node's /proc/sys/net, where IPv6 is forwarded for the pods of VMs
    #[arg(long, default_value = "/proc/sys/net")]
    network_parameters: PathBuf,
    /// Path of the node's cgroups, where the threads of vCPUs are held to a part of a CPU
    #[arg(long, default_value = "/sys/fs/cgroup")]
    cgroups: PathBuf,
    /// Accelerator of VMs: auto (KVM if the node has it, else emulation), kvm (only nodes with KVM
    /// run VMs) or tcg (emulation)
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accelerator: String,
    /// Powers that authors of VMs have in all namespaces, as for the vm-controller; only node-access matters here
    #[arg(long, value_delimiter = ',')]
    allow: Vec<Power>,
    /// Address of the server for liveness and readiness probes only, for example 0.0.0.0:8082 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
}

/// Path of a namespace of the node: that of its first process or, on nodes where no process may look at that one, of the kernel's own
/// process, which is in the same namespaces.
fn of_node(kind: &str) -> PathBuf {
    let first = PathBuf::from(format!("/proc/1/ns/{kind}"));
    let has_kernel = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim_end() == "kthreadd");
    if has_kernel && std::fs::read_link(&first).is_err() {
        return format!("/proc/2/ns/{kind}").into();
    }
    first
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let kvm = match args.accelerator.as_str() {
        "kvm" => Kvm::Require,
        "tcg" => Kvm::Never,
        _ => Kvm::Auto,
    };
    let config = devices::Config {
        directory: args.kubelet_directory.clone(),
        devices: args.devices.clone(),
        sockets: args.socket_directory.clone(),
        kvm,
        probes: args.health_probe_bind_address,
    };
    crate::service::run(async {
        let client = neonvm_kit::client::connect(args.kubeconfig.as_deref()).await?;
        let directory = &args.socket_directory;
        let listener = service::listen(directory);
        let listener = listener.with_context(|| format!("cannot listen in {}", directory.display()))?;
        let node = Arc::new(Service {
            pods: Cluster { client: client.clone(), node: args.node.clone() },
            client,
            policy: Policy { allowed: args.allow.iter().copied().collect(), ..Policy::default() },
            paths: Paths {
                tun: args.devices.join("net/tun"),
                parameters: args.network_parameters.clone(),
                own_namespace: Some(of_node("net")),
                cgroups: Cgroups {
                    root: args.cgroups.clone(),
                    namespace: Some(of_node("cgroup")),
                    as_caller: false,
                },
            },
        });
        // Nothing is offered to pods before the socket is there.
        let plugin = devices::run(config, neonvm_kit::termination::requested()?);
        tokio::select! {
            ended = plugin => Ok(ended?),
            error = service::serve(node, listener) => Err(error).context("the socket for runners failed"),
        }
    })
}
