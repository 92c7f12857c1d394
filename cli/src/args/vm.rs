//! `vm`

mod build;
mod life;
mod look;
mod reach;

pub use super::migration::Migrate;
pub use build::Build;
pub use life::{Create, Delete, Scale, Wait};
pub use look::{Describe, Events, Get, List, Logs};
pub use reach::{Connect, Console, Ssh};

use super::Output;

/// Virtual machines (VMs) and their disks.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Build a bootable disk from a container image, an archive or a directory
    Build(Box<Build>),
    /// Create a VM
    Create(Box<Create>),
    /// List the VMs of one namespace or of all
    List(List),
    /// Show VMs by name
    Get(Get),
    /// Show the details of one VM: size, node, problems and recent events
    Describe(Describe),
    /// Change the CPU and memory of a running VM
    Scale(Scale),
    /// Live-migrate a VM to another node
    Migrate(Box<Migrate>),
    /// Stop and delete VMs
    Delete(Delete),
    /// Attach to the serial console of a VM
    Console(Console),
    /// Log in to a VM, or run a command in it
    Ssh(Ssh),
    /// Connect standard input and output to a TCP port of the guest, for ssh's ProxyCommand
    Connect(Connect),
    /// Print the logs of guest, QEMU and runner
    Logs(Logs),
    /// List the events of VMs
    Events(Events),
    /// Wait until a VM meets a condition
    Wait(Wait),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::Build(args) => Some(&args.output),
            Self::Create(args) => Some(&args.output),
            Self::List(args) => Some(&args.list.show.output),
            Self::Get(args) => Some(&args.get.output),
            Self::Describe(args) => Some(&args.output),
            Self::Scale(args) => Some(&args.output),
            Self::Migrate(args) => Some(&args.output),
            Self::Delete(args) => Some(&args.output),
            Self::Events(args) => Some(&args.output),
            Self::Wait(args) => Some(&args.output),
            Self::Console(_) | Self::Ssh(_) | Self::Connect(_) | Self::Logs(_) => None,
        }
    }
}
