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
use super::cluster::Access;

/// Virtual machines and their disks.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a bootable disk from a container image, an archive or a directory
    Build(Box<Build>),
    /// Make a virtual machine
    Create(Box<Create>),
    /// Every virtual machine of a namespace, or of all
    List(List),
    /// Virtual machines by name
    Get(Get),
    /// One virtual machine in words: size, place, what is wrong, what happened last
    Describe(Describe),
    /// Change CPU and memory while it runs
    Scale(Scale),
    /// Move it to another node while it runs
    Migrate(Box<Migrate>),
    /// Stop virtual machines and remove them
    Delete(Delete),
    /// The serial console
    Console(Console),
    /// Log in, or run a command in it
    Ssh(Ssh),
    /// Join standard input and output with a TCP port of the guest, for ssh's ProxyCommand
    Connect(Connect),
    /// What guest, QEMU and runner have written
    Logs(Logs),
    /// What has happened to it
    Events(Events),
    /// Wait until something is true of it
    Wait(Wait),
}

impl Command {
    pub(super) fn output(&self) -> Option<&Output> {
        match self {
            Self::Build(args) => Some(&args.output),
            Self::Create(args) => Some(&args.output),
            Self::List(args) => Some(&args.output),
            Self::Get(args) => Some(&args.output),
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

/// Where virtual machines are looked for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// Namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub access: Access,
}

/// Whether and how long to wait.
#[derive(Debug, Default, clap::Args)]
pub struct Waiting {
    /// Wait for the natural end
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return when the request is accepted
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait, such as 30s or 5m; then exit with 6, the work goes on
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub timeout: String,
}
