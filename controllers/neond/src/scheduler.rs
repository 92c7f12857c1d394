//! `neond scheduler`

use std::path::PathBuf;

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// File for access to the cluster; absent: the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    crate::service::run(async {
        crate::service::wait_for(args.kubeconfig.as_deref()).await?;
        let config = neonvm_scheduler::Config { kubeconfig: args.kubeconfig.clone() };
        Ok(neonvm_scheduler::run(config, crate::service::stop()?).await?)
    })
}
