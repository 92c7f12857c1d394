//! Size: the requested size goes to the runner, the size that the runner reports goes to the status. Only observation
//! changes the status.

use neonvm_api::virtual_machine::{Phase, ScalingFrom};
use neonvm_types::runner_protocol::{
    Problem, ProblemReason, RunnerState, RunnerStatus, SizeRequest, SuspendStatus,
};
use neonvm_types::{Bytes, MilliCpu, Quantity, RevisionWithTime};

use super::room::{self, Short, Sizes};
use super::{Pass, pause};
use crate::condition::{self, Finding, SCALED};
use crate::outcome::{Action, NoteReason};

pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else {
        keep(pass);
        return;
    };
    if !matches!(runner.state, RunnerState::Booting | RunnerState::Running) || runner.exit.is_some() {
        keep(pass);
        return;
    }
    let Some(wanted) = room::wanted(pass) else {
        pass.set(SCALED, &Finding::no("InvalidSpec", "the memory slot size cannot be used"));
        return;
    };
    if pause::is_held(pass) {
        if runner.suspend.as_ref().is_some_and(SuspendStatus::is_asleep) {
            room::asleep(pass);
        }
        standing(pass, Sizes::from_runner(runner, wanted, false));
        return;
    }
    // A VM whose migration has a target keeps its size; sizes requested meanwhile are applied when the migration has ended.
    let moving = pass.before.size_is_held() || pass.status.size_is_held();
    let sizes = Sizes::from_runner(runner, wanted, moving);
    let Sizes { asked, reached, .. } = sizes;
    let known = reached.cpu != MilliCpu::ZERO && reached.memory != Bytes::ZERO;
    let slot = pass.vm.spec.guest.slot_size().unwrap_or_default();
    let problem = problem(runner, slot).filter(|_| asked == wanted);
    // Within one step the size is reached as soon as the runner reports that the guest keeps the rest.
    let keeps_rest = runner.problems.iter().any(|problem| is_remainder(runner, problem, slot));
    let arrived = reached == asked || (keeps_rest && reached.cpu == asked.cpu);
    let settled = known && (arrived || problem.is_some());
    let room = room::step(pass, sizes, settled);
    if asked != room.ask && !moving {
        pass.actions.push(Action::SetSize(room.ask));
    }
    if reached.cpu != MilliCpu::ZERO {
        pass.status.cpus = Some(reached.cpu);
    }
    // A runner that has just started its guest, also by a migration, reports only the size that it was started with.
    if asked == wanted && !known {
        keep(pass);
        return;
    }
    // A size that is there by chance is not settled: the runner may still be on its way to another.
    if arrived && asked == wanted {
        observe_memory(pass, reached.memory);
        done(pass, wanted, reached, slot);
    } else if moving && asked != wanted {
        let finding = Finding::no("Migrating", format!("{} comes after the migration", text(wanted)));
        pass.set(SCALED, &finding);
    } else if let Some(Short::Denied(reason, message)) = room.short {
        observe_memory(pass, reached.memory);
        denied(pass, reason, &message, wanted);
    } else if let Some(problem) = problem {
        observe_memory(pass, reached.memory);
        limited(pass, problem, reached);
    } else if !moving {
        // Memory comes in many small steps; only the final size is written. The first size is written as soon as it is
        // reported, and the current size when a change is cancelled half-way: otherwise the status would not show the
        // plugged memory.
        if pass.status.memory_size.is_none() || reached.memory == wanted.memory || asked != wanted {
            observe_memory(pass, reached.memory);
        }
        pass.status.phase = Some(Phase::Scaling);
        pass.status.scaling_from = before(pass);
        let waits = match room.short {
            Some(Short::Waits(waits)) => format!("; {waits}"),
            _ => String::new(),
        };
        pass.set(SCALED, &Finding::no("InProgress", format!("on the way to {}{waits}", text(wanted))));
    }
}

/// A guest that stands still keeps its size, and its pod the size that fits it. One that was paused as soon as it was up shows the size
/// with which it was started.
fn standing(pass: &mut Pass<'_>, Sizes { wanted, asked, reached, .. }: Sizes) {
    settle(pass);
    if pass.status.cpus.is_none() && reached.cpu != MilliCpu::ZERO {
        pass.status.cpus = Some(reached.cpu);
    }
    if pass.status.memory_size.is_none() {
        observe_memory(pass, reached.memory);
    }
    if asked == wanted {
        keep(pass);
    } else {
        let finding = Finding::no("Paused", format!("{} comes when the VM is resumed", text(wanted)));
        pass.set(SCALED, &finding);
    }
}

fn text(size: SizeRequest) -> String {
    format!("{} CPU and {} of memory", size.cpu, size.memory)
}

/// The recorded condition holds: the runner is not connected, or nothing changes.
fn keep(pass: &mut Pass<'_>) {
    if let Some(now) = condition::find(&pass.status, SCALED).cloned() {
        pass.set(SCALED, &Finding { status: &now.status, reason: &now.reason, message: now.message });
    }
}

fn observe_memory(pass: &mut Pass<'_>, memory: Bytes) {
    if memory != Bytes::ZERO {
        pass.status.memory_size = Some(memory.to_quantity());
    }
}

/// The problem that keeps a VM from its size, if there is one. Without a limit a VM has what it requests, and
/// more: that is no reason to cancel a change that is under way.
fn problem(runner: &RunnerStatus, slot: Bytes) -> Option<&Problem> {
    let keeps = |problem: &&Problem| {
        is_of_size(problem.reason)
            && problem.reason != ProblemReason::CpuNotLimited
            && !is_remainder(runner, problem, slot)
    };
    runner.problems.iter().find(keeps)
}

