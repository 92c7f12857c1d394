//! What a step of a migration decides.

use neonvm_api::runner_pod::Receive;
use neonvm_api::{VirtualMachineMigrationStatus, VirtualMachineStatus};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{MigrationCall, MigrationRequest};

use neonvm_core_vm_lifecycle::Note;

/// What a step decides. The shell writes `status` first (guarded by the resource version the step was made with), then runs
/// the actions in order and stops at the first that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationOutcome {
    /// The status the object should have.
    pub status: VirtualMachineMigrationStatus,
    /// What to do.
    pub actions: Vec<MigrationAction>,
    /// When to look again although nothing happened.
    pub wake_at: Option<Timestamp>,
    /// Events about the migration and its VM, to be sent once the status is written.
    pub events: Vec<Note>,
}

/// What to do. Every action may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationAction {
    /// Read migration, machine and pods from the server itself, and step again.
    Refresh,
    /// Write the finalizer, and the VM as the controlling owner.
    Adopt,
    /// Write this status to the VM, if its version is still the one that was read: the VM then belongs to the
    /// migration.
    Lock(Box<VirtualMachineStatus>),
    /// Create the secret of the target runner and the target pod, as planned by [`super::plan_target`].
    CreateTarget {
        /// Name of the pod.
        name: String,
        /// The source's parameters for the target runner.
        receive: Box<Receive>,
    },
    /// Order the source runner to begin.
    Start(MigrationRequest),
    /// Order the source runner to cancel.
    Cancel(MigrationCall),
    /// Delete the pod and the secret of the same name. Without a UID only the secret is left.
    DeletePod {
        /// Name of the pod.
        name: String,
        /// Delete only this very pod.
        uid: Option<String>,
    },
    RemoveFinalizer,
}
