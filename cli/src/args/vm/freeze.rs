//! `vm freeze` and `vm thaw`

use crate::args::names::{self, Names};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm freeze pg\n  neonctl vm freeze pg --for 2m && backup-volumes; neonctl vm thaw pg\n\n\
                  What the guest has in memory is written back, and programs that write to the disks on claims wait until the thaw. \
                  Reading goes on, and so does the VM: it can be scaled and migrated. Without a thaw the guest thaws them when the time is \
                  over, with the event FreezeExpired. For snapshots there is: neonctl vm snapshot create"
)]
pub struct Freeze {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Time after which the guest thaws by itself, 1s to 5m
    #[arg(long = "for", value_name = "DURATION", default_value = "30s")]
    pub bound: String,
    /// Freeze the root file system as well
    #[arg(long)]
    pub root_disk: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm thaw pg\n\n\
                        Fails if the time of the freeze was over before: what was copied since may not be consistent.")]
pub struct Thaw {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
}
