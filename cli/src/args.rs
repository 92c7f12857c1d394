//! Definitions of the command line, without logic.

pub mod cluster;
pub mod config;
pub mod image;
pub mod install;
pub mod kernel;
pub mod local;
pub mod migration;
pub mod names;
pub mod place;
pub mod podautoscaler;
pub mod top;
pub mod vm;

use clap::{Parser, Subcommand, ValueEnum};
use top::Live;

#[derive(Debug, Parser)]
#[command(
    name = "neonctl",
    version,
    about = "Vertical autoscaling of virtual machines on Kubernetes",
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not permitted, 5 conflict, 6 timeout, 7 unhealthy, 8 \
                  unreachable, 130 interrupted"
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Global {
    #[command(flatten)]
    pub place: place::Place,
    /// Output format: table, wide, json, yaml, name, jsonpath=EXPR or custom-columns=SPEC. Control characters are escaped, such
    /// as \x1b; jsonpath escapes them only on a terminal and writes exact values to a pipe or a file
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub output: Option<String>,
    /// Omit table headers
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// When to use colours; NO_COLOR and CLICOLOR_FORCE are respected
    #[arg(long, global = true, value_name = "WHEN", value_parser = ["auto", "always", "never"])]
    pub color: Option<String>,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print each request to the API server on standard error: method, path, status and time; -vv also prints the bodies, with the
    /// values of known fields only: no data, variables, arguments or tokens
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Default, clap::Args)]
pub struct Registry {
    /// When to contact the registry: always, missing (only for layers that are not in the cache) or never
    #[arg(long, default_value = "always", value_parser = ["always", "missing", "never"])]
    pub pull: String,
    #[command(flatten)]
    pub access: RegistryAccess,
    /// Directory for fetched layers [default: $XDG_CACHE_HOME/neonvm]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<std::path::PathBuf>,
    /// Refuse images whose layers have more than this in total, uncompressed
    #[arg(long, value_name = "SIZE", default_value = "128Gi")]
    pub max_bytes: String,
    /// Refuse images with more files and directories than this
    #[arg(long, value_name = "N", default_value_t = 5_000_000)]
    pub max_entries: u64,
    /// Refuse layers of more than 1Gi that expand to more than this many times their compressed size
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_ratio: u64,
    /// Stop when less than this would be left free on the disk of the cache
    #[arg(long, value_name = "SIZE", default_value = "256Mi")]
    pub min_free: String,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct RegistryAccess {
    /// User name for the registry; the password is read from NEONCTL_REGISTRY_PASSWORD
    #[arg(long, value_name = "USER")]
    pub username: Option<String>,
    /// File with registry credentials, in the format of docker and podman [default: their files]
    #[arg(long, value_name = "FILE")]
    pub auth_file: Option<std::path::PathBuf>,
    /// Certificate authority (PEM) to trust in addition to those of the system
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<std::path::PathBuf>,
    /// Allow plain HTTP for registries that are not on this host
    #[arg(long)]
    pub insecure: bool,
    /// Number of layers to transfer in parallel
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub parallel: usize,
}

#[derive(Debug, Default, clap::Args)]
pub struct Showing {
    /// Progress on standard error: auto (bars on a terminal, otherwise lines), plain, json or none
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "plain", "json", "none"])]
    pub progress: String,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Local clusters on this host
    #[command(subcommand)]
    Local(local::Command),
    /// Install the services on a cluster, or change or complete an installation
    Install(Box<install::Install>),
    /// Upgrade an installation to another version, controllers first
    Upgrade(Box<install::Upgrade>),
    /// Remove the services from a cluster
    Uninstall(install::Uninstall),
    /// Virtual machines (VMs) and their disks
    #[command(subcommand)]
    Vm(vm::Command),
    /// Live migrations of virtual machines
    #[command(subcommand, alias = "migrations")]
    Migration(Box<migration::Command>),
    /// Pod autoscalers: status, decisions and history
    #[command(subcommand, visible_alias = "pa", aliases = ["podscaler", "podautoscalers", "podscalers"])]
    Podautoscaler(podautoscaler::Command),
    /// Disk images on this host and in registries; container images of this release
    #[command(subcommand)]
    Image(image::Command),
    /// Kernels for virtual machines
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Show the health of a cluster
    Status(cluster::Status),
    /// Check the prerequisites of this host or of a cluster
    Doctor(cluster::Doctor),
    /// Test a cluster
    #[command(subcommand)]
    Test(cluster::Test),
    /// Show nodes, VMs, migrations and decisions live; or a table of CPU and memory usage
    Top(Box<top::Top>),
    /// Serve the view of top as a web page on this host
    Dashboard(Box<Dashboard>),
    /// Agents, which scale the VMs of each node
    #[command(subcommand)]
    Agent(cluster::Agent),
    /// Scheduler, which places VMs and permits their sizes
    #[command(subcommand)]
    Scheduler(cluster::Scheduler),
    /// Debugging commands
    #[command(subcommand)]
    Debug(cluster::Debug),
    /// Print the versions of this program, of the cluster and of its services
    Version(Version),
    /// Generate a shell completion script, which also completes names of clusters
    Completion(Completion),
    /// Write manual pages
    Man(Man),
    /// Settings of this program
    #[command(subcommand)]
    Config(config::Command),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl version\n  neonctl version --client -o json\n\n\
                  The versions of the cluster are left out, with a note, if it cannot be reached within two seconds.")]
pub struct Version {
    /// Print the version of this program only
    #[arg(long)]
    pub client: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  source <(neonctl completion bash)\n  \
                  neonctl completion fish > ~/.config/fish/completions/neonctl.fish")]
pub struct Completion {
    /// Shell to generate the script for
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl man | man -l -\n  neonctl man --out /usr/local/share/man/man1 && man neonctl-vm-create"
)]
pub struct Man {
    /// Directory for a page of each command; without it the page of the program is printed
    #[arg(short = 'O', long, value_name = "DIR")]
    pub out: Option<std::path::PathBuf>,
}

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
    /// Whether it reports something that has output formats: others write a script, a stream or a setting.
    #[must_use]
    pub fn has_formats(&self) -> bool {
        use config::Command as Config;
        use vm::Command as Vm;
        !matches!(
            self,
            Self::Completion(_)
                | Self::Man(_)
                | Self::Local(local::Command::Logs(_))
                | Self::Config(Config::Set(_) | Config::Unset(_))
                | Self::Vm(
                    Vm::Console(_)
                        | Vm::Ssh(_)
                        | Vm::Cp(_)
                        | Vm::PortForward(_)
                        | Vm::SshConfig(_)
                        | Vm::Connect(_)
                        | Vm::Logs(_)
                        | Vm::Run(_)
                )
        )
    }

    /// Whether this output format is a drawing that the command makes itself.
    #[must_use]
    pub fn draws(&self, format: &str) -> bool {
        matches!(self, Self::Vm(vm::Command::History(_))) && matches!(format, "svg" | "html")
    }
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl dashboard\n  neonctl dashboard -A --port 8080\n  \
                  ssh -L 8080:127.0.0.1:8080 host neonctl dashboard --port 8080\n\n\
                  Prints a URL with a random token and serves the page on 127.0.0.1 until Ctrl-C, with the rights of this user. \
                  Only requests with the token are answered with data. The page requests nothing from elsewhere.")]
pub struct Dashboard {
    /// TCP port on 127.0.0.1 [default: one that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    #[command(flatten)]
    pub live: Live,
}

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
