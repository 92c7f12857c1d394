//! The end. The VM is unlocked before the end is written; the target's pod and secret are deleted unless the VM runs
//! there.

use std::fmt::Write as _;

use neonvm_api::VirtualMachine;
use neonvm_api::migration::{MigrationPhase, MigrationReason};
use neonvm_types::runner_protocol::{MigrationRole, MigrationState, MigrationStatus};

use super::{Pass, carried};
use crate::phases::{MigrationAction, decided};
use neonvm_core_vm_lifecycle::NoteReason;

/// Seconds for the source to report QEMU's final statistics; its runner queries them for one second.
const COUNTING: i64 = 3;

/// The VM does not name this migration any more, although it did: it was migrated, or it stays.
pub(super) fn let_go(pass: &mut Pass<'_>, vm: &VirtualMachine) {
    let pod = vm.status.as_ref().map(|status| status.pod_name.as_str()).unwrap_or_default();
    if pod == pass.before.target_pod_name {
        succeed(pass);
        return;
    }
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    if let Some(reason) = decided(&pass.before.reason) {
        let why = pass.before.message.clone();
        fail(pass, reason, why);
        return;
    }
    let end = vm.status.as_ref().and_then(|status| status.last_exit.as_ref());
    let why = end.map_or("the VM ended".to_owned(), |end| format!("{}: {}", end.reason, end.message));
    fail(pass, MigrationReason::MachineEnded, why);
}

fn succeed(pass: &mut Pass<'_>) {
    let since = pass.before.completion_time.unwrap_or(pass.now);
    pass.status.completion_time = Some(since);
    if let Some(target) = &pass.observed.target {
        pass.status.target_pod_ip.clone_from(&target.ip);
        pass.status.target_node.clone_from(&target.node);
    }
    let reported = final_report(pass);
    let awaited = match &reported {
        Some(reported) if reported.progress.downtime_ms.is_some() => false,
        // QEMU reports the end before its final statistics.
        Some(_) => !pass.source().is_gone() && !pass.has_passed(since, COUNTING),
        // A controller that has just started has no report of either yet.
        None => !pass.target().is_gone() && !pass.has_passed(since, pass.settings.unreachable_after),
    };
    if awaited {
        "the VM has moved; its last numbers are awaited".clone_into(&mut pass.status.message);
        return;
    }
    if let Some(reported) = reported {
        carried::record(pass, &reported);
    }
    pass.status.phase = Some(MigrationPhase::Succeeded);
    let (from, to) = (&pass.status.source_node, &pass.status.target_node);
    let mut text = format!("from node {from} to node {to}");
    // It is unknown if both runners are gone.
    if pass.status.info.downtime_ms > 0 {
        let _ = write!(text, ", downtime {} ms", pass.status.info.downtime_ms);
    }
    pass.set_reason(MigrationReason::Completed, text.clone());
    pass.note(NoteReason::Migrated, text);
}

/// The final report of a side that has completed: QEMU's final statistics, from the source or passed on to the target.
fn final_report(pass: &Pass<'_>) -> Option<MigrationStatus> {
    let uid = pass.uid();
    let sides = [
        (&pass.observed.source_runner, MigrationRole::Source),
        (&pass.observed.target_runner, MigrationRole::Target),
    ];
    let reported = sides.into_iter().filter_map(|(runner, role)| {
        let reported = runner.newest()?.migration.as_ref()?;
        let last = reported.id == uid && reported.role == role && reported.state == MigrationState::Completed;
        last.then_some(reported)
    });
    reported.min_by_key(|reported| reported.progress.downtime_ms.is_none()).cloned()
}

/// The VM stays. Whether it is unlocked must be read from the API server.
pub(super) fn fail(pass: &mut Pass<'_>, reason: MigrationReason, why: impl Into<String>) {
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    let why = why.into();
    let name = pass.before.target_pod_name.clone();
    pass.set_reason(reason, why.clone());
    if sweep(pass) {
        return;
    }
    pass.status.phase = Some(MigrationPhase::Failed);
    pass.status.completion_time = Some(pass.now);
    if pass.observed.target.is_none() && !name.is_empty() {
        pass.actions.push(MigrationAction::DeletePod { name, uid: None });
    }
    let event = if reason == MigrationReason::Cancelled {
        NoteReason::MigrationCancelled
    } else {
        NoteReason::MigrationFailed
    };
    pass.note(event, format!("{}: {why}", reason.as_str()));
    pass.conditions();
}

/// Deletes what is left of the target. Whether there was something.
pub(super) fn sweep(pass: &mut Pass<'_>) -> bool {
    let Some(target) = pass.observed.target.as_ref().filter(|target| target.deleting.is_none()) else {
        return false;
    };
    let (name, uid) = (target.name.clone(), Some(target.uid.clone()));
    pass.actions.push(MigrationAction::DeletePod { name, uid });
    true
}

/// It has ended: what it left behind goes, and when it is deleted nothing holds it.
pub(super) fn tidy(pass: &mut Pass<'_>) {
    let status = pass.observed.vm.and_then(|vm| vm.status.as_ref());
    let locked =
        status.and_then(|status| status.migration.as_ref()).is_some_and(|lock| lock.uid == pass.uid());
    let moved = status.is_some_and(|status| status.pod_name == pass.before.target_pod_name);
    if !moved && !locked && pass.before.phase == Some(MigrationPhase::Failed) && sweep(pass) {
        return;
    }
    if pass.is_deleting() && !locked {
        pass.actions.push(MigrationAction::RemoveFinalizer);
    }
}
