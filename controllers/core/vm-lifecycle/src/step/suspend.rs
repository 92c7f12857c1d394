//! Suspension: whether the guest is to be in a file goes to the runner, whether it is goes to the status. A VM that was woken is not suspended again
//! by the same request: its spec becomes `Running`.

use neonvm_api::virtual_machine::{Phase, PowerState};
use neonvm_types::runner_protocol::{
    ExitReason, RunnerState, RunnerStatus, SuspendRequest, SuspendState, SuspendStatus, WakeRoom, WokenBy,
};

use super::Pass;
use super::room::{self, NoRoom};
use crate::condition::{self, Finding, SCALED, SUSPENDED};
use crate::outcome::{Action, NoteReason};

/// Reason of the condition of a VM that cannot wake.
const NO_ROOM: &str = "NoRoom";

/// Whether the guest is in a file, or on its way there or back.
pub(super) fn is_held(runner: &RunnerStatus) -> bool {
    runner.suspend.as_ref().is_some_and(SuspendStatus::is_still)
}

/// Whether its node has room for a VM that is to wake. `None`: it does not wait for that, or the node has not answered yet.
fn room(pass: &mut Pass<'_>, runner: &RunnerStatus) -> Option<Result<(), NoRoom>> {
    let waits = runner.suspend.as_ref().is_some_and(|suspend| suspend.asks && suspend.waits_for_room());
    let wanted = room::wanted(pass).filter(|_| waits && !pass.is_moving())?;
    room::for_wake(pass, room::Sizes::from_runner(runner, wanted, false))
}

/// While no runner is connected, what is recorded holds.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else { return };
    if !matches!(runner.state, RunnerState::Booting | RunnerState::Running) || runner.exit.is_some() {
        return;
    }
    let (is_up, seen) = (runner.state == RunnerState::Running, runner.suspend.clone().unwrap_or_default());
    let room = room(pass, runner);
    request(pass, &seen, room.as_ref().map(Result::is_ok));
    record(pass, &seen);
    match room {
        Some(Err(no_room)) => waits(pass, no_room),
        _ => show(pass, &seen, is_up),
    }
}

/// Requests from the runner what it does not do yet.
fn request(pass: &mut Pass<'_>, seen: &SuspendStatus, granted: Option<bool>) {
    let spec = &pass.vm.spec;
    let generation = pass.vm.metadata.generation.unwrap_or_default();
    // A VM that is being migrated is awake.
    let moving = pass.is_moving();
    let idle_after = spec.idle_after().filter(|_| !moving);
    let idle_after_ms = idle_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    let deaf = !spec.wakes_on_network();
    let wanted = spec.is_suspended() && !moving;
    let was = pass.before.power_state == Some(PowerState::Suspended);
    let is_awake = !seen.asked && seen.state == SuspendState::Awake;
    if wanted && is_awake && (was || seen.request == generation) {
        let spec = serde_json::json!({ "powerState": PowerState::Running });
        pass.actions.push(Action::Amend { spec: spec.as_object().cloned().unwrap_or_default() });
        return;
    }
    let withdrawn = !wanted && seen.asked && !seen.idle;
    // A VM that is migrated has room: its target has it.
    let asks = !moving && room::is_kept(pass);
    let sleeps = wanted || idle_after_ms.is_some();
    let other = seen.idle_after_ms != idle_after_ms
        || sleeps && (seen.deaf != deaf || seen.asks != asks)
        || moving && seen.asks && seen.waits_for_room();
    let room = granted.map(|granted| WakeRoom { wake: seen.wakes, granted });
    let answers = room.is_some() && seen.room != room;
    // One that is needed is not suspended again by the request that it was suspended by, whatever its number is now.
    let suspended = wanted && !seen.waits_for_room();
    if withdrawn || other || answers || wanted && is_awake || wanted && seen.idle {
        pass.actions.push(Action::SetSuspended(SuspendRequest {
            suspended,
            request: generation,
            idle_after_ms,
            deaf,
            asks,
            room,
        }));
    }
}

/// A VM that is needed, and for which its node has no room.
fn waits(pass: &mut Pass<'_>, no_room: NoRoom) {
    let message = format!("it is needed, and waits: {}", no_room.message);
    let is_new = condition::find(&pass.before, SUSPENDED).is_none_or(|before| before.reason != NO_ROOM);
    if is_new {
        pass.note(NoteReason::ScaleDenied, format!("the VM cannot wake; {message}"));
    }
    pass.set(SUSPENDED, &Finding::yes(NO_ROOM, message));
    pass.set(SCALED, &Finding::no(no_room.obstacle.reason(), no_room.message));
}

