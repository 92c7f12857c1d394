//! `neond upstream-agents`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_scheduler::Forward;

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kubeconfig file [default: the pod's service account]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the scheduler's lease and of the internal authority
    #[arg(long, default_value = "neonvm-system")]
    namespace: String,
    /// Address for requests of upstream's agents, over plain HTTP and without authentication
    #[arg(long, default_value = "127.0.0.1:10299")]
    listen: SocketAddr,
    /// Address of the server for liveness and readiness probes only, for example 0.0.0.0:8081 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
    /// Longest time for an answer of the scheduler, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    request_timeout: u64,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::take_open_files();
    crate::service::run(async {
        crate::service::wait_for(args.kubeconfig.as_deref()).await?;
        let config = Forward {
            kubeconfig: args.kubeconfig.clone(),
            namespace: args.namespace.clone(),
            listen: args.listen,
            probes: args.health_probe_bind_address,
            within: Duration::from_secs(args.request_timeout),
        };
        Ok(neonvm_scheduler::forward(config, neonvm_kit::termination::requested()?).await?)
    })
}
