//! Commands about a whole cluster or host.

use super::names::Names;

/// `status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl status\n  neonctl status --context staging -o json\n\n\
                  The status of a service follows from its pods, its lease and its recent work. Data that this user may not \
                  read is reported with the missing permission. Exit code 7: a component is unhealthy, or no service is installed.")]
pub struct Status {
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// `doctor`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl doctor\n  neonctl doctor --local\n  neonctl doctor --local --cluster -o json\n  \
                  neonctl doctor --node n2"
)]
pub struct Doctor {
    /// Check this host, as a host of local clusters
    #[arg(long)]
    pub local: bool,
    /// Check the cluster of the kubeconfig; this is the default without --local
    #[arg(long)]
    pub cluster: bool,
    /// Check only this node of the cluster and the objects on it
    #[arg(long, value_name = "NAME", add = Names::Nodes)]
    pub node: Option<String>,
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}
