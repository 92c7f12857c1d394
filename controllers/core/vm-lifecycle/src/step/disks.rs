//! Disks on claims: what the runner reports of them goes to the status, and a claim that has become larger goes to the runner. A runner
//! that reports no disks is of a version whose disks grow at the next start.

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{DiskRequest, RunnerState, RunnerStatus};

use super::{Pass, pause};
use crate::outcome::{Action, NoteReason};

/// While no runner is connected, what is recorded holds.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else { return };
    if runner.state != RunnerState::Running || runner.exit.is_some() {
        return;
    }
    observe(pass, runner);
    if !pass.is_moving() && !pause::is_held(pass) {
        follow(pass, runner);
    }
}

/// The size before is in the status until the new one is written there: that is the one time when the event is sent.
fn observe(pass: &mut Pass<'_>, runner: &RunnerStatus) {
    let mut grown = Vec::new();
    for volume in pass.status.volumes.iter_mut().filter(|volume| !volume.read_only) {
        let size = runner.disks.get(&volume.name).copied();
        let before = volume.size.and_then(|size| Bytes::try_from(size).ok());
        if let Some((before, size)) = before.zip(size).filter(|(before, size)| before < size) {
            grown.push(format!(
                "disk {}: from {before} to {size}, the size of claim {}",
                volume.name, volume.claim_name
            ));
        }
        volume.size = size.map(Bytes::to_quantity);
    }
    grown.into_iter().for_each(|text| pass.note(NoteReason::DiskGrown, text));
}

fn follow(pass: &mut Pass<'_>, runner: &RunnerStatus) {
    let mut requests = Vec::new();
    for volume in pass.status.volumes.iter().filter(|volume| !volume.read_only) {
        let claim = pass.observed.claims.iter().find(|claim| claim.name == volume.claim_name);
        if let Some((claim, has)) = claim.zip(runner.disks.get(&volume.name))
            && claim.size > *has
        {
            requests.push(DiskRequest { disk: volume.name.clone(), size: claim.size });
        }
    }
    for request in requests {
        if is_due(pass, &request) {
            pass.actions.push(Action::GrowDisk(request));
        }
    }
}

/// Whether the runner has not got this request, or that was a while ago.
fn is_due(pass: &mut Pass<'_>, request: &DiskRequest) -> bool {
    let pod = pass.before.pod_name.as_str();
    let asked =
        pass.observed.disks_requested.iter().find(|asked| asked.pod == pod && asked.request == *request);
    let at = asked.map(|asked| asked.at);
    pass.is_due(at)
}
