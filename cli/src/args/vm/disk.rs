//! `vm disk`

use super::Applying;
use crate::args::Waiting;
use crate::args::names::{self, Names};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the disks of a VM: where they are mounted, on which claims, how large and how full they are
    #[command(visible_alias = "ls")]
    List(List),
    /// Grow a disk on a persistent volume while the VM runs
    Grow(Grow),
    /// Limit how fast a VM reads and writes a disk, also while it runs
    Limit(Limit),
    /// Add a disk, at the next start of the VM
    Add(Add),
    /// Remove a disk, at the next start of the VM
    #[command(visible_alias = "rm")]
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm disk list pg\n  neonctl vm disk list pg -o json\n\n\
                  SIZE is that of the volume as the running guest uses it, or what the claim has. USED, USE and INODES are those of the file \
                  system, which the guest reports while the VM runs; the disk / is the root file system. MODE is what a migration does with \
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

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm disk limit pg data --iops 500 --bandwidth 50Mi\n  \
                  neonctl vm disk limit pg / --iops 500 --burst-iops 3000 --burst-seconds 60\n  neonctl vm disk limit pg data --none\n\n\
                  The flags are all limits that the disk then has, of reads and writes together; what is left out is not limited. \
                  Nothing is restarted; the command waits until the limits are in force. A burst is for a disk that was used less \
                  before. While a limit binds, top shows it, the VM has the condition DiskLimited, and events have its begin and its end.")]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true))]
pub struct Limit {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Name of the disk; / is the root disk
    pub disk: String,
    /// Requests a second, 10 to 10000000
    #[arg(long, value_name = "N", group = "limits")]
    pub iops: Option<u32>,
    /// Bytes a second, such as 50Mi; 64Ki to 100Gi
    #[arg(long, value_name = "BYTES", group = "limits")]
    pub bandwidth: Option<String>,
    /// Requests a second of a burst
    #[arg(long, value_name = "N", requires = "iops")]
    pub burst_iops: Option<u32>,
    /// Bytes a second of a burst
    #[arg(long, value_name = "BYTES", requires = "bandwidth")]
    pub burst_bandwidth: Option<String>,
    /// How long a burst at full speed lasts, 1 to 3600 [default: 1]
    #[arg(long, value_name = "SECONDS")]
    pub burst_seconds: Option<u32>,
    /// Limit nothing
    #[arg(long, group = "limits", conflicts_with_all = ["iops", "bandwidth", "burst_seconds"])]
    pub none: bool,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm disk add pg --volume log=10Gi:/var/log/pg --restart-now\n  \
                  neonctl vm disk add pg --claim old=pg-old:/old\n  neonctl vm disk add pg --empty scratch=5Gi:/scratch\n\n\
                  A VM that is stopped has the disk at once. A running one gets it at its next start, which --restart-now brings \
                  about: no disk is plugged into a running VM. The claim of --volume is made then, if it is missing.")]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct Add {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Disk on a persistent volume that outlives the VM: NAME=SIZE:PATH; its claim is NAME-VM
    #[arg(long, value_name = "NAME=SIZE:PATH", group = "source")]
    pub volume: Option<String>,
    /// Storage class of that claim [default: that of the cluster]
    #[arg(long, value_name = "CLASS", requires = "volume")]
    pub storage_class: Option<String>,
    /// Disk on an existing claim: NAME=CLAIM:PATH
    #[arg(long, value_name = "NAME=CLAIM:PATH", group = "source")]
    pub claim: Option<String>,
    /// Disk that is empty at each start: NAME=SIZE:PATH
    #[arg(long, value_name = "NAME=SIZE:PATH", group = "source")]
    pub empty: Option<String>,
    #[command(flatten)]
    pub applying: Applying,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm disk remove pg scratch\n  neonctl vm disk remove pg old --restart-now\n\n\
                        A running VM has the disk until its next start, which --restart-now brings about. Claims stay, with their data."
)]
pub struct Remove {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub name: String,
    /// Name of the disk
    pub disk: String,
    #[command(flatten)]
    pub applying: Applying,
}
