//! `config`

use super::Output;

/// Settings of this program.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the effective settings
    View(View),
    /// Write a setting to the configuration file
    Set(Set),
    /// Print the path of the configuration file
    Path(Path),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::View(args) => Some(&args.output),
            Self::Path(args) => Some(&args.output),
            Self::Set(_) => None,
        }
    }
}

/// `config view`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config view --show-origin")]
pub struct View {
    /// Show where each value comes from
    #[arg(long)]
    pub show_origin: bool,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `config set`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl config set output wide")]
pub struct Set {
    /// Name of the setting, which is the name of its flag
    pub key: String,
    /// Value of the setting
    pub value: String,
}

/// `config path`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cat \"$(neonctl config path)\"")]
pub struct Path {
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}
