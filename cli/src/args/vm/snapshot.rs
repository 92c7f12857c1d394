//! `vm snapshot`

use crate::args::names::{self, Names};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Snapshot all volumes of a VM at one moment, with its file systems frozen
    Create(Create),
    /// List the snapshots of VMs
    #[command(visible_alias = "ls")]
    List(List),
    /// Delete snapshots
    #[command(visible_alias = "rm", alias = "remove")]
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  neonctl vm snapshot create pg\n  neonctl vm snapshot create pg --name before-upgrade --class csi-snap\n  \
                  neonctl vm create pg2 --image pg16:1 --cu 1..8 --from-snapshot before-upgrade\n\n\
                  Freezes the file systems of the VM's volumes, makes a VolumeSnapshot of each claim, waits until each is cut, and thaws. \
                  The result has the time for which writes waited. If one is not cut within --for, the snapshots are \
                  deleted, and the VM goes on. A VM that is off is not frozen. Needs a CSI driver that can snapshot, with the \
                  snapshot-controller and a VolumeSnapshotClass."
)]
pub struct Create {
    /// Name of the virtual machine
    #[arg(add = Names::Vms, value_parser = names::vm)]
    pub vm: String,
    /// Name of the snapshot; its VolumeSnapshots are called NAME-DISK [default: the VM and the time]
    #[arg(long)]
    pub name: Option<String>,
    /// VolumeSnapshotClass [default: that of the cluster]
    #[arg(long)]
    pub class: Option<String>,
    /// Longest time for which writes wait, 1s to 5m
    #[arg(long = "for", value_name = "DURATION", default_value = "30s")]
    pub bound: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm snapshot list\n  neonctl vm snapshot list --vm pg -o json")]
pub struct List {
    /// Only those of this virtual machine
    #[arg(long, value_name = "VM", add = Names::Vms, value_parser = names::vm)]
    pub vm: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  neonctl vm snapshot delete before-upgrade\n\n\
                        Deletes the VolumeSnapshots; what they hold goes by the deletion policy of their class. Claims that were made from \
                        them stay.")]
pub struct Delete {
    /// Names of the snapshots
    #[arg(required = true)]
    pub names: Vec<String>,
}
