//! Commands about a whole cluster or host.

use std::path::PathBuf;

use super::Output;
use super::names::Names;

/// How to reach a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Access {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", add = Names::Contexts)]
    pub context: Option<String>,
    /// Act as this user, which needs the right to impersonate; a service account is system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Act as a member of this group; can be repeated, requires --as
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    pub as_group: Vec<String>,
    /// Timeout of one request, such as 500ms, 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
}

/// `status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl status\n  neonctl status --context staging -o json\n\n\
                  The status of a service follows from its pods, its lease and its recent work. Data that this user may not \
                  read is reported with the missing permission. Exit code 7: a component is unhealthy, or no service is installed.")]
pub struct Status {
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Access to the cluster.
    #[command(flatten)]
    pub access: Access,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
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
    /// Access to the cluster.
    #[command(flatten)]
    pub access: Access,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

impl Doctor {
    /// Whether to check the cluster: with `--cluster`, with a flag that names a part of it, or without `--local`.
    #[must_use]
    pub fn of_cluster(&self) -> bool {
        let named = self.node.is_some()
            || self.namespace.is_some()
            || self.access.kubeconfig.is_some()
            || self.access.context.is_some();
        self.cluster || named || !self.local
    }
}
