//! `uninstall`

use super::Showing;

/// `uninstall`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl uninstall\n  neonctl uninstall --purge production\n\n\
                  Custom resource definitions and certificate authorities are kept, so that a later installation can use them. \
                  --purge removes them, and thereby every migration, address pool and autoscaler.")]
pub struct Uninstall {
    /// Namespace of the services [default: neonvm-system]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Also remove definitions, authorities and the namespace; the name of the cluster in the kubeconfig confirms it
    #[arg(long, value_name = "CLUSTER-NAME")]
    pub purge: Option<String>,
    /// Time to wait for the services to end, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub timeout: String,
    /// Progress output.
    #[command(flatten)]
    pub showing: Showing,
}
