//! `neond agent`

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use neonvm_agent::{AgentConfig, Config};

/// Flags. The variables of the environment are those of upstream's agent.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    service: crate::service::ServiceArgs,
    /// Node whose VMs are scaled
    #[arg(long, env = "K8S_NODE_NAME")]
    node: String,
    /// Configuration file, JSON [default: the configuration of the installation]
    #[arg(long, env = "CONFIG_PATH")]
    config: Option<PathBuf>,
    /// Whether a scheduler permits sizes. Without one, each kubelet permits by resizing the VM's pod; there are no watermarks and
    /// no migrations away from a full node
    #[arg(long, value_name = "BOOL", require_equals = true, default_value_t = true, action = clap::ArgAction::Set)]
    scheduler: bool,
    /// Address of the server for `neonctl agent inspect`; port 0: a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of this pod that is published to clients
    #[arg(long, env = "K8S_POD_IP")]
    pod_ip: Option<IpAddr>,
    /// Address of the server for the metrics of each VM
    #[arg(long)]
    vm_metrics_bind_address: Option<SocketAddr>,
    /// Address of the server for the dump of the state, with plain HTTP and without authentication: GET / with the body {}
    /// [default: port dumpState.port of the configuration file on 127.0.0.1, or nowhere]
    #[arg(long)]
    dump_state_bind_address: Option<SocketAddr>,
    /// Directory in which the history of each VM is kept for `neonctl vm history`: at most 1 MiB for each VM and 256 MiB in all,
    /// for 7 days [default: none is kept]
    #[arg(long, value_name = "DIR")]
    history_dir: Option<PathBuf>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::take_open_files();
    // Before any wait, so that an error in the file is reported at once.
    let (mut agent, idle) = args.config.as_deref().map(AgentConfig::read).transpose()?.unwrap_or_default();
    agent.scheduler.none |= !args.scheduler;
    crate::service::run(async {
        for key in idle {
            tracing::warn!(key, "a key of the configuration file has no effect");
        }
        args.service.wait().await?;
        let config = Config {
            kubeconfig: args.service.kubeconfig.clone(),
            node: args.node.clone(),
            namespace: args.service.namespace.clone(),
            identity: args.service.identity(),
            listen: args.listen,
            pod_ip: args.pod_ip,
            metrics: args.service.metrics_bind_address,
            dump_state: args.dump_state_bind_address,
            probes: args.service.health_probe_bind_address,
            vm_metrics: args.vm_metrics_bind_address,
            history: args.history_dir.clone(),
            agent,
        };
        Ok(neonvm_agent::run(config, neonvm_kit::termination::requested()?).await?)
    })
}
