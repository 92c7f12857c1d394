//! What can be typed. No logic.

pub mod cluster;
pub mod config;
pub mod image;
pub mod images;
pub mod install;
pub mod kernel;
pub mod local;
pub mod migration;
pub mod podscaler;
pub mod scaling;
pub mod simulate;
pub mod test;
pub mod top;
pub mod uninstall;
pub mod upgrade;
pub mod vm;

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
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// table, wide, json, yaml, name, jsonpath=EXPR or custom-columns=SPEC. Control characters are shown, such as \x1b; of
    /// jsonpath only on a terminal: in a pipe or a file it is exact
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<String>,
    /// Leave out the headers of tables
    #[arg(long)]
    pub no_headers: bool,
}

/// How images are read from registries.
#[derive(Debug, Default, clap::Args)]
pub struct Registry {
    /// When the registry is asked: always, missing (only for what the cache lacks) or never
    #[arg(long, default_value = "always", value_parser = ["always", "missing", "never"])]
    pub pull: String,
    /// How they are reached.
    #[command(flatten)]
    pub access: RegistryAccess,
    /// Directory for fetched layers [default: $XDG_CACHE_HOME/neonvm]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<std::path::PathBuf>,
}

/// How registries are reached, to read or to write.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RegistryAccess {
    /// User for the registry; the password is read from NEONCTL_REGISTRY_PASSWORD
    #[arg(long, value_name = "USER")]
    pub username: Option<String>,
    /// File with logins, as docker and podman write it [default: theirs]
    #[arg(long, value_name = "FILE")]
    pub auth_file: Option<std::path::PathBuf>,
    /// Certificate authority (PEM) to trust besides the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<std::path::PathBuf>,
    /// Allow plain HTTP for registries that are not on this machine
    #[arg(long)]
    pub insecure: bool,
    /// Layers transferred at the same time
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub parallel: usize,
}

/// How progress is shown.
#[derive(Debug, Default, clap::Args)]
pub struct Showing {
    /// Progress on standard error: auto (bars on a terminal, else lines), plain, json or none
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "plain", "json", "none"])]
    pub progress: String,
}

/// The tree of commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Complete clusters on this machine
    #[command(subcommand)]
    Local(local::Command),
    /// Install the services on a cluster, or change or complete an installation
    Install(Box<install::Install>),
    /// Bring an installation to another version, the controllers first
    Upgrade(Box<upgrade::Upgrade>),
    /// Remove the services from a cluster
    Uninstall(uninstall::Uninstall),
    /// Virtual machines and their disks
    #[command(subcommand)]
    Vm(vm::Command),
    /// Moves of virtual machines from node to node
    #[command(subcommand, alias = "migrations")]
    Migration(Box<migration::Command>),
    /// Autoscalers of replicas: what they see, decide and have done
    #[command(subcommand, aliases = ["podscalers", "pa", "podautoscaler", "podautoscalers"])]
    Podscaler(podscaler::Command),
    /// Disk images on this machine and in registries
    #[command(subcommand)]
    Image(image::Command),
    /// Container images of this release: services and runner
    #[command(subcommand)]
    Images(images::Command),
    /// Kernels for virtual machines
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Health of a cluster on one screen
    Status(cluster::Status),
    /// Probe what the system needs
    Doctor(cluster::Doctor),
    /// Tests of a cluster
    #[command(subcommand)]
    Test(test::Command),
    /// Use of CPU and memory, live
    #[command(subcommand)]
    Top(top::Command),
    /// What scales the virtual machines of a node
    #[command(subcommand)]
    Agent(scaling::Agent),
    /// What places virtual machines and permits their sizes
    #[command(subcommand)]
    Scheduler(scaling::Scheduler),
    /// Look into what goes on
    #[command(subcommand)]
    Debug(scaling::Debug),
    /// Try the scaling of a whole fleet under faults, without a cluster
    Simulate(simulate::Simulate),
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
            Self::Install(args) => Some(&args.carrying.output),
            Self::Upgrade(args) => Some(&args.carrying.output),
            Self::Uninstall(args) => Some(&args.output),
            Self::Local(command) => command.output(),
            Self::Vm(command) => command.output(),
            Self::Migration(command) => command.output(),
            Self::Podscaler(command) => command.output(),
            Self::Image(command) => command.output(),
            Self::Images(command) => command.output(),
            Self::Kernel(command) => command.output(),
            Self::Status(args) => Some(&args.output),
            Self::Doctor(args) => Some(&args.output),
            Self::Test(command) => Some(command.output()),
            Self::Top(command) => Some(command.output()),
            Self::Agent(scaling::Agent::Inspect(args)) => Some(&args.output),
            Self::Scheduler(scaling::Scheduler::Inspect(args)) => Some(&args.output),
            Self::Debug(scaling::Debug::NodePressure(args)) => Some(&args.output),
            Self::Simulate(args) => Some(args.output()),
            Self::Version(args) => Some(&args.output),
            Self::Completion(_) => None,
            Self::Config(command) => command.output(),
        }
    }
}
