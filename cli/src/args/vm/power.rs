//! Stopping, starting, restarting, pausing and resuming VMs.

use crate::args::names::{self, Names};
use crate::args::resource::Waiting;

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
                  start take effect (neonctl vm set).")]
pub struct Restart {
    /// VMs, and whether to wait.
    #[command(flatten)]
    pub power: Power,
}

/// `vm pause`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm pause pg\n  neonctl vm pause pg-1 pg-2 --timeout 30s\n\n\
                  The CPUs of the guest stand still. Its memory, its pod and its open connections stay, and nothing restarts; \
                  peers that time out meanwhile close their connections. A guest that boots is paused when it is up. While a VM is \
                  paused its size does not change and it cannot be migrated, so a drain of its node waits. Continue it with: \
                  neonctl vm resume")]
pub struct Pause {
    /// VMs, and whether to wait.
    #[command(flatten)]
    pub power: Power,
}

/// `vm resume`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm resume pg\n  neonctl vm resume pg-1 pg-2 --no-wait\n\n\
                  The guest continues where it was paused. With KVM its clock is set to the host's within 16 seconds; an emulated \
                  guest stays behind by the time of the pause.")]
pub struct Resume {
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
}
