//! `vm`

mod build;
mod disk;
mod freeze;
mod life;
mod look;
mod reach;
mod snapshot;

pub use super::migration::Migrate;
pub use build::Build;
pub use disk::{
    Add as DiskAdd, Command as DiskCommand, Grow as DiskGrow, Limit as DiskLimit, List as DiskList,
    Remove as DiskRemove,
};
pub use freeze::{Freeze, Thaw};
pub use life::{Create, Delete, Scale, Wait};
pub use look::{Describe, Get, History, List, Logs};
pub use reach::{Connect, Console, Cp, PortForward, Ssh, SshConfig};

pub use snapshot::{
    Command as SnapshotCommand, Create as SnapshotCreate, Delete as SnapshotDelete, List as SnapshotList,
};

use crate::args::Waiting;
use crate::args::names::{self, Names};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Build a bootable disk from a container image, an archive, a directory or a Dockerfile
    Build(Box<Build>),
    /// Build a disk, create a VM and print what its workload writes
    Run(Box<Run>),
    /// Create a VM
    Create(Box<Create>),
    /// List the VMs of one namespace or of all
    #[command(visible_alias = "ls")]
    List(List),
    /// Show VMs by name
    Get(Get),
    /// Show the details of one VM: size, node, problems and recent events
    Describe(Describe),
    /// Change the CPU and memory of a running VM
    Scale(Scale),
    /// Change the bounds, image, disks or environment of a VM
    Set(Box<Set>),
    /// Shut down VMs; their objects stay
    #[command(after_help = "Examples:\n  neonctl vm stop pg\n  neonctl vm stop pg-1 pg-2 --no-wait\n\n\
                  The guest is shut down and the pod removed, which frees the node. The object, its overlay address and its SSH \
                  keys stay; files on the root disk and on empty disks are lost, as after any restart. Start it again with: \
                  neonctl vm start")]
    Stop(Power),
    /// Start VMs that are stopped or have ended
    #[command(after_help = "Examples:\n  neonctl vm start pg\n\n\
                          Also starts a VM that has ended and that its restart policy does not start again.")]
    Start(Power),
    /// Shut down VMs and start them again
    #[command(after_help = "Examples:\n  neonctl vm restart pg\n\n\
                  The guest is shut down and started in a new pod, whatever the restart policy is. Changes made for the next \
                  start take effect (neonctl vm set).")]
    Restart(Power),
    /// Pause VMs: the CPUs of their guests stand still
    #[command(
        after_help = "Examples:\n  neonctl vm pause pg\n  neonctl vm pause pg-1 pg-2 --timeout 30s\n\n\
                  The CPUs of the guest stand still. Its memory, its pod and its open connections stay, and nothing restarts; \
                  peers that time out meanwhile close their connections. A guest that boots is paused when it is up. While a VM is \
                  paused its size does not change and it cannot be migrated, so a drain of its node waits. Continue it with: \
                  neonctl vm resume"
    )]
    Pause(Power),
    /// Suspend VMs: their memory goes to a file, and the first packet wakes them
    #[command(after_help = "Examples:\n  neonctl vm suspend pg\n  neonctl vm set pg --suspend-after 5m\n\n\
                  The memory of the guest goes to a file of its pod, and QEMU ends; pod, addresses and open connections stay. The first \
                  packet for the guest wakes it, and so do commands that need it: ssh, cp, console, port-forward, resume. A guest that \
                  works denies: while tasks run, or PostgreSQL has a query or a transaction open. A suspended VM is not resized and \
                  not migrated. If its pod ends, the VM boots as after a power cut. With --suspend-after (vm create, vm set) a \
                  VM is suspended whenever it is idle.")]
    Suspend(Power),
    /// Resume VMs that are paused or suspended
    #[command(after_help = "Examples:\n  neonctl vm resume pg\n  neonctl vm resume pg-1 pg-2 --no-wait\n\n\
                  The guest continues where it stood still. After a suspension its clock is set to the host's. After a pause, with KVM its clock is set to the host's within 16 seconds; an emulated \
                  guest stays behind by the time of the pause.")]
    Resume(Power),
    /// List the disks of a VM, grow one while the VM runs, add or remove one
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Freeze the file systems of a VM's volumes, so that a copy of them is consistent
    Freeze(Freeze),
    /// End a freeze
    Thaw(Thaw),
    /// Snapshot the volumes of VMs
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Live-migrate a VM to another node
    Migrate(Box<Migrate>),
    /// Stop and delete VMs
    #[command(visible_alias = "rm", alias = "remove")]
    Delete(Delete),
    /// Attach to the serial console of a VM
    Console(Console),
    /// Log in to a VM, or run a command in it
    Ssh(Ssh),
    /// Copy files to or from a VM
    Cp(Cp),
    /// Forward local TCP ports to ports of a VM
    PortForward(PortForward),
    /// Print a configuration for ssh, rsync and editors
    SshConfig(SshConfig),
    /// Connect standard input and output to a TCP port of the guest
    Connect(Connect),
    /// Print the logs of guest, QEMU and runner
    Logs(Logs),
    /// Show what happened to a VM, and why, over a time window
    History(History),
    /// Wait until a VM has a size
    Wait(Wait),
}

