//! What can be typed. No logic.

pub mod cluster;
pub mod config;
pub mod local;

use clap::{Parser, Subcommand, ValueEnum};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "neonctl",
    version,
    about = "Vertical autoscaling for virtual machines on Kubernetes",
    disable_help_subcommand = true,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not permitted, 5 conflict, 6 timeout, \
                  7 unhealthy, 8 unreachable, 130 interrupted"
)]
pub struct Args {
    /// Flags that mean the same everywhere.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, clap::Args)]
pub struct Global {
    /// Colours; NO_COLOR and CLICOLOR_FORCE are respected
    #[arg(long, global = true, value_name = "WHEN", value_parser = ["auto", "always", "never"])]
    pub color: Option<String>,
    /// Results and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// Form of what a command reports.
#[derive(Debug, Default, clap::Args)]
pub struct Output {
    /// table, wide, json, yaml, name, jsonpath=EXPR or custom-columns=SPEC
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<String>,
    /// Leave out the headers of tables
    #[arg(long)]
    pub no_headers: bool,
}

/// The tree of commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Complete clusters on this machine
    #[command(subcommand)]
    Local(local::Command),
    /// Health of a cluster on one screen
    Status(cluster::Status),
    /// Probe what the system needs
    Doctor(cluster::Doctor),
    /// Version of this program
    Version(Version),
    /// Script that teaches a shell to complete neonctl, names of clusters included
    Completion(Completion),
    /// Settings of this program
    #[command(subcommand)]
    Config(config::Command),
}

/// `version`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl version -o json")]
pub struct Version {
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `completion`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(neonctl completion bash)\n  neonctl completion fish > ~/.config/fish/completions/neonctl.fish"
)]
pub struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells that can be taught.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Fish
    Fish,
    /// PowerShell
    #[value(name = "powershell")]
    PowerShell,
    /// Elvish
    Elvish,
}

impl Command {
    /// The flags of form, of commands that have them.
    #[must_use]
    pub fn output(&self) -> Option<&Output> {
        match self {
            Self::Local(command) => command.output(),
            Self::Status(args) => Some(&args.output),
            Self::Doctor(args) => Some(&args.output),
            Self::Version(args) => Some(&args.output),
            Self::Completion(_) => None,
            Self::Config(command) => command.output(),
        }
    }
}