/// Whether the guest keeps memory, but less than one step (`slot`) above the requested size.
pub(super) fn is_remainder(runner: &RunnerStatus, problem: &Problem, slot: Bytes) -> bool {
    let memory = runner.memory;
    problem.reason == ProblemReason::MemoryNotReleased
        && memory.actual > memory.asked
        && memory.actual.saturating_sub(memory.asked) < slot
}

/// Whether the problem is about size.
pub(super) fn is_of_size(reason: ProblemReason) -> bool {
    use ProblemReason as P;
    matches!(reason, P::MemoryNotReleased | P::MemoryNotTaken | P::CpuNotScaled | P::CpuNotLimited)
}

pub(super) fn word(reason: ProblemReason) -> &'static str {
    match reason {
        ProblemReason::MemoryNotReleased => "MemoryNotReleased",
        ProblemReason::MemoryNotTaken => "MemoryNotTaken",
        ProblemReason::CpuNotScaled => "CpuNotScaled",
        ProblemReason::CpuNotLimited => "CpuNotLimited",
        ProblemReason::GuestUnresponsive => "GuestUnresponsive",
        ProblemReason::WorkloadNotStarted => "WorkloadNotStarted",
        ProblemReason::FilesNotSynchronised => "FilesNotSynchronised",
        ProblemReason::GuestFailure => "GuestFailure",
        ProblemReason::DiskFailure => "DiskFailure",
        ProblemReason::PowerButtonIgnored => "PowerButtonIgnored",
        ProblemReason::WorkloadFailing => "WorkloadFailing",
        ProblemReason::PauseFailed => "PauseFailed",
        ProblemReason::DiskNotGrown => "DiskNotGrown",
        ProblemReason::DiskNotLimited => "DiskNotLimited",
        ProblemReason::SuspendFailed => "SuspendFailed",
        ProblemReason::NodeServiceAway => "NodeServiceAway",
        ProblemReason::Unknown => "UnknownProblem",
    }
}

/// `size` is reached; `has` is what the guest has, which is less than one step (`slot`) more.
fn done(pass: &mut Pass<'_>, size: SizeRequest, has: SizeRequest, slot: Bytes) {
    settle(pass);
    let before = before(pass).and_then(|size| Some((size.cpus, Bytes::try_from(size.memory_size).ok()?)));
    if let Some((cpu, memory)) = before {
        // What the guest keeps of a step, and gives back later, is no change of the size.
        let same = memory > size.memory && memory.saturating_sub(size.memory) < slot;
        let grew = size.cpu > cpu || size.memory > memory;
        let changed = grew || size.cpu < cpu || (size.memory < memory && !same);
        if changed {
            let reason = if grew { NoteReason::ScaledUp } else { NoteReason::ScaledDown };
            let generation = pass.vm.metadata.generation;
            crate::unstable::record(&mut pass.status, grew, pass.now, generation);
            pass.note(reason, format!("from {cpu} CPU and {memory} of memory to {}", text(has)));
        }
    }
    let rest = has.memory.saturating_sub(size.memory);
    let keeps = match rest {
        Bytes::ZERO => String::new(),
        rest => format!("; the guest keeps {rest} more, less than one step of {slot}"),
    };
    pass.set(SCALED, &Finding::yes("Reached", format!("{}{keeps}", text(size))));
}

fn limited(pass: &mut Pass<'_>, problem: &Problem, reached: SizeRequest) {
    settle(pass);
    let reason = word(problem.reason);
    let message = format!("{}; reached {}", problem.message, text(reached));
    if condition::find(&pass.before, SCALED).is_none_or(|before| before.reason != reason) {
        pass.note(NoteReason::ScaleLimited, message.clone());
    }
    pass.set(SCALED, &Finding::no(reason, message));
}

/// The pod does not get what the guest would need.
fn denied(pass: &mut Pass<'_>, reason: &'static str, why: &str, wanted: SizeRequest) {
    settle(pass);
    let message = format!("{}: {why}", text(wanted));
    if condition::find(&pass.before, SCALED).is_none_or(|before| before.reason != reason) {
        pass.note(NoteReason::ScaleDenied, message.clone());
    }
    pass.set(SCALED, &Finding::no(reason, message));
}

/// The size when the change began, or that of now if none is under way.
fn before(pass: &Pass<'_>) -> Option<ScalingFrom> {
    let now = || {
        let (cpus, memory_size) = pass.before.cpus.zip(pass.before.memory_size)?;
        Some(ScalingFrom { cpus, memory_size })
    };
    pass.before.scaling_from.or_else(now)
}

fn settle(pass: &mut Pass<'_>) {
    pass.status.scaling_from = None;
    if pass.status.phase == Some(Phase::Scaling) {
        pass.status.phase = Some(Phase::Running);
    }
}

/// The requested revision is reached when the size is.
pub(super) fn revision(pass: &mut Pass<'_>) {
    let scaled = condition::holds(&pass.status, SCALED) && pass.observed.runner.current().is_some();
    if pass.status.phase != Some(Phase::Running) || !scaled {
        return;
    }
    let (target, current) = (pass.vm.spec.target_revision, pass.status.current_revision);
    if let Some(reached) = RevisionWithTime::propagated(target, current, pass.now) {
        pass.status.current_revision = Some(reached);
    }
}

/// Forgets the size of a VM that ended.
pub(super) fn forget(pass: &mut Pass<'_>) {
    pass.status.cpus = None;
    pass.status.memory_size = None::<Quantity>;
    pass.status.scaling_from = None;
    condition::remove(&mut pass.status, SCALED);
}
