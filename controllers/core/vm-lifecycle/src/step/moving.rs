//! The VM is being migrated: both sides are observed. The switchover and the end of the migration are also handled here,
//! in case the migration object is gone; so a crash or a deletion at any time is safe.

use neonvm_api::virtual_machine::{ActiveMigration, MigrationSide, Phase};
use neonvm_types::runner_protocol::{
    Exit, ExitReason, MigrationCall, MigrationRole, MigrationState, MigrationVerdict,
};

use super::{Pass, alive, ended, volumes};
use crate::claims::copy;
use crate::condition::{AVAILABLE, Finding};
use crate::guest_location::{self, GuestLocation};
use crate::outcome::{Action, NoteReason};

pub(super) fn step(pass: &mut Pass<'_>, lock: &ActiveMigration) {
    let seen = pass.observed;
    let lock = &volumes::with_content(pass, lock);
    pass.status.migration = Some(lock.clone());
    let (source, target) = pass.sides();
    let mover = seen.moving.mover;
    // A runner's report may be newer than the cache: if the source reports this migration, it was ordered.
    let reported = source.reported(&lock.uid, MigrationRole::Source).is_some();
    let ordered = reported || mover.is_none_or(|mover| mover.ordered);
    // An absent object may only be missing in the cache.
    let unsure = seen.pod.is_none() || mover.is_none() || (ordered && seen.moving.target.is_none());
    if unsure && !seen.fresh {
        pass.refresh();
        return;
    }
    let location = match guest_location::locate(&lock.uid, ordered, source, target) {
        // A part of the guest's memory was at the source only.
        GuestLocation::Doubt if source.is_gone() && seen.moving.refused => GuestLocation::Lost,
        // A controller has recorded that the guest continued at the source: the target's state is old.
        GuestLocation::Doubt if source.is_gone() && mover.is_some_and(|mover| mover.over) => {
            GuestLocation::Lost
        }
        // The guest may have run at the target and have written to volumes, of which the source's memory knows nothing. A restart
        // finds all that was written.
        GuestLocation::Doubt
            if pass.before.writes_volumes()
                && guest_location::verdict(&lock.uid, source, target) == Some(true) =>
        {
            GuestLocation::Lost
        }
        location => location,
    };
    match location {
        GuestLocation::Target => switch(pass, lock),
        GuestLocation::Lost => lost(pass),
        GuestLocation::Doubt => {
            doubt(pass, lock);
            if source.is_gone() {
                let text = "the source is gone; the target has not yet reported whether the VM runs there";
                pass.set(AVAILABLE, &Finding::unknown("Migrating", text));
            } else if source.is_reachable() {
                // The guest is stopped, or runs on the other node: its readiness is not checked.
                track(pass);
            } else {
                alive::step(pass);
            }
        }
        GuestLocation::Source => at_source(pass, lock),
    }
}

fn track(pass: &mut Pass<'_>) {
    if let Some(pod) = &pass.observed.pod {
        alive::track(pass, pod);
    }
}

/// The VM runs, or has ended, where it was.
fn at_source(pass: &mut Pass<'_>, lock: &ActiveMigration) {
    let (source, _) = pass.sides();
    let busy = source.reported(&lock.uid, MigrationRole::Source).is_some_and(|state| !state.is_over());
    let mover = pass.observed.moving.mover;
    if mover.is_none_or(|mover| mover.over) {
        if busy {
            let reason = "the migration is gone".to_owned();
            pass.actions.push(Action::CancelMove(MigrationCall { id: lock.uid.clone(), reason }));
        } else {
            pass.status.migration = None;
            pass.status.phase = Some(Phase::Running);
        }
    } else {
        hold(pass, lock, mover.is_some_and(|mover| mover.ordered));
    }
    alive::step(pass);
}

/// From when the target has a node, the VM keeps its size. A target that is made again gives the VM its freedom back only when it is seen
/// to have no node.
fn hold(pass: &mut Pass<'_>, lock: &ActiveMigration, ordered: bool) {
    let target = pass.observed.moving.target.as_ref().filter(|target| target.deleting.is_none());
    let node = target.map_or_else(|| lock.target_node.clone(), |target| target.node.clone());
    let placed = !node.is_empty();
    pass.status.migration = Some(ActiveMigration { target_node: node, ..lock.clone() });
    pass.status.phase = Some(match pass.before.phase {
        _ if ordered => Phase::Migrating,
        _ if placed => Phase::PreMigrating,
        Some(Phase::Scaling) => Phase::Scaling,
        _ => Phase::Running,
    });
}

/// Makes the target's pod the VM's pod, in one write. The old pod is then an orphan.
fn switch(pass: &mut Pass<'_>, lock: &ActiveMigration) {
    let from = std::mem::take(&mut pass.status.node);
    let target = pass.observed.moving.target.as_ref();
    pass.status.pod_name.clone_from(&lock.target_pod_name);
    pass.status.pod_ip = target.map(|pod| pod.ip.clone()).unwrap_or_default();
    pass.status.node = target.map(|pod| pod.node.clone()).unwrap_or_default();
    pass.status.migration = None;
    copy::take(&mut pass.status, lock);
    pass.status.phase = Some(Phase::Running);
    let text =
        format!("the VM runs in pod {}, from node {from} to node {}", lock.target_pod_name, pass.status.node);
    pass.note(NoteReason::Switched, text);
}

/// Neither side has it.
fn lost(pass: &mut Pass<'_>) {
    let (source, target) = pass.sides();
    let exit = source.exit().or_else(|| target.exit()).cloned();
    let exit = exit.unwrap_or_else(|| {
        Exit::new(ExitReason::RunnerKilled, "a runner was lost while the VM was between two nodes")
    });
    if source.pod.is_none() {
        pass.note(NoteReason::PodMissing, format!("pod {} is gone", pass.before.pod_name));
    }
    let name = pass.before.pod_name.clone();
    ended::finish(pass, &exit, &name);
}

/// Sends a verdict or a recovery order, where that resolves the doubt.
fn doubt(pass: &mut Pass<'_>, lock: &ActiveMigration) {
    let (source, target) = pass.sides();
    let id = lock.uid.clone();
    if let Some(at_source) = guest_location::verdict(&id, source, target) {
        let pod = if at_source { source.pod } else { target.pod };
        let pod = pod.map(|pod| pod.uid.clone()).unwrap_or_default();
        // On record before the guest can write there again.
        let side = if at_source { MigrationSide::Source } else { MigrationSide::Target };
        let content = lock.content.map(|_| side);
        pass.status.migration = Some(ActiveMigration { content, ..lock.clone() });
        pass.actions.push(Action::Settle { pod, verdict: MigrationVerdict { id, keep: true } });
        return;
    }
    let paused = source.reported(&id, MigrationRole::Source) == Some(MigrationState::PostCopyPaused);
    if paused && source.is_reachable() {
        let pause = pass.settings.migration.recover_pause;
        let due = match pass.observed.moving.recovered {
            Some(before) => pass.has_passed(before, pause),
            None => true,
        };
        if due {
            let reason = "the connection was lost".to_owned();
            pass.actions.push(Action::RecoverMove(MigrationCall { id, reason }));
        }
    }
}