/// Phase and state of the VM, with an event for each change.
fn record(pass: &mut Pass<'_>, seen: &SuspendStatus) {
    let was = pass.before.power_state == Some(PowerState::Suspended);
    let is = seen.state == SuspendState::Suspended || was && seen.state == SuspendState::Waking;
    // A VM that was woken counts as suspended until its spec is changed; the event comes once. One that wakes for its migration has another phase.
    let shown = condition::find(&pass.before, SUSPENDED);
    let was_shown = was && shown.is_some_and(|shown| shown.status == "True");
    match (was_shown, is) {
        (false, true) if !was => {
            let why = if seen.idle { "it was idle" } else { "as requested" };
            pass.note(NoteReason::Suspended, format!("{why}; {}", stored(seen)));
        }
        (true, false) => pass.note(NoteReason::Woken, woken(seen)),
        (true, true) | (false, _) => {}
    }
    if is {
        pass.status.power_state = Some(PowerState::Suspended);
        if !pass.is_moving() {
            pass.status.phase = Some(Phase::Suspended);
        }
    } else {
        // A spec that still requests it is changed first: until then this VM counts as one that was woken.
        let keeps = was && pass.vm.spec.is_suspended();
        let now = pass.status.power_state.filter(|state| *state != PowerState::Suspended);
        pass.status.power_state = if keeps { Some(PowerState::Suspended) } else { now };
        if pass.status.phase == Some(Phase::Suspended) {
            pass.status.phase = Some(Phase::Running);
        }
    }
}

fn stored(seen: &SuspendStatus) -> String {
    let took = seen.stored_in_ms.map_or_else(String::new, |ms| format!(" in {ms} ms"));
    seen.stored.map_or_else(String::new, |bytes| {
        format!("{} MiB of memory were stored{took}", bytes.get().div_ceil(1 << 20))
    })
}

fn woken(seen: &SuspendStatus) -> String {
    let by = match seen.woken_by {
        Some(WokenBy::Network) => "by a packet",
        Some(WokenBy::Command) => "by a command",
        Some(WokenBy::Stop) => "to shut down",
        Some(WokenBy::Request | WokenBy::Unknown) | None => "as requested",
    };
    let took = seen.woke_in_ms.map_or_else(String::new, |ms| format!(" in {ms} ms"));
    format!("{by}{took}")
}

fn show(pass: &mut Pass<'_>, seen: &SuspendStatus, is_up: bool) {
    let wakes = if seen.deaf { "a command wakes it" } else { "a packet for it, or a command, wakes it" };
    let finding = match (seen.state, seen.asked) {
        (SuspendState::Suspended, false) if seen.asks => {
            Finding::yes("Waking", "it is needed, and waits for the answer whether its node has room")
        }
        (SuspendState::Suspended, _) => {
            let reason = if seen.idle { "Idle" } else { "Requested" };
            Finding::yes(reason, format!("{}; {wakes}", stored(seen)))
        }
        (SuspendState::Waking, _) => Finding::yes("Waking", "QEMU starts from the stored memory"),
        (SuspendState::Suspending, _) => Finding::no("Suspending", "the memory of the guest is being stored"),
        (SuspendState::Awake, true) if !is_up => {
            Finding::no("Booting", "the VM is suspended when its guest is up")
        }
        (SuspendState::Awake, true) => match &seen.denied {
            Some(why) => Finding::no("GuestBusy", format!("the guest denies to be suspended: {why}")),
            None => Finding::no("Suspending", "the VM is being suspended"),
        },
        (SuspendState::Awake, false) if pass.vm.spec.is_suspended() && pass.is_moving() => {
            Finding::no("Migrating", "the VM is suspended when its migration has ended")
        }
        (SuspendState::Awake, false) if pass.vm.spec.idle.is_some() && seen.wakes > 0 => {
            Finding::no("Awake", format!("it was last woken {}", woken(seen)))
        }
        (SuspendState::Awake, false) if pass.vm.spec.idle.is_some() => {
            Finding::no("Awake", "it is suspended when it is idle")
        }
        (SuspendState::Awake | SuspendState::Unknown, _) => {
            condition::remove(&mut pass.status, SUSPENDED);
            return;
        }
    };
    pass.set(SUSPENDED, &finding);
}

/// A VM that has ended is not suspended. Returns what to add to the reason of its end.
pub(super) fn forget(pass: &mut Pass<'_>, reason: ExitReason) -> &'static str {
    // One that has shut down was woken for that.
    let was = pass.before.power_state == Some(PowerState::Suspended) && reason != ExitReason::Stopped;
    pass.status.power_state = pass.status.power_state.filter(|state| *state != PowerState::Suspended);
    condition::remove(&mut pass.status, SUSPENDED);
    if was { "; it was suspended, and its stored memory is lost" } else { "" }
}
