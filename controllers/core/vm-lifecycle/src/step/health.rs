//! The condition `Degraded`: the most important problem, if any.

use neonvm_api::virtual_machine::Phase;

use super::{Pass, ended, size};
use crate::condition::{self, CRASH_LOOP, DEGRADED, Finding};
use crate::crash_loop;
use crate::observed::{Failure, FailureReason, RunnerView};
use crate::outcome::NoteReason;
use crate::pod;
use crate::tls::TlsOutcome;

/// A problem, and the event that reports its beginning.
struct Trouble {
    reason: &'static str,
    message: String,
    event: Option<NoteReason>,
}

pub(super) fn step(pass: &mut Pass<'_>, tls: &TlsOutcome) {
    let trouble = failed_action(pass)
        .or_else(|| stuck(pass))
        .or_else(|| unreachable(pass))
        .or_else(|| invalid(pass))
        .or_else(|| not_started(pass))
        .or_else(|| certificate(tls))
        .or_else(|| runner(pass))
        .or_else(|| history(pass));
    match trouble {
        Some(trouble) => report(pass, trouble),
        None => pass.set(DEGRADED, &Finding::no("Healthy", "")),
    }
}

/// Reports only failed actions.
pub(super) fn failure_only(pass: &mut Pass<'_>) {
    if let Some(trouble) = failed_action(pass) {
        report(pass, trouble);
    }
}

/// For machines that are being deleted.
pub(super) fn stuck_only(pass: &mut Pass<'_>) {
    if let Some(trouble) = failed_action(pass).or_else(|| stuck(pass)) {
        report(pass, trouble);
    }
}

fn report(pass: &mut Pass<'_>, trouble: Trouble) {
    let before = condition::find(&pass.before, DEGRADED);
    let new = before.is_none_or(|before| before.status != "True" || before.reason != trouble.reason);
    if let Some(event) = trouble.event.filter(|_| new) {
        pass.note(event, trouble.message.clone());
    }
    pass.set(DEGRADED, &Finding::yes(trouble.reason, trouble.message));
}

fn failed_action(pass: &Pass<'_>) -> Option<Trouble> {
    let Failure { reason, message } = pass.observed.failure.as_ref()?;
    let event = match reason {
        FailureReason::SecretFailed => NoteReason::SecretFailed,
        FailureReason::CertificateFailed => NoteReason::CertificateFailed,
        FailureReason::AddressFailed => NoteReason::AddressFailed,
        FailureReason::ScaleFailed => NoteReason::ScaleLimited,
        FailureReason::PodFailed
        | FailureReason::ClaimFailed
        | FailureReason::QuotaExceeded
        | FailureReason::ActionFailed
        | FailureReason::PauseFailed
        | FailureReason::SuspendFailed
        | FailureReason::MigrationFailed
        | FailureReason::NoSuitableHost => NoteReason::Failed,
    };
    Some(Trouble { reason: reason.as_str(), message: message.clone(), event: Some(event) })
}

fn stuck(pass: &Pass<'_>) -> Option<Trouble> {
    let message = ended::stuck(pass);
    let event = Some(NoteReason::RunnerUnreachable);
    (!message.is_empty()).then_some(Trouble { reason: "PodStuckTerminating", message, event })
}

fn unreachable(pass: &Pass<'_>) -> Option<Trouble> {
    let RunnerView::Unreachable { since, .. } = &pass.observed.runner else { return None };
    let running = pass.status.phase.is_some_and(Phase::is_alive);
    let overdue = pass.now.unix() >= since.unix().saturating_add(pass.settings.unreachable_after);
    (running && overdue).then(|| Trouble {
        reason: "RunnerUnreachable",
        message: format!("the runner does not answer since {since}"),
        event: Some(NoteReason::RunnerUnreachable),
    })
}

fn invalid(pass: &Pass<'_>) -> Option<Trouble> {
    if pass.status.phase != Some(Phase::Pending) || pass.status.pod_name.is_empty() {
        return None;
    }
    let error = pod::plan(pass.vm, &pass.status.pod_name, pass.settings).err()?;
    let event = Some(NoteReason::Failed);
    Some(Trouble { reason: "InvalidSpec", message: error.to_string(), event })
}

