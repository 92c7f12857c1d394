//! `migration`, and `vm migrate`, which creates one.

use crate::args::names::{self, Names};

use super::{ListArgs, Showing, Waiting};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List live migrations, active and finished
    #[command(visible_alias = "ls")]
    List(List),
    /// Show migrations by name
    Get(Get),
    /// Show the details of one migration: reason, settings, progress and result
    Describe(Describe),
    /// Cancel migrations; the VMs keep running on their source nodes
    Cancel(Cancel),
    /// Wait until migrations have finished
    Wait(Wait),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm migrate pg\n  neonctl vm migrate pg --to n3\n  \
                  neonctl vm migrate pg --avoid n2 --dry-run\n  neonctl vm migrate pg --max-downtime 100ms --postcopy \
                  on-timeout --completion-timeout 10m --on-timeout post-copy\n\n\
                  Connections to the VM's overlay address stay open. Ctrl-C stops waiting but does not stop the migration; \
                  neonctl migration cancel does.")]
pub struct Migrate {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Allow only this target node; can be repeated
    #[arg(long, value_name = "NODE", add = Names::Nodes)]
    pub to: Vec<String>,
    /// Exclude this target node; can be repeated
    #[arg(long, value_name = "NODE", add = Names::Nodes)]
    pub avoid: Vec<String>,
    /// Longest downtime of the guest, such as 100ms; not kept by emulated VMs (TCG), which are copied in one iteration [default:
    /// that
    /// of the policy, else 300ms]
    #[arg(long, value_name = "DURATION")]
    pub max_downtime: Option<String>,
    /// Bandwidth limit in bytes per second, such as 512Mi [default: 1Gi]
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<String>,
    /// Number of multifd channels for memory [default: that of the policy, else 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub channels: Option<u8>,
    /// Compression of memory in transit [default: that of the policy, else zstd]
    #[arg(long, value_name = "HOW", value_parser = ["none", "zstd"])]
    pub compress: Option<String>,
    /// Do not throttle the guest when it writes memory faster than it is sent, or while its disks are copied
    #[arg(long)]
    pub no_auto_converge: bool,
    /// When to switch to post-copy [default: that of the policy, else never]
    #[arg(long, value_name = "WHEN", value_parser = ["never", "on-timeout", "after-first-pass"])]
    pub postcopy: Option<String>,
    /// Time limit for the whole migration, such as 10m [default: 1h, or that of the policy if it is shorter]
    #[arg(long, value_name = "DURATION")]
    pub completion_timeout: Option<String>,
    /// Action when the completion timeout expires [default: that of the policy, else abort]
    #[arg(long, value_name = "WHAT", value_parser = ["abort", "post-copy", "continue"])]
    pub on_timeout: Option<String>,
    /// Migration policy to apply [default: the policy that matches the VM best]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Priority among queued migrations; higher numbers start first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Change nothing: print whether the VM could migrate to each node, and which node would be chosen
    #[arg(long)]
    pub dry_run: bool,
    /// Namespace of the services, for --dry-run
    #[arg(long, value_name = "NAME", default_value = "neonvm-system")]
    pub system_namespace: String,
    #[command(flatten)]
    pub showing: Showing,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl migration list\n  neonctl migration list -A --active -w\n  \
                  neonctl migration list --vm pg --last")]
pub struct List {
    /// Show only unfinished migrations
    #[arg(long)]
    pub active: bool,
    /// Show only migrations of this VM
    #[arg(long, value_name = "NAME", add = Names::Vms, value_parser = names::vm)]
    pub vm: Option<String>,
    /// Show only the newest migration
    #[arg(long, conflicts_with = "watch")]
    pub last: bool,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl migration get pg-1 -o wide\n  neonctl migration get pg-1 -w")]
pub struct Get {
    /// Names of the migrations
    #[arg(required = true, add = Names::Migrations, value_parser = names::migration)]
    pub names: Vec<String>,
    /// Keep running and show changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl migration describe pg-1")]
pub struct Describe {
    /// Name of the migration
    #[arg(add = Names::Migrations, value_parser = names::migration)]
    pub name: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl migration cancel pg-1\n  neonctl migration cancel pg-1 --no-wait\n\n\
                  Before the switchover, the VM continues on its source node without any loss. After it, a migration cannot be \
                  cancelled (exit code 5)."
)]
pub struct Cancel {
    /// Names of the migrations
    #[arg(required = true, add = Names::Migrations, value_parser = names::migration)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  neonctl migration wait pg-1 --timeout 10m\n\n\
                  Exit code 0 if the VM was migrated, 1 if it stayed on its node.")]
pub struct Wait {
    /// Names of the migrations
    #[arg(required = true, add = Names::Migrations, value_parser = names::migration)]
    pub names: Vec<String>,
    /// How long to wait, such as 30s or 5m; exit code 6 when it expires
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
}
