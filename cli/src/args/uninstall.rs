//! `uninstall`

use super::cluster::Access;
use super::{Output, Showing};

/// `uninstall`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl uninstall\n  neonctl uninstall --purge production\n\n\
                  Definitions and the certificate authorities stay, so that a later installation takes up where this one ended. \
                  --purge removes them, and with them every migration, address pool and autoscaler.")]
pub struct Uninstall {
    /// Namespace of the services [default: neonvm-system]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Remove definitions, authorities and the namespace, too; for safety with the name of the cluster in the kubeconfig
    #[arg(long, value_name = "CLUSTER-NAME")]
    pub purge: Option<String>,
    /// Time for the services to end, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub timeout: String,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
    /// How progress is shown.
    #[command(flatten)]
    pub showing: Showing,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}