/// A container that the kubelet cannot start, with the kubelet's reason: an image that cannot be pulled, for one.
fn not_started(pass: &Pass<'_>) -> Option<Trouble> {
    let pod = pass.observed.pod.as_ref().filter(|pod| pod.failing && pod.is_live())?;
    let starting = pass.status.phase == Some(Phase::Pending) && pod.deleting.is_none();
    let event = Some(NoteReason::Failed);
    starting.then(|| Trouble { reason: "PodNotStarting", message: pod.waiting.clone(), event })
}

fn certificate(tls: &TlsOutcome) -> Option<Trouble> {
    let message = tls.problem.clone()?;
    let event = Some(NoteReason::CertificateFailed);
    Some(Trouble { reason: "CertificateFailed", message, event })
}

/// The runner's first problem, also of a guest that boots: it may be why it does not get further. While the runner is not
/// connected, its last reported problem stays.
fn runner(pass: &Pass<'_>) -> Option<Trouble> {
    let boots = pass.status.phase == Some(Phase::Pending);
    if !boots && !pass.status.phase.is_some_and(Phase::is_alive) {
        return None;
    }
    match &pass.observed.runner {
        RunnerView::Seen(runner) => {
            let slot = pass.vm.spec.guest.slot_size().unwrap_or_default();
            let mut problems =
                runner.problems.iter().filter(|problem| !size::is_remainder(runner, problem, slot));
            let first = problems.clone().find(|problem| !size::is_of_size(problem.reason));
            let problem = first.or_else(|| problems.next().filter(|_| !boots))?;
            let reason = size::word(problem.reason);
            Some(Trouble { reason, message: problem.message.clone(), event: None })
        }
        RunnerView::Unknown | RunnerView::Unreachable { .. } if boots => None,
        RunnerView::Unknown | RunnerView::Unreachable { .. } => {
            let before = condition::find(&pass.before, DEGRADED).filter(|before| before.status == "True")?;
            let known = (0..=16).map(reason_at).find(|word| *word == before.reason)?;
            Some(Trouble { reason: known, message: before.message.clone(), event: None })
        }
    }
}

/// The words of a runner's problems, by number.
fn reason_at(number: u8) -> &'static str {
    use neonvm_types::runner_protocol::ProblemReason as P;
    size::word(match number {
        0 => P::MemoryNotReleased,
        1 => P::MemoryNotTaken,
        2 => P::CpuNotScaled,
        3 => P::CpuNotLimited,
        4 => P::GuestUnresponsive,
        5 => P::FilesNotSynchronised,
        6 => P::GuestFailure,
        7 => P::DiskFailure,
        8 => P::PowerButtonIgnored,
        9 => P::WorkloadFailing,
        10 => P::PauseFailed,
        11 => P::WorkloadNotStarted,
        12 => P::DiskNotGrown,
        13 => P::NodeServiceAway,
        14 => P::SuspendFailed,
        15 => P::DiskNotLimited,
        _ => P::Unknown,
    })
}

/// A VM that failed, or is on its way back from a failure.
fn history(pass: &Pass<'_>) -> Option<Trouble> {
    if !matches!(pass.status.phase, Some(Phase::Failed | Phase::Pending)) {
        return None;
    }
    let last = pass.status.last_exit.as_ref()?;
    let reason = exit_word(&last.reason).filter(|_| last.exit_code != Some(0))?;
    let loops =
        condition::find(&pass.status, CRASH_LOOP).map(|loops| loops.message.as_str()).unwrap_or_default();
    let given_up = crash_loop::given_up(&pass.status, pass.vm.metadata.generation);
    let tail = if given_up { "; not started again until the spec changes" } else { "" };
    let parts: Vec<&str> =
        [last.message.as_str(), loops].into_iter().filter(|part| !part.is_empty()).collect();
    Some(Trouble { reason, message: format!("{}{tail}", parts.join("; ")), event: None })
}

/// The reason for an exit that was a failure. Whether a workload succeeded is shown by the phase alone.
fn exit_word(reason: &str) -> Option<&'static str> {
    use neonvm_types::runner_protocol::ExitReason as E;
    let failures = [
        E::WorkloadEnded,
        E::StoppedByForce,
        E::GuestPanic,
        E::QemuEnded,
        E::AcceleratorFailure,
        E::StartFailure,
        E::RunnerKilled,
        E::Preempted,
        E::Evicted,
        E::NodeLost,
        E::Unknown,
    ];
    failures.into_iter().map(E::as_str).find(|word| *word == reason)
}
