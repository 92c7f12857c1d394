//! Arguments that are common to all resources of a namespace.

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
    /// Label selector, such as team=db,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Sort by a column or a path
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
}
