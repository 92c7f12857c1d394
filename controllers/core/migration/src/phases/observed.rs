//! What is seen of a migration's partners.

use neonvm_api::{MigrationPolicy, VirtualMachine};

use super::queue::Admission;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_core_vm_lifecycle::{Failure, PodView, RunnerView};

/// What is seen of a migration's partners.
#[derive(Clone, Debug)]
pub struct MigrationObserved<'a> {
    /// All of it was read from the server for this step, the migration before its VM; otherwise watches brought it.
    pub fresh: bool,
    /// The VM to migrate, if it exists.
    pub vm: Option<&'a VirtualMachine>,
    /// The pod the VM leaves: the one named by the migration, before that by the VM.
    pub source: Option<PodView>,
    pub source_runner: RunnerView,
    /// The pod the VM goes to: the one named by the migration, before that by the VM.
    pub target: Option<PodView>,
    pub target_runner: RunnerView,
    /// Claims of the VM's disks, and those that migrations made for it.
    pub claims: Vec<ClaimView>,
    /// All policies.
    pub policies: Vec<&'a MigrationPolicy>,
    /// Whether it is admitted; computed while it waits.
    pub admission: Admission,
    /// Whether the VM's node is cordoned.
    pub cordoned: bool,
    /// Other machines that come to the target's node now.
    pub inbound: usize,
    /// Number of others that could start if this one released its slot; computed while its target has no node.
    pub held_up: usize,
    /// The source runner has replied that it has no such migration.
    pub unknown_at_source: bool,
    /// What went wrong when the actions of the step before were run.
    pub failure: Option<Failure>,
    /// Five random letters and digits for the name of the target pod.
    pub suffix: String,
}
