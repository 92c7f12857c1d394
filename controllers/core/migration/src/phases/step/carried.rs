//! The source may have received the order to begin. From here on only the runners have the progress; their reports are
//! written to the status, and the VM's own reconcile acts on them.

use neonvm_api::VirtualMachine;
use neonvm_api::migration::MigrationReason;
use neonvm_types::runner_protocol::{
    MIGRATION_NOT_IN_TIME, MIGRATION_PORT, MigrationCall, MigrationRequest, MigrationState, MigrationStatus,
};

use super::{Pass, address};
use crate::phases::parameters::resolve;
use crate::phases::{MigrationAction, report};
use neonvm_core_vm_lifecycle::condition::AVAILABLE;
use neonvm_core_vm_lifecycle::time;

pub(super) fn step(pass: &mut Pass<'_>, vm: &VirtualMachine) {
    if pass.source().is_gone() {
        // Whether the VM is lost or lives at the target is for its own pass to find out.
        pass.status.message = "the source pod is gone".to_owned();
        return;
    }
    match pass.source_report() {
        Some(reported) => carried(pass, reported),
        None if pass.source().is_reachable() => begin(pass, vm),
        None => pass.status.message = "waits for the source runner".to_owned(),
    }
}

/// The source does not have this migration yet.
fn begin(pass: &mut Pass<'_>, vm: &VirtualMachine) {
    if pass.is_cancelled() {
        if pass.observed.unknown_at_source {
            pass.decide(MigrationReason::Cancelled, "cancelled before anything was copied");
        } else {
            // An earlier order without response may still be in flight: the source must confirm that it has none.
            cancel(pass);
        }
        return;
    }
    if pass.target().is_gone() {
        if !pass.observed.fresh {
            pass.refresh();
            return;
        }
        let why = pass.target().exit().map_or("the target pod is gone", |exit| exit.message.as_str());
        pass.decide(MigrationReason::TargetFailed, why);
        return;
    }
    let since = pass.before.conditions.iter().find(|now| now.type_ == AVAILABLE && now.status == "True");
    let since = since.and_then(|now| time(&now.last_transition_time));
    let late = since.is_some_and(|since| pass.has_passed(since, pass.settings.migration.start_timeout));
    if late {
        let failure = pass.observed.failure.as_ref().map(|failure| failure.message.clone());
        let why = failure.unwrap_or_else(|| "the source runner did not begin".to_owned());
        pass.decide(MigrationReason::TransferFailed, why);
        return;
    }
    let target = pass.observed.target.as_ref().map(|pod| pod.ip.clone()).unwrap_or_default();
    if pass.target_state() != Some(MigrationState::Waiting) || target.is_empty() {
        pass.status.message = "waits for the target runner".to_owned();
        return;
    }
    match resolve(pass.migration, vm, &pass.observed.policies) {
        Ok(resolved) => {
            pass.status.policy = resolved.policy;
            pass.status.dropped = resolved.dropped;
            pass.actions.push(MigrationAction::Start(MigrationRequest {
                id: pass.uid().to_owned(),
                target: address(&target, MIGRATION_PORT),
                parameters: resolved.parameters,
            }));
        }
        Err(error) => pass.decide(MigrationReason::Refused, error.to_string()),
    }
}

fn cancel(pass: &mut Pass<'_>) {
    let reason = if pass.is_deleting() { "the migration was deleted" } else { "spec.cancel is set" };
    pass.set_reason(MigrationReason::Cancelling, reason);
    let id = pass.uid().to_owned();
    pass.actions.push(MigrationAction::Cancel(MigrationCall { id, reason: reason.to_owned() }));
}

/// Handles a report of the source.
fn carried(pass: &mut Pass<'_>, reported: &MigrationStatus) {
    use MigrationState as S;
    record(pass, reported);
    let why = reported.reason.clone();
    match reported.state {
        S::Cancelled if pass.is_cancelled() => {
            let why = if why.is_empty() { "cancelled".to_owned() } else { why };
            pass.decide(MigrationReason::Cancelled, why);
        }
        S::Failed if why.starts_with(MIGRATION_NOT_IN_TIME) => pass.decide(MigrationReason::TimedOut, why),
        // Cancelled, but not by this controller.
        S::Cancelled => pass.decide(MigrationReason::TimedOut, why),
        S::Failed => pass.decide(MigrationReason::TransferFailed, why),
        S::Waiting | S::Negotiating | S::Mirroring | S::Copying | S::Switching if pass.is_cancelled() => {
            cancel(pass);
        }
        state => {
            if let Some(reason) = report::reason(state) {
                pass.set_reason(reason, report::message(reported));
            }
            if state.has_left() && pass.is_cancelled() {
                pass.status.message.push_str("; too late to cancel it");
            }
        }
    }
}

/// Copies statistics and mode from the report to the status.
pub(super) fn record(pass: &mut Pass<'_>, reported: &MigrationStatus) {
    pass.status.info = report::info(&reported.progress);
    if !reported.mode.is_empty() {
        pass.status.mode.clone_from(&reported.mode);
    }
    for dropped in &reported.dropped {
        if !pass.status.dropped.contains(dropped) {
            pass.status.dropped.push(dropped.clone());
        }
    }
}
