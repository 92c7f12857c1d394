//! Whether a VM is to be stopped, started or restarted because its spec requests it, and changes of the spec that wait for a start.

use neonvm_api::next_start;
use neonvm_api::virtual_machine::{Phase, PowerState};

use super::Pass;
use crate::condition::{self, AVAILABLE, CHANGE_PENDING, Finding};
use crate::outcome::{Action, NoteReason};

/// Whether the VM is to be off.
pub(super) fn stops(pass: &Pass<'_>) -> bool {
    pass.vm.spec.is_stopped()
}

/// Whether a VM that has ended is to be started by request: it was off, or a restart is requested.
pub(super) fn is_requested(pass: &Pass<'_>) -> bool {
    !stops(pass) && (pass.before.power_state == Some(PowerState::Stopped) || is_restart_requested(pass))
}

/// Whether the last start was not by the request of now.
pub(super) fn is_restart_requested(pass: &Pass<'_>) -> bool {
    pass.vm.spec.is_to_restart(&pass.before)
}

/// The VM has ended and stays off; its pod goes.
pub(super) fn stopped(pass: &mut Pass<'_>) {
    if pass.before.pod_name.is_empty() {
        off(pass);
        return;
    }
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    let name = pass.before.pod_name.clone();
    match &pass.observed.pod {
        Some(pod) if pod.deleting.is_some() => {}
        Some(pod) => pass.delete_pod(&name, Some(&pod.uid)),
        None => {
            pass.delete_pod(&name, None);
            pass.status.pod_name = String::new();
            off(pass);
        }
    }
}

/// Records that the VM is off.
pub(super) fn off(pass: &mut Pass<'_>) {
    if pass.before.phase.is_none() {
        pass.status.phase = Some(Phase::Pending);
    }
    pass.status.power_state = Some(PowerState::Stopped);
    pass.set(AVAILABLE, &Finding::no("Stopped", "powerState is Stopped; set it to Running to start the VM"));
}

/// Writes what changes at this start into the spec, before the pod is made of it; whether it did.
pub(super) fn amend(pass: &mut Pass<'_>) -> bool {
    match next_start::amendment(pass.vm) {
        Ok(None) => false,
        Ok(Some(spec)) => {
            pass.set(AVAILABLE, &Finding::no("Pending", "the change for this start is being written"));
            pass.actions.push(Action::Amend { spec });
            true
        }
        Err(error) => {
            pass.note(NoteReason::Failed, format!("the change for this start is dropped: {error}"));
            pass.actions.push(Action::Amend { spec: serde_json::Map::new() });
            true
        }
    }
}

/// Records by what request the VM is started.
pub(super) fn on_start(pass: &mut Pass<'_>) {
    pass.status.power_state = None;
    pass.status.restart_request.clone_from(&pass.vm.spec.restart_request);
}

/// Shows that a change waits for the next start.
pub(super) fn pending_change(pass: &mut Pass<'_>) {
    match next_start::patch(pass.vm) {
        Ok(Some(patch)) => {
            let message = format!("at the next start: {}", next_start::paths(&patch).join(", "));
            pass.set(CHANGE_PENDING, &Finding::yes("AtNextStart", message));
        }
        Ok(None) => condition::remove(&mut pass.status, CHANGE_PENDING),
        Err(error) => pass.set(CHANGE_PENDING, &Finding::unknown("Invalid", error.to_string())),
    }
}
