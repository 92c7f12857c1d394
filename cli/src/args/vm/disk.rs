//! `vm disk`

use crate::args::Waiting;
use crate::args::names::{self, Names};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the disks of a VM: where they are mounted, on which claims, and how large they are
    #[command(visible_alias = "ls")]
    List(List),
    /// Grow a disk on a persistent volume while the VM runs
    Grow(Grow),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm disk list pg\n  neonctl vm disk list pg -o json\n\n\
                  SIZE is that of the volume as the running guest uses it, or what the claim has. MODE is what a migration does with \
                  a volume: both nodes open one that is shared, and the content of one that is copied goes to a new claim.")]
pub struct List {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm disk grow pg data 20Gi\n  neonctl vm disk grow pg data 20Gi --no-wait\n\n\
                  Requests SIZE of the disk's claim, then waits until the volume and the file system in the guest have grown. \
                  Nothing is restarted. The storage class has to allow it (allowVolumeExpansion), and a disk never shrinks. A disk of \
                  a VM that is stopped grows at its next start, one of a paused VM when it is resumed, one of a VM that is being \
                  migrated after that."
)]
pub struct Grow {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Name of the disk
    pub disk: String,
    /// Size of its volume, such as 20Gi
    pub size: String,
    #[command(flatten)]
    pub waiting: Waiting,
}
