//! The VM is taken, its target is made. Nothing was sent yet: whatever fails, the VM just stays.

use neonvm_api::VirtualMachineStatus;
use neonvm_api::migration::{MigrationPhase, MigrationReason, TargetRoom, TargetSize};
use neonvm_api::runner_pod::Receive;
use neonvm_types::runner_protocol::{ExitReason, MigrationState, RunnerStatus, SizeRequest, SuspendStatus};

use super::{Pass, address, eviction, over};
use crate::phases::{MigrationAction, target};
use neonvm_core_vm_lifecycle::FailureReason::NoSuitableHost;
use neonvm_core_vm_lifecycle::PodView;
use neonvm_core_vm_lifecycle::pod::size::larger;

pub(super) fn step(pass: &mut Pass<'_>) {
    if pass.is_cancelled() {
        pass.decide(MigrationReason::Cancelled, "cancelled while the target was prepared");
        return;
    }
    if let Some(failure) = pass.observed.failure.as_ref().filter(|one| one.reason == NoSuitableHost) {
        pass.decide(MigrationReason::Refused, failure.message.clone());
        return;
    }
    if let Some(why) = eviction::is_undone(pass).or_else(|| gives_precedence(pass)) {
        pass.decide(MigrationReason::Cancelled, why);
        return;
    }
    if let Some(why) = failed(pass) {
        pass.decide(MigrationReason::TargetFailed, why);
        return;
    }
    if is_outdated(pass) {
        discard(pass);
        return;
    }
    // The last report of a runner outlives its pod.
    let stays = pass.observed.target.as_ref().is_some_and(|target| target.deleting.is_none());
    if stays
        && is_placed(pass)
        && pass.target_state() == Some(MigrationState::Waiting)
        && pass.target().is_reachable()
    {
        ready(pass);
        return;
    }
    let limit = pass.settings.migration.prepare_timeout;
    let late = pass.before.start_time.is_some_and(|start| pass.has_passed(start, limit));
    let why = waits_for(pass);
    if late {
        pass.decide(MigrationReason::TargetFailed, format!("target did not start: {why}"));
        return;
    }
    if gives_way(pass) {
        let others = pass.observed.held_up;
        pass.decide(MigrationReason::TargetFailed, format!("gives way to {others} that can go: {why}"));
        return;
    }
    pass.set_reason(MigrationReason::Preparing, why);
    if pass.observed.target.is_none() {
        create(pass);
    }
}

/// There is no room for it anywhere, and others wait that might have room. Alone it may wait for room for longer.
fn gives_way(pass: &mut Pass<'_>) -> bool {
    let limit = pass.settings.migration.place_timeout;
    let placeless = pass.observed.target.as_ref().is_some_and(PodView::is_unschedulable);
    if !placeless || !pass.before.start_time.is_some_and(|start| pass.has_passed(start, limit)) {
        return false;
    }
    if pass.observed.held_up == 0 {
        // A migration that is queued later does not trigger a pass of this one.
        pass.has_passed(pass.now, limit.max(1));
        return false;
    }
    if !pass.observed.fresh {
        pass.refresh();
        return false;
    }
    true
}

/// A stop, a restart or a pause does not wait for a migration that has no room anywhere.
fn gives_precedence(pass: &Pass<'_>) -> Option<String> {
    let vm = pass.observed.vm.filter(|_| !is_placed(pass))?;
    let restarts = vm.status.as_ref().is_some_and(|status| vm.spec.is_to_restart(status));
    let what = match () {
        () if vm.spec.is_stopped() => "stopped",
        () if restarts => "restarted",
        () if vm.spec.is_paused() => "paused",
        () => return None,
    };
    Some(format!("the VM is to be {what}, and the target has no node yet"))
}

/// Whether the target has a node: from then on the VM keeps its size.
fn is_placed(pass: &Pass<'_>) -> bool {
    pass.observed.target.as_ref().is_some_and(|target| !target.node.is_empty())
}

/// The size of the guest for which a target is made now.
fn size(runner: &RunnerStatus) -> TargetSize {
    TargetSize {
        cpu: runner.cpu.asked,
        memory: runner.memory.asked.to_quantity(),
        plugged_cpus: runner.cpu.online,
        room: None,
    }
}

/// Whether the VM was scaled since the target was made. A target whose size is not noted was to be deleted for that reason, and may be
/// there still: the deletion got lost.
fn is_scaled(pass: &Pass<'_>) -> bool {
    let now = pass.observed.source_runner.current().map(size);
    let made = pass.before.target_size.map(|made| TargetSize { room: None, ..made });
    now.is_some() && made != now
}

/// Whether the spec requests more than the target reserves: no scheduler has permitted that at the target's node. The source has not
/// received the request if the controller was away.
fn is_outgrown(pass: &Pass<'_>) -> bool {
    let made = pass.before.target_size.and_then(|made| made.room);
    let needed = pass.observed.vm.and_then(|vm| target::room(vm, pass.migration).ok());
    made.zip(needed)
        .is_some_and(|(made, needed)| needed.cpu > made.cpu || needed.memory.to_quantity() > made.memory)
}

