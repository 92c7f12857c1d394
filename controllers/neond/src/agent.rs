//! `neond agent`

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use neonvm_agent::{AgentConfig, Config};

/// Flags. The variables of the environment are those of upstream's agent.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// File for access to the cluster; absent: the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Node whose VMs are scaled
    #[arg(long, env = "K8S_NODE_NAME")]
    node: String,
    /// Configuration file, JSON [default: what deployments ship]
    #[arg(long, env = "CONFIG_PATH")]
    config: Option<PathBuf>,
    /// Whether a scheduler permits sizes; without one each kubelet does, by resizing the VM's pod, and there are neither watermarks nor
    /// migrations away from a full node
    #[arg(long, value_name = "BOOL", require_equals = true, default_value_t = true, action = clap::ArgAction::Set)]
    scheduler: bool,
    /// Namespace of the services
    #[arg(long, default_value = "neonvm-system")]
    namespace: String,
    /// Name of this replica in the lease of the node [default: the host's name and the process]
    #[arg(long)]
    identity: Option<String>,
    /// Where `neonctl agent inspect` is answered; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of this pod, under which others reach it
    #[arg(long, env = "K8S_POD_IP")]
    pod_ip: Option<IpAddr>,
    /// Where metrics of the agent are served
    #[arg(long)]
    metrics_bind_address: Option<SocketAddr>,
    /// Where metrics of each VM are served
    #[arg(long)]
    vm_metrics_bind_address: Option<SocketAddr>,
    /// Where liveness and readiness probes are answered, and nothing else, for example 0.0.0.0:8081 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Before any wait, so that an error in the file is reported at once.
    let mut agent = args.config.as_deref().map(AgentConfig::read).transpose()?.unwrap_or_default();
    agent.scheduler.none |= !args.scheduler;
    crate::service::run(async {
        crate::service::wait_for(args.kubeconfig.as_deref()).await?;
        let config = Config {
            kubeconfig: args.kubeconfig.clone(),
            node: args.node.clone(),
            namespace: args.namespace.clone(),
            identity: args.identity.clone().unwrap_or_else(crate::service::identity),
            listen: args.listen,
            pod_ip: args.pod_ip,
            metrics: args.metrics_bind_address,
            probes: args.health_probe_bind_address,
            vm_metrics: args.vm_metrics_bind_address,
            agent,
        };
        Ok(neonvm_agent::run(config, crate::service::stop()?).await?)
    })
}
