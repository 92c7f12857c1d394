//! Handles a running machine, in every phase in which it runs, migrations included: observes its pod and its runner.

use neonvm_api::virtual_machine::{Machine, Phase};
use neonvm_types::runner_protocol::{Exit, ExitReason, RunnerState, SuspendStatus};

use super::{Pass, disks, ended, freeze, limits, pause, size, suspend, workload};
use crate::condition::{self, AVAILABLE, Finding};
use crate::observed::{PodView, RunnerView};
use crate::outcome::{Action, NoteReason};
use crate::pod;

pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(seen) = &pass.observed.pod else {
        vanished(pass);
        return;
    };
    if let Some(exit) = &seen.ended {
        ended::finish(pass, exit, &seen.name);
        return;
    }
    track(pass, seen);
    if let Some(until) = seen.deleting {
        ended::stopping(pass, until);
        return;
    }
    supervise(pass);
}

/// No pod: the VM is gone, if the API server confirms it.
fn vanished(pass: &mut Pass<'_>) {
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    let name = pass.before.pod_name.clone();
    let missing = format!("pod {name} is gone");
    pass.note(NoteReason::PodMissing, missing.clone());
    let exit = pass.observed.runner.exit().cloned();
    let exit = exit.unwrap_or_else(|| Exit::new(ExitReason::RunnerKilled, missing));
    ended::finish(pass, &exit, &name);
}

/// Keeps the status in step with the pod, and the pod's labels and annotations with the VM.
pub(super) fn track(pass: &mut Pass<'_>, seen: &PodView) {
    if !seen.ip.is_empty() {
        seen.ip.clone_into(&mut pass.status.pod_ip);
    }
    if !seen.node.is_empty() {
        seen.node.clone_into(&mut pass.status.node);
    }
    if let Some(change) = pod::metadata_change(pass.vm, seen, pass.settings) {
        pass.actions.push(Action::SyncPod { name: seen.name.clone(), change });
    }
    own(pass, seen);
    machine(pass);
    workload::step(pass);
}

/// The VM controls its pod; its active migration is an owner too, so that other programs can find it.
fn own(pass: &mut Pass<'_>, seen: &PodView) {
    let migration = pass.status.migration.clone();
    let wanted = migration.iter().map(|migration| &migration.uid);
    let controls = pass.vm.metadata.uid.as_ref().is_some_and(|uid| *uid == seen.controller);
    if !controls || !seen.migrations.iter().eq(wanted) {
        let (name, uid) = (seen.name.clone(), seen.uid.clone());
        pass.actions.push(Action::OwnPod { name, uid, migration });
    }
}

/// What the VM is made of, from its runner.
fn machine(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let Some(info) = observed.runner.current().and_then(|runner| runner.machine.as_ref()) else {
        return;
    };
    let machine = Machine::from_info(info);
    if pass.before.machine.is_none() {
        let made = format!("{} on {}", machine.machine_type, machine.accelerator);
        pass.note(NoteReason::Started, made);
        if !machine.accelerator_note.is_empty() {
            pass.note(NoteReason::AcceleratorFallback, machine.accelerator_note.clone());
        }
        if !info.root_size_note.is_empty() {
            pass.note(NoteReason::RootSizeIgnored, info.root_size_note.clone());
        }
    }
    pass.status.machine = Some(machine);
}

/// Whether the guest answers, as reported by the runner or, while it is not connected, by the readiness probe.
pub(super) fn guest_ready(pass: &Pass<'_>) -> bool {
    let seen = pass.observed.pod.as_ref().is_some_and(|pod| pod.ready && pod.running);
    match &pass.observed.runner {
        RunnerView::Seen(runner) => runner.ready && runner.exit.is_none(),
        RunnerView::Unknown | RunnerView::Unreachable { .. } => seen,
    }
}

pub(super) fn supervise(pass: &mut Pass<'_>) {
    pause::step(pass);
    suspend::step(pass);
    availability(pass);
    size::step(pass);
    disks::step(pass);
    limits::step(pass);
    freeze::step(pass);
    if matches!(pass.status.phase, Some(Phase::Running | Phase::Scaling)) {
        size::revision(pass);
    }
}

fn availability(pass: &mut Pass<'_>) {
    let ready = guest_ready(pass);
    match &pass.observed.runner {
        // No report yet: the recorded condition holds, unless the probe reports that the VM became ready.
        RunnerView::Unknown => {
            let recorded = condition::find(&pass.status, AVAILABLE);
            // The probe of a paused VM succeeds.
            if ready && recorded.is_none_or(|now| now.status != "True" && now.reason != "Paused") {
                became_ready(pass);
            } else {
                set_as_recorded(pass);
            }
        }
        RunnerView::Unreachable { since, .. } => {
            if pass.has_passed(*since, pass.settings.unreachable_after) {
                let finding = Finding::unknown(
                    "RunnerUnreachable",
                    format!("the runner does not answer since {since}"),
                );
                pass.set(AVAILABLE, &finding);
            } else if !set_as_recorded(pass) && ready {
                became_ready(pass);
            }
        }
        RunnerView::Seen(runner) if runner.exit.is_some() => {
            pass.set(AVAILABLE, &Finding::no("Stopped", "the VM has ended; its pod is ending"));
        }
        RunnerView::Seen(runner) if ready && runner.pause.applied => {
            pass.set(AVAILABLE, &Finding::no("Paused", "the CPUs of the guest stand still"));
        }
        RunnerView::Seen(runner)
            if ready && runner.suspend.as_ref().is_some_and(SuspendStatus::is_stored) =>
        {
            pass.set(
                AVAILABLE,
                &Finding::yes("Suspended", "the VM is suspended, and wakes when it is needed"),
            );
        }
        RunnerView::Seen(_) if ready => became_ready(pass),
        RunnerView::Seen(runner) => {
            let finding = match runner.state {
                RunnerState::Stopping | RunnerState::Ended => {
                    Finding::no("Stopped", "the guest is shutting down")
                }
                RunnerState::Running => Finding::no("Booting", "the guest does not answer"),
                RunnerState::Preparing | RunnerState::Booting => {
                    Finding::no("Booting", "the guest is starting")
                }
            };
            pass.set(AVAILABLE, &finding);
        }
    }
}

/// Sets the condition again as it is recorded; false if none is.
fn set_as_recorded(pass: &mut Pass<'_>) -> bool {
    let Some(now) = condition::find(&pass.status, AVAILABLE).cloned() else { return false };
    pass.set(AVAILABLE, &Finding { status: &now.status, reason: &now.reason, message: now.message });
    true
}

fn became_ready(pass: &mut Pass<'_>) {
    let before = condition::find(&pass.before, AVAILABLE);
    // One that was paused has an event of its own.
    if before.is_none_or(|before| before.status != "True" && before.reason != "Paused") {
        pass.note(NoteReason::Ready, "the guest answers");
    }
    pass.set(AVAILABLE, &Finding::yes("Ready", "the guest answers"));
}
