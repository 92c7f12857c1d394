//! `top`

#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  neonctl top\n  neonctl top -A --interval 1s\n  neonctl top vms\n\n\
                  Without a subcommand: a full-screen view of nodes, VMs, migrations and decisions. Press ? in it for its keys. \
                  If standard output is not a terminal, a line is printed for each VM and each change, as by vm list -w."
)]
pub struct Top {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub live: Live,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Live {
    /// Time between two readings of loads, goals and permits, such as 1s; at least 500ms
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub interval: String,
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Show the CPU and memory usage of VMs
    #[command(alias = "vm")]
    Vms(Vms),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl top vms\n  neonctl top vms -A --sort-by mem-use\n\n\
                  STEAL and THROTTLED are shares of the VM's CPU time: STEAL was used by others on the host, THROTTLED was \
                  withheld by the VM's own limit.")]
pub struct Vms {
    /// Sort by a column, largest number first [default: CPU usage]
    #[arg(long, value_name = "FIELD")]
    pub sort_by: Option<String>,
    /// The table is printed once, also without this flag, which older versions needed
    #[arg(long, hide = true)]
    pub once: bool,
}
