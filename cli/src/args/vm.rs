//! `vm`

mod build;
mod change;
mod life;
mod look;
mod power;
mod reach;
mod run;

pub use super::migration::Migrate;
pub use build::Build;
pub use change::{Applying, Set};
pub use life::{Create, Delete, Scale, Wait};
pub use look::{Describe, Get, History, List, Logs};
pub use power::{Pause, Power, Restart, Resume, Start, Stop};
pub use reach::{Connect, Console, Cp, PortForward, Ssh, SshConfig};
pub use run::Run;

/// Virtual machines (VMs) and their disks.
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
    Stop(Stop),
    /// Start VMs that are stopped or have ended
    Start(Start),
    /// Shut down VMs and start them again
    Restart(Restart),
    /// Pause VMs: the CPUs of their guests stand still
    Pause(Pause),
    /// Resume VMs that are paused
    Resume(Resume),
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
