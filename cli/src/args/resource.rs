//! Arguments that are common to all resources of a namespace.

use super::Output;
use super::cluster::Access;
use super::names::Names;

/// Namespace and cluster of the objects.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NamespaceArgs {
    /// Namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAME", add = Names::Namespaces)]
    pub namespace: Option<String>,
    /// Access to the cluster.
    #[command(flatten)]
    pub access: Access,
}

/// Whether and how long to wait.
#[derive(Debug, Default, clap::Args)]
pub struct Waiting {
    /// Wait until the operation completes
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return as soon as the request is accepted
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait, such as 30s or 5m; exit code 6 when it expires, while the operation continues
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
}

/// Arguments of every `list`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// List across all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Label selector, such as team=db,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Sort by a column or a path
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// Whether changes are shown, where and how.
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of every command that shows objects and may follow them.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
    /// Namespace and cluster.
    #[command(flatten)]
    pub place: NamespaceArgs,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}
