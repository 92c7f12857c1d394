//! The workload in the guest: restarts that the guest makes by itself are in the status and in events.

use neonvm_api::virtual_machine::Workload;
use neonvm_types::runner_protocol::{ProcessExit, WorkloadStatus};

use super::Pass;
use crate::outcome::NoteReason;

/// Seconds between two writes: a workload that ends at once is started again every ten seconds.
const BETWEEN_WRITES: i64 = 30;

/// Brings the status up to date.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(seen) = pass.observed.runner.current().and_then(|runner| runner.workload) else { return };
    let now = of(&seen);
    let before = pass.before.workload;
    if before.map(|before| Workload { time: None, ..before }) == now {
        return;
    }
    let Some(now) = now else {
        // The VM was started again.
        pass.status.workload = None;
        return;
    };
    if let Some(at) = before.and_then(|before| before.time)
        && before.is_some_and(|before| before.restarts < now.restarts)
        && !pass.has_passed(at, BETWEEN_WRITES)
    {
        return;
    }
    let what =
        if now.out_of_memory { NoteReason::WorkloadOutOfMemory } else { NoteReason::WorkloadRestarted };
    pass.note(what, text(&now));
    pass.status.workload = Some(Workload { time: Some(pass.now), ..now });
}

/// What is worth showing; nothing of a workload that was never started again.
fn of(seen: &WorkloadStatus) -> Option<Workload> {
    let ProcessExit { code, signal, out_of_memory } = seen.last_exit.unwrap_or_default();
    (seen.restarts > 0).then_some(Workload {
        restarts: seen.restarts,
        exit_code: code,
        signal,
        out_of_memory,
        time: None,
    })
}

fn text(workload: &Workload) -> String {
    let how = match (workload.exit_code, workload.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    let memory = if workload.out_of_memory { ", out of memory" } else { "" };
    format!("the workload {how}{memory}; the guest has started it again {} times", workload.restarts)
}
