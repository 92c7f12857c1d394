//! Listing and inspecting VMs.

use crate::args::names::{self, Names};

use crate::args::ListArgs;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm list\n  neonctl vm list -A -o wide --sort-by restarts\n  \
                  neonctl vm list -l team=db -w")]
pub struct List {
    /// Show only VMs without a node
    #[arg(long)]
    pub pending: bool,
    /// Show only VMs that are being migrated
    #[arg(long)]
    pub migrating: bool,
    /// Show only VMs on this node
    #[arg(long, value_name = "NAME", add = Names::Nodes)]
    pub node: Option<String>,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm get pg\n  neonctl vm get pg -o wide -w\n  \
                  neonctl vm get pg -o jsonpath='{.status.node}'")]
pub struct Get {
    /// Names of the virtual machines
    #[arg(required = true, add = Names::Vms, value_parser = names::vm)]
    pub names: Vec<String>,
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm describe pg\n  neonctl vm describe pg --events 20")]
pub struct Describe {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Number of recent events to show
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub events: usize,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm history pg\n  neonctl vm history pg --since 12h -o html >pg.html\n  \
                  neonctl vm history pg --since 2026-11-26T01:00:00Z --until 2026-11-26T03:00:00Z -o svg >pg.svg\n\n\
                  -o svg writes a plot, -o html one page with plot and table that needs nothing else.\n\n\
                  The agent of each node keeps the decisions and sizes of its VMs for 7 days, at most 1 MiB for each VM, also of VMs \
                  that were deleted or moved away; the cluster keeps events for about an hour. Times are UTC."
)]
pub struct History {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Begin of the window: so long ago, such as 30m, 12h or 7d, or a time such as 2026-11-26T09:00:00Z
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub since: String,
    /// End of the window, in the same forms [default: now]
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Namespace of the services
    #[arg(long, value_name = "NAME", default_value = "neonvm-system", add = Names::Namespaces)]
    pub system_namespace: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm logs pg -f\n  neonctl vm logs pg --source serial,qemu --tail 50 --timestamps\n  \
                  neonctl vm logs pg --previous\n  neonctl vm logs pg --source serial --raw > boot.log"
)]
pub struct Logs {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Sources to print: guest (the workload), serial (the console), qemu, runner, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all",
          value_parser = ["all", "guest", "serial", "qemu", "runner"])]
    pub source: Vec<String>,
    /// Keep printing new lines, also after a migration or a restart of the VM
    #[arg(short, long)]
    pub follow: bool,
    /// Show only this many of the last lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Show only entries newer than this duration, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Print the time before each line
    #[arg(long)]
    pub timestamps: bool,
    /// Show how the previous run of the VM ended, with the last lines of its console
    #[arg(long)]
    pub previous: bool,
    /// Print lines unchanged; otherwise control characters, which could control this terminal, are escaped, such as \x1b
    #[arg(long)]
    pub raw: bool,
}
