//! Commands about a whole cluster or machine.

use std::path::PathBuf;

use super::Output;

/// How to reach a cluster.
#[derive(Debug, Default, clap::Args)]
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
#[command(after_help = "Examples:\n  neonctl status\n  neonctl status --context staging -o json")]
pub struct Status {
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl doctor --local")]
pub struct Doctor {
    /// Probe this machine, as a place for local clusters
    #[arg(long, required = true)]
    pub local: bool,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
