//! Stopping, starting and restarting VMs.

use crate::args::Output;
use crate::args::names::{self, Names};
use crate::args::resource::{NamespaceArgs, Waiting};

/// `vm stop`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm stop pg\n  neonctl vm stop pg-1 pg-2 --no-wait\n\n\
                  The guest is shut down and the pod removed, which frees the node. The object, its overlay address and its SSH \
                  keys stay; files on the root disk and on empty disks are lost, as after any restart. Start it again with: \
                  neonctl vm start")]
pub struct Stop {
    /// VMs, and whether to wait.
    #[command(flatten)]
    pub power: Power,
}

/// `vm start`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm start pg\n\n\
                          Also starts a VM that has ended and that its restart policy does not start again.")]
pub struct Start {
    /// VMs, and whether to wait.
    #[command(flatten)]
    pub power: Power,
}

/// `vm restart`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm restart pg\n\n\
                  The guest is shut down and started in a new pod, whatever the restart policy is. Changes made for the next \
                  start take effect (neonctl vm set, neonctl vm edit).")]
pub struct Restart {
    /// VMs, and whether to wait.
    #[command(flatten)]
    pub power: Power,
}

/// VMs, and whether to wait.
#[derive(Debug, Default, clap::Args)]
pub struct Power {
    /// Names of the virtual machines
    #[arg(required = true, add = Names::Vms, value_parser = names::vm)]
    pub names: Vec<String>,
    /// Whether and how long to wait; these commands wait by default.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Namespace and cluster.
    #[command(flatten)]
    pub place: NamespaceArgs,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}
