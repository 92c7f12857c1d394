//! Commands about a whole cluster or machine.

use std::path::PathBuf;

use super::Output;

/// How to reach a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Access {
    /// File for access to the cluster; else $KUBECONFIG, else ~/.kube/config, else the pod's own account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Time for one request, such as 500ms, 30s or 5m
    #[arg(long, value_name = "DURATION")]
    pub request_timeout: Option<String>,
}

/// `status`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl status\n  neonctl status --context staging -o json\n\n\
                  A service is judged by its pods, its lease, and what it has done. What may not be read is reported with the \
                  right that is missing. Exit code 7: something is not well.")]
pub struct Status {
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `doctor`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl doctor\n  neonctl doctor --local\n  neonctl doctor --local --cluster -o json\n  neonctl doctor --node n2"
)]
pub struct Doctor {
    /// Probe this machine, as a place for local clusters
    #[arg(long)]
    pub local: bool,
    /// Probe the cluster that the kubeconfig names; so it is without --local
    #[arg(long)]
    pub cluster: bool,
    /// Of the cluster, only this node and what is on it
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Namespace of the services [default: where they are installed]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

impl Doctor {
    /// Whether the cluster is probed: by `--cluster`, by a flag that names a part of it, or because `--local` is absent.
    #[must_use]
    pub fn of_cluster(&self) -> bool {
        let named = self.node.is_some()
            || self.namespace.is_some()
            || self.access.kubeconfig.is_some()
            || self.access.context.is_some();
        self.cluster || named || !self.local
    }
}
