//! `top`

use super::Output;
use super::cluster::Access;
use super::vm::Place;

/// What is used, again and again.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// What virtual machines use of what they have
    #[command(alias = "vm")]
    Vms(Vms),
    /// What of each node is given away to machines and pods
    #[command(alias = "node")]
    Nodes(Nodes),
}

impl Command {
    pub(super) fn output(&self) -> &Output {
        match self {
            Self::Vms(args) => &args.repeat.output,
            Self::Nodes(args) => &args.repeat.output,
        }
    }
}

/// How often, in which order, in which form.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Repeat {
    /// Time between two looks, such as 500ms or 2s
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub interval: String,
    /// Look once and end
    #[arg(long)]
    pub once: bool,
    /// Column to sort by, the largest number first [default: use of CPU]
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `top vms`
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl top vms\n  neonctl top vms --once -A --sort-by mem-use\n  neonctl top vms --interval 1s -o json\n\n\
                  STEAL and THROTTLED are shares of the time of the machine's CPUs: taken by others on the host, and held back \
                  by its own limit."
)]
pub struct Vms {
    /// In every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// How.
    #[command(flatten)]
    pub repeat: Repeat,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// `top nodes`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl top nodes\n  neonctl top nodes --once --sort-by mem%\n\n\
                  Given away is the size of machines as it is now, and what other pods request.")]
pub struct Nodes {
    /// How.
    #[command(flatten)]
    pub repeat: Repeat,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
}
