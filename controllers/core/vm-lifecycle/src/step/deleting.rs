//! The VM is being deleted: its pods end with their grace, then the finalizer goes. Secrets follow by ownership.
//! What is missing is not waited for.

use neonvm_api::virtual_machine::Phase;

use super::{Pass, address, ended, health, volumes};
use crate::claims;
use crate::condition::{AVAILABLE, Finding};
use crate::outcome::{Action, NoteReason};

pub(super) fn step(pass: &mut Pass<'_>) {
    pass.status.observed_generation = pass.vm.metadata.generation;
    // Both pods of a migration end; where the guest was last is known when they have ended.
    volumes::settle_when_moved(pass);
    if pass.before.migration.is_some() && pass.before.phase.is_some_and(Phase::is_alive) {
        pass.status.phase = Some(Phase::Running);
    }
    let target = pass.observed.moving.target.as_ref();
    let pods = || pass.observed.pod.iter().chain(target).chain(&pass.observed.orphans);
    let doomed: Vec<_> = pods().filter(|pod| pod.deleting.is_none()).cloned().collect();
    let ending: Vec<_> = pods().filter(|pod| pod.is_live()).filter_map(|pod| pod.deleting).collect();
    let live = pods().any(crate::PodView::is_live);
    for pod in &doomed {
        pass.delete_pod(&pod.name, Some(&pod.uid));
    }
    if live {
        let first = crate::condition::find(&pass.before, AVAILABLE).is_none_or(|now| now.reason != "Stopped");
        if first && !doomed.is_empty() {
            pass.note(NoteReason::Stopping, "the VM is being deleted");
        }
        pass.set(AVAILABLE, &Finding::no("Stopped", "the VM is being deleted"));
        for until in ending {
            pass.has_passed(until, pass.settings.stuck_after);
        }
        health::stuck_only(pass);
        return;
    }
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    // Nothing of it runs. The status is not worth another write, unless the object stays because of it.
    pass.status.migration = None;
    let left = volumes::rest(pass, true);
    let doomed =
        claims::doomed(pass.vm, &pass.status).map(|name| Action::DeleteClaim { name, partial: false });
    pass.actions.extend(left.actions.into_iter().chain(doomed));
    pass.status = pass.before.clone();
    address::give_back(pass);
    pass.actions.push(Action::RemoveFinalizer);
    pass.note(NoteReason::Deleted, "the VM is gone");
    debug_assert!(ended::stuck(pass).is_empty(), "a pod that ended cannot be stuck");
}
