//! Ends a VM that runs because its spec requests a stop or a restart.

use neonvm_api::virtual_machine::Phase;
use neonvm_types::runner_protocol::{Exit, ExitReason};

use super::power::{is_restart_requested, off, stops};
use super::{Pass, alive, ended};
use crate::condition::{AVAILABLE, Finding};
use crate::outcome::NoteReason;

/// Handles the pass if the VM is to be stopped, or restarted, and has not ended yet. During a migration nothing is stopped: the VM
/// has two pods, and which of them has the guest is known when the migration has ended.
pub(super) fn step(pass: &mut Pass<'_>) -> bool {
    let over = matches!(pass.before.phase, Some(Phase::Succeeded | Phase::Failed));
    if over || pass.before.migration.is_some() || !(stops(pass) || is_restart_requested(pass)) {
        return false;
    }
    if pass.before.pod_name.is_empty() {
        // It has no pod and gets none. A restart needs nothing: the start is still to come.
        if !stops(pass) {
            return false;
        }
        off(pass);
        return true;
    }
    shut_down(pass);
    true
}

/// Ends the pod with the VM's grace period.
fn shut_down(pass: &mut Pass<'_>) {
    let Some(seen) = &pass.observed.pod else {
        // The pod is on its way, or is gone.
        if !pass.observed.fresh {
            pass.refresh();
            return;
        }
        let name = pass.before.pod_name.clone();
        if pass.before.phase.is_some_and(Phase::is_alive) {
            let exit = pass.observed.runner.exit().cloned();
            let exit = exit.unwrap_or_else(|| Exit::new(ExitReason::Stopped, "its pod is gone"));
            ended::finish(pass, &exit, &name);
            return;
        }
        // Without its secret a pod that some earlier controller still makes cannot run.
        pass.delete_pod(&name, None);
        pass.status.phase = Some(Phase::Pending);
        pass.status.pod_name = String::new();
        return;
    };
    if let Some(exit) = &seen.ended {
        ended::finish(pass, exit, &seen.name);
    } else if let Some(until) = seen.deleting {
        alive::track(pass, seen);
        ended::stopping(pass, until);
    } else if pass.observed.fresh {
        let why = if stops(pass) { "powerState is Stopped" } else { "a restart was requested" };
        pass.note(NoteReason::Stopping, why);
        pass.set(AVAILABLE, &Finding::no("Stopped", "the guest is shutting down"));
        pass.delete_pod(&seen.name, Some(&seen.uid));
    } else {
        pass.refresh();
    }
}
