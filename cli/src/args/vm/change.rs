//! Changing VMs that exist.

use crate::args::names::{self, Names};
use crate::args::resource::Waiting;

/// `vm set`
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm set pg --cu 2..16\n  neonctl vm set pg --cpu 0.5..8 --memory 2Gi..32Gi --restart-now\n  \
                  neonctl vm set pg --image pg16:2 --restart-now\n  neonctl vm set pg --disk data=100Gi:/var/lib/data --env TZ=UTC\n  \
                  neonctl vm set pg --remove-disk scratch --dry-run\n\n\
                  The lower bound of CPU changes at once. Everything else changes at once if the VM is stopped, and otherwise at \
                  its next start, which --restart-now brings about; neonctl vm describe shows what waits. To change the \
                  size of a running VM within its bounds use: neonctl vm scale"
)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct Set {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// CPU bounds, such as 0.25..4 or 2
    #[arg(long, group = "change", value_name = "MIN..MAX")]
    pub cpu: Option<String>,
    /// Memory bounds, such as 1Gi..16Gi
    #[arg(long, group = "change", value_name = "MIN..MAX")]
    pub memory: Option<String>,
    /// Both bounds in compute units, such as 1..12
    #[arg(long, group = "change", value_name = "MIN..MAX", conflicts_with_all = ["cpu", "memory"])]
    pub cu: Option<String>,
    /// Image that contains the root disk
    #[arg(long, group = "change", value_name = "REF", add = Names::Images)]
    pub image: Option<String>,
    /// Empty disk to add, or to change if the name exists: NAME=SIZE:PATH; can be repeated
    #[arg(long, group = "change", value_name = "NAME=SIZE:PATH")]
    pub disk: Vec<String>,
    /// Disk to remove; can be repeated
    #[arg(long, group = "change", value_name = "NAME")]
    pub remove_disk: Vec<String>,
    /// Environment variable of the workload, NAME=VALUE, or NAME- to remove it; can be repeated
    #[arg(long, group = "change", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// When to restart the VM after it ends
    #[arg(long, group = "change", value_name = "WHEN", value_parser = ["Always", "OnFailure", "Never"])]
    pub restart: Option<String>,
    /// How the change is applied.
    #[command(flatten)]
    pub applying: Applying,
}

/// How a change is applied.
#[derive(Debug, Default, clap::Args)]
pub struct Applying {
    /// Restart the VM if the change needs it, and wait until it runs
    #[arg(long)]
    pub restart_now: bool,
    /// Change nothing: print what would change now, and what at the next start
    #[arg(long, conflicts_with = "restart_now")]
    pub dry_run: bool,
    /// Whether and how long to wait.
    #[command(flatten)]
    pub waiting: Waiting,
}
