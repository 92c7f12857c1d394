//! Pause: whether the guest's CPUs are to stand still goes to the runner, whether they do goes to the status.

use neonvm_api::virtual_machine::PowerState;
use neonvm_types::runner_protocol::RunnerState;

use super::{Pass, suspend};
use crate::condition::{self, Finding, PAUSED};
use crate::outcome::{Action, NoteReason};

/// Whether the guest stands still, or may do so any moment: nothing is expected of it.
pub(super) fn is_held(pass: &Pass<'_>) -> bool {
    let Some(runner) = pass.observed.runner.current() else { return false };
    let wanted = wanted(pass) && runner.state == RunnerState::Running;
    wanted || runner.pause.asked || runner.pause.applied || suspend::is_held(runner)
}

/// A VM that is being migrated is paused when the migration has ended.
fn wanted(pass: &Pass<'_>) -> bool {
    pass.vm.spec.is_paused() && !pass.is_moving()
}

/// While no runner is connected, what is recorded holds.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else { return };
    if !matches!(runner.state, RunnerState::Booting | RunnerState::Running) || runner.exit.is_some() {
        return;
    }
    let (wanted, pause) = (wanted(pass), runner.pause);
    if wanted != pause.asked {
        pass.actions.push(Action::SetPaused(wanted));
    }
    let was = pass.before.power_state == Some(PowerState::Paused);
    match (was, pause.applied) {
        (false, true) => pass.note(
            NoteReason::Paused,
            "the CPUs of the guest stand still; resume it: set powerState to Running",
        ),
        (true, false) => pass.note(NoteReason::Resumed, "the CPUs of the guest run again"),
        (true, true) | (false, false) => {}
    }
    pass.status.power_state = pause.applied.then_some(PowerState::Paused);
    let finding = match (pass.vm.spec.is_paused(), pause.applied) {
        (true, true) => Finding::yes(
            "Paused",
            "the CPUs of the guest stand still; set powerState to Running to resume it",
        ),
        (false, true) => Finding::yes("Resuming", "the guest is being continued"),
        (true, false) if pass.is_moving() => {
            Finding::no("Migrating", "the VM is paused when its migration has ended")
        }
        (true, false) if runner.state == RunnerState::Booting => {
            Finding::no("Booting", "the VM is paused when its guest is up")
        }
        (true, false) => Finding::no("Pausing", "the guest is being paused"),
        (false, false) => {
            condition::remove(&mut pass.status, PAUSED);
            return;
        }
    };
    pass.set(PAUSED, &finding);
}

/// A VM that has ended is not paused.
pub(super) fn forget(pass: &mut Pass<'_>) {
    pass.status.power_state = pass.status.power_state.filter(|state| *state != PowerState::Paused);
    condition::remove(&mut pass.status, PAUSED);
}