#[derive(Debug, Default, clap::Args)]
pub struct Power {
    /// Names of the virtual machines
    #[arg(required = true, add = Names::Vms, value_parser = names::vm)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub waiting: Waiting,
}

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
    /// Suspend the VM whenever it was idle for so long, such as 5m; never: do not
    #[arg(long, group = "change", value_name = "DURATION|never")]
    pub suspend_after: Option<String>,
    #[command(flatten)]
    pub applying: Applying,
}

#[derive(Debug, Default, clap::Args)]
pub struct Applying {
    /// Restart the VM if the change needs it, and wait until it runs
    #[arg(long)]
    pub restart_now: bool,
    /// Change nothing: print what would change now, and what at the next start
    #[arg(long, conflicts_with = "restart_now")]
    pub dry_run: bool,
    #[command(flatten)]
    pub waiting: Waiting,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm run --rm --from docker.io/library/alpine:3 -- uname -a\n  \
                  neonctl vm run web --from ./rootfs --owner root --cu 1..4 --port 80 --detach -- /bin/server\n  \
                  neonctl vm run --rm --image pg16:1 --console\n  \
                  gzip -dc dump.sql.gz | neonctl vm run -i --rm --image pg16:1 -- psql -h db > result.txt\n\n\
                  Builds a disk if --from is given, creates the VM and prints what its workload writes: into a file or a pipe its bytes as they are, \
                  standard error apart from standard output; on a terminal without what steers it. Standard input is empty without -i. The VM is not restarted when \
                  the workload ends, and the exit code is that of the workload, or 128 and the number of the signal that ended it. Ctrl-C detaches; with --rm it deletes the VM.")]
#[command(group = clap::ArgGroup::new("disk-source").required(true))]
pub struct Run {
    /// Name of the virtual machine [default: run- and five characters]
    pub name: Option<String>,
    /// Source to build a disk from: an image reference, an archive or a directory, as in vm build
    #[arg(long, value_name = "SOURCE", group = "disk-source")]
    pub from: Option<String>,
    /// Image that contains a disk, as in vm create
    #[arg(long, value_name = "REF", group = "disk-source", add = Names::Images)]
    pub image: Option<String>,
    /// Owners of the files of a directory: keep, or root for a tree that was created without privileges
    #[arg(long, default_value = "keep", value_parser = ["keep", "root"])]
    pub owner: String,
    /// Name of the built image; with --push it is pushed to the registry in its name [default: NAME:run in the local store]
    #[arg(short, long, value_name = "NAME", requires = "from")]
    pub tag: Option<String>,
    /// Push the built image, for a cluster that cannot read the local image store
    #[arg(long, requires = "tag")]
    pub push: bool,
    /// CPU bounds, such as 0.25..4 or 2
    #[arg(long, value_name = "MIN..MAX")]
    pub cpu: Option<String>,
    /// Memory bounds, such as 1Gi..16Gi or 512Mi
    #[arg(long, value_name = "MIN..MAX")]
    pub memory: Option<String>,
    /// Both bounds in compute units, such as 1..12
    #[arg(long, value_name = "MIN..MAX", conflicts_with_all = ["cpu", "memory"])]
    pub cu: Option<String>,
    /// Guest port to expose at the VM's address: PORT or PORT/udp; can be repeated
    #[arg(long, value_name = "PORT")]
    pub port: Vec<String>,
    /// Empty disk: NAME=SIZE:PATH, mounted at PATH in the guest; can be repeated
    #[arg(long, value_name = "NAME=SIZE:PATH")]
    pub disk: Vec<String>,
    /// Environment variable of the workload, NAME=VALUE; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Delete the VM when its workload has ended, or at Ctrl-C
    #[arg(long)]
    pub rm: bool,
    /// Return when the VM runs; it is restarted when it ends
    #[arg(short, long, conflicts_with_all = ["rm", "console"])]
    pub detach: bool,
    /// Pass standard input to the workload, to its end; for a terminal in the guest use --console, or vm ssh
    #[arg(short, long, conflicts_with_all = ["detach", "console"])]
    pub interactive: bool,
    /// Attach to the serial console instead of printing the workload's output
    #[arg(long)]
    pub console: bool,
    /// Program and arguments of the workload; replace those of the image
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
