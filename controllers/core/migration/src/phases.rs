//! The life of a migration as pure functions.
//!
//! Two objects, each with its own status, written in an order that is safe wherever the controller dies:
//!
//! ```text
//! migration                                     machine (status.migration is the lock)
//! Pending, Queued
//!      └── its turn ───────────────────────────▶ lock; it runs and is scaled as before
//! Pending, Preparing: target pod is made
//!      └── target pod has a node ──────────────▶ PreMigrating: the size stays          (the VM's own pass)
//!      └── target waits, source is started ────▶ Migrating (the VM looks at the migration)
//! Running, Mirroring … Switching
//!      ├── runners report: it is at the target ▶ podName = target, unlocked, Running     (the VM's own pass)
//! Succeeded ◀──────────────────────────────────┘
//!      └── decided that it stays (reason) ─────▶ unlocked, Running                        (the VM's own pass)
//! Failed ◀─────────────────────────────────────┘
//! ```
//!
//! The status of a migration shows its end only after the VM is unlocked. If a migration object vanishes, in any phase,
//! the VM's own pass ([`neonvm_core_vm_lifecycle::step()`]) completes or reverts the migration.

mod observed;
mod outcome;
mod parameters;
pub mod queue;
mod report;
mod step;
mod target;

use neonvm_api::migration::{MigrationPhase, MigrationReason};
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_types::runner_protocol::RunnerState;

use neonvm_core_vm_lifecycle::{Mover, RunnerView};

pub use neonvm_api::migration::{is_over, is_waiting};
pub use observed::MigrationObserved;
pub use outcome::{MigrationAction, MigrationOutcome};
pub use parameters::{PolicyMissing, Resolved, resolve};
pub use step::step;
pub use target::{TargetError, plan as plan_target};

/// The part of a migration that its VM's reconcile needs.
#[must_use]
pub fn mover(migration: &VirtualMachineMigration) -> Mover {
    let Some(status) = &migration.status else { return Mover::default() };
    let over = is_over(migration) || decided(&status.reason).is_some();
    Mover { ordered: status.phase.is_some_and(|phase| phase != MigrationPhase::Pending), over }
}

/// A reason for which the VM stays, once it is decided.
fn decided(reason: &str) -> Option<MigrationReason> {
    use MigrationReason as R;
    [
        R::Cancelled,
        R::TimedOut,
        R::TargetFailed,
        R::TransferFailed,
        R::MachineEnded,
        R::MachineMissing,
        R::Refused,
    ]
    .into_iter()
    .find(|decided| decided.as_str() == reason)
}

/// Whether a VM can be taken for a migration now; why not, for people.
///
/// # Errors
/// What it waits for.
pub fn ready(vm: &VirtualMachine, runner: &RunnerView) -> Result<(), String> {
    let status = vm.status.as_ref();
    if let Some(other) = status.and_then(|status| status.migration.as_ref()) {
        return Err(format!("waits for migration {} of the same VM", other.name));
    }
    let phase = status.and_then(|status| status.phase);
    // One that is suspended wakes while its target is prepared.
    if !matches!(phase, Some(Phase::Running | Phase::Suspended)) {
        let phase = phase.map_or("new", Phase::as_str);
        return Err(format!("waits until the VM is Running; it is {phase}"));
    }
    let known = runner.current().is_some_and(|runner| {
        runner.machine.is_some() && runner.exit.is_none() && runner.state == RunnerState::Running
    });
    if !known {
        return Err("waits until the runner of the VM answers".to_owned());
    }
    let left = status.and_then(|status| status.volumes.iter().find(|volume| !volume.previous.is_empty()));
    if let Some(volume) = left {
        return Err(format!("waits until claim {} of an earlier migration is dealt with", volume.previous));
    }
    let still = runner.current().is_some_and(|runner| !runner.pause.is_none());
    if still { Err("waits until the VM is resumed".to_owned()) } else { Ok(()) }
}