/// Whether the target is to be made again. Only one without a node: nothing of it has run.
fn is_outdated(pass: &Pass<'_>) -> bool {
    let waits = |target: &PodView| target.deleting.is_none() && target.node.is_empty();
    pass.observed.target.as_ref().is_some_and(waits) && (is_scaled(pass) || is_outgrown(pass))
}

/// Deletes the target; it is made again for the guest's size of then.
fn discard(pass: &mut Pass<'_>) {
    pass.status.target_size = None;
    pass.set_reason(MigrationReason::Preparing, "the VM was scaled: the target pod is made again");
    over::sweep(pass);
}

/// Whether the target is being deleted because it was outdated.
fn is_discarded(pass: &Pass<'_>) -> bool {
    pass.before.target_size.is_none() && pass.before.target_node.is_empty()
}

/// The target waits for the VM. It goes when the VM keeps its size, and if not too many go there.
fn ready(pass: &mut Pass<'_>) {
    if !pass.observed.vm.and_then(|vm| vm.status.as_ref()).is_some_and(VirtualMachineStatus::size_is_held) {
        pass.set_reason(MigrationReason::Preparing, "the target is ready; the VM is about to keep its size");
        return;
    }
    let Some(source) = pass.observed.source_runner.current() else {
        pass.set_reason(MigrationReason::Preparing, "the target is ready; waits for the source runner");
        return;
    };
    if source.suspend.as_ref().is_some_and(SuspendStatus::is_still) {
        pass.set_reason(MigrationReason::Preparing, "the target is ready; waits until the VM is awake");
        return;
    }
    if is_scaled(pass) || is_outgrown(pass) {
        let why = "the VM was scaled while its target was given a node; migrate it again";
        pass.decide(MigrationReason::TargetFailed, why);
        return;
    }
    let (now, most) = (pass.observed.inbound, pass.settings.migration.inbound);
    if now >= most {
        let node = pass.status.target_node.clone();
        let why = format!("the target is ready; {now} machines come to node {node} already, at most {most}");
        pass.set_reason(MigrationReason::Preparing, why);
        return;
    }
    pass.status.phase = Some(MigrationPhase::Running);
    pass.set_reason(MigrationReason::Mirroring, "the source receives the order to begin");
}

/// Why the target will never be ready.
fn failed(pass: &mut Pass<'_>) -> Option<String> {
    let name = &pass.before.target_pod_name;
    let Some(target) = &pass.observed.target else {
        if pass.before.target_node.is_empty() {
            return None;
        }
        if !pass.observed.fresh {
            pass.refresh();
            return None;
        }
        return Some(format!("target pod {name} is gone"));
    };
    if let Some(exit) = pass.target().exit() {
        let reason = if exit.reason == ExitReason::MigrationFailed { "" } else { exit.reason.as_str() };
        let colon = if reason.is_empty() { "" } else { ": " };
        return Some(format!("{reason}{colon}{}", exit.message));
    }
    if target.deleting.is_some() && !is_discarded(pass) {
        return Some(format!("target pod {name} is being deleted"));
    }
    let reported = pass.observed.target_runner.current().and_then(|runner| runner.migration.as_ref());
    let reported =
        reported.filter(|reported| reported.id == pass.uid() && reported.state == MigrationState::Failed)?;
    Some(reported.reason.clone())
}

/// What the target still lacks.
fn waits_for(pass: &Pass<'_>) -> String {
    let failure = pass.observed.failure.as_ref().map(|failure| failure.message.clone());
    let Some(target) = &pass.observed.target else {
        return failure.unwrap_or_else(|| "the target pod is being made".to_owned());
    };
    if target.deleting.is_some() {
        return "the VM was scaled: the target pod is made again".to_owned();
    }
    if target.node.is_empty() {
        let why = if target.waiting.is_empty() { "waits for a node" } else { &target.waiting };
        return format!("target pod: {why}");
    }
    if !target.running {
        let why = if target.waiting.is_empty() { "starts" } else { &target.waiting };
        return format!("target pod on node {}: {why}", target.node);
    }
    format!("the target runner on node {} prepares disks and network", target.node)
}

fn create(pass: &mut Pass<'_>) {
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    let source = pass.observed.source.as_ref().map(|pod| pod.ip.clone()).unwrap_or_default();
    let Some(runner) = pass.observed.source_runner.current().filter(|_| !source.is_empty()) else {
        pass.set_reason(MigrationReason::Preparing, "waits for the source runner");
        return;
    };
    let Some(machine) = runner.machine.clone() else { return };
    let asked = SizeRequest { cpu: runner.cpu.asked, memory: runner.memory.asked };
    let room = pass.observed.vm.and_then(|vm| target::room(vm, pass.migration).ok());
    let room = room.map(|room| larger(room, asked));
    let room = room.map(|room| TargetRoom { cpu: room.cpu, memory: room.memory.to_quantity() });
    pass.status.target_size = Some(TargetSize { room, ..size(runner) });
    let port = pass.observed.vm.map_or(neonvm_types::runner_protocol::RUNNER_PORT, |vm| vm.spec.runner_port);
    let receive = Box::new(Receive {
        migration: pass.uid().to_owned(),
        source: address(&source, port),
        machine,
        size: asked,
        cpus: runner.cpu.online,
        disk_queues: None,
    });
    pass.actions.push(MigrationAction::CreateTarget { name: pass.before.target_pod_name.clone(), receive });
}
