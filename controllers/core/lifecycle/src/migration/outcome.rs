//! What a step of a migration decides.

use neonvm_api::runner_pod::Receive;
use neonvm_api::{VirtualMachineMigrationStatus, VirtualMachineStatus};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{MigrationCall, MigrationRequest};

use crate::outcome::Note;

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
    /// What to tell people, of the migration and of its machine, once the status is written.
    pub events: Vec<Note>,
}

/// What to do. Every action may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationAction {
    /// Read migration, machine and pods from the server itself, and step again.
    Refresh,
    /// Write the finalizer, and the machine as the controlling owner.
    Adopt,
    /// Write this status to the machine, if it still is the version that was looked at: it belongs to the migration then.
    Lock(Box<VirtualMachineStatus>),
    /// Make the secret of the target runner and the target pod, as [`super::plan_target`] says.
    CreateTarget {
        /// Its name.
        name: String,
        /// What its runner is told of the source.
        receive: Box<Receive>,
    },
    /// Tell the source runner to begin.
    Start(MigrationRequest),
    /// Tell the source runner to call it off.
    Cancel(MigrationCall),
    /// Delete the pod and the secret of the same name. Without a UID only the secret is left.
    DeletePod {
        /// Its name.
        name: String,
        /// Delete only this very pod.
        uid: Option<String>,
    },
    /// Remove our finalizer.
    RemoveFinalizer,
}
