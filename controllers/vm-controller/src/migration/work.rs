//! Reconcile of the migrations of one VM, as for VMs: step, write the status, carry out the actions, step again.

use std::time::Duration;

use kube::ResourceExt as _;
use neonvm_api::migration::MigrationPhase;
use neonvm_api::{VirtualMachineMigration, merge_patch};
use neonvm_core_migration::phases::queue::Admission;
use neonvm_core_migration::phases::{MigrationAction, MigrationOutcome, is_over, step};
use neonvm_core_vm_lifecycle::NoteReason;

use super::machine_of;
use super::observe::{holds, line, observe};
use neonvm_kit::queue;

use crate::act::Failed;
use crate::cache::{Key, key_of};
use crate::clock::now;
use crate::reconciler::Reconciler;
use crate::request::{is_missing, within};
use crate::state::State;
use crate::{note, reconcile};

const STEPS: usize = 12;
/// If no more than so many wait, the position in the queue that each shows is updated whenever the queue changes.
const SHOWN: usize = 64;

/// Reconciles the migrations of a VM. `Gone`: there are none.
pub(crate) async fn reconcile(reconciler: &Reconciler, vm: &Key) -> queue::Outcome {
    let all = reconciler.state.migrating.of_vm(vm);
    super::tidy::tidy(reconciler, &all).await;
    let mut result = queue::Outcome::Gone;
    for migration in all {
        let key = key_of(&migration.metadata);
        let one = work(reconciler, vm, &key).await;
        result = match (result, one) {
            (queue::Outcome::Failed, _) | (_, queue::Outcome::Failed) => queue::Outcome::Failed,
            (queue::Outcome::Gone, one) => one,
            (one, queue::Outcome::Gone) => one,
            (queue::Outcome::Done(a), queue::Outcome::Done(b)) => {
                queue::Outcome::Done(a.into_iter().chain(b).min())
            }
        };
    }
    result
}

async fn work(reconciler: &Reconciler, vm_key: &Key, key: &Key) -> queue::Outcome {
    let mut fresh = false;
    let mut done: Vec<MigrationAction> = Vec::new();
    for _ in 0..STEPS {
        let Some(migration) = reconciler.state.migrating.get(key) else { return queue::Outcome::Gone };
        let vm = reconciler.state.cache.vm(vm_key);
        // Between the read of the queue and the write of the phase no other migration may begin.
        let begun = migration.status.as_ref().is_some_and(|now| now.phase == Some(MigrationPhase::Running));
        let _gate = match begun || is_over(&migration) {
            true => None,
            false => Some(reconciler.state.migrating.gate.lock().await),
        };
        let policies = reconciler.state.migrating.policies();
        let observed = observe(reconciler, vm_key, vm.as_deref(), &migration, &policies, fresh);
        let outcome = step(now(), &migration, &observed, &reconciler.state.settings);
        if outcome.actions == [MigrationAction::Refresh] {
            if fresh || refresh(reconciler, vm_key, key).await.is_err() {
                return queue::Outcome::Failed;
            }
            fresh = true;
            continue;
        }
        let before = migration.status.clone().unwrap_or_default();
        let todo: Vec<MigrationAction> =
            outcome.actions.iter().filter(|action| !done.contains(action)).cloned().collect();
        if outcome.status == before && todo.is_empty() {
            if observed.failure.is_some() && outcome.actions.is_empty() {
                forget_failure(reconciler, &migration);
                reconciler.state.queue.add(vm_key);
            }
            return rest(&outcome);
        }
        let wrote = outcome.status != before;
        let result = match wrote {
            true => write(reconciler, vm_key, &migration, &outcome).await,
            false => Ok(()),
        };
        let result = match result {
            Ok(()) => run(reconciler, vm_key, key, &todo, &mut done).await,
            failed => failed,
        };
        match result {
            Ok(()) => {
                if !todo.is_empty() {
                    forget_failure(reconciler, &migration);
                }
                // The VM's own reconcile acts on the decision.
                reconciler.state.queue.add(vm_key);
            }
            Err(Failed::Conflict) => {
                if fresh || refresh(reconciler, vm_key, key).await.is_err() {
                    return queue::Outcome::Failed;
                }
                fresh = true;
            }
            Err(Failed::Failure(failure)) => {
                tracing::info!(migration = %key, reason = failure.reason.as_str(), error = %failure.message, "not done");
                let uid = migration.uid().unwrap_or_default();
                let known = reconciler
                    .state
                    .migrating
                    .key_state(&uid, |state| state.failure.replace(failure.clone()));
                if known.as_ref() != Some(&failure) {
                    report_failure(reconciler, vm_key, key, fresh).await;
                }
                return queue::Outcome::Failed;
            }
        }
    }
    tracing::error!(migration = %key, "the migration does not converge");
    queue::Outcome::Failed
}

fn forget_failure(reconciler: &Reconciler, migration: &VirtualMachineMigration) {
    reconciler.state.migrating.key_state(&migration.uid().unwrap_or_default(), |state| state.failure = None);
}

fn rest(outcome: &MigrationOutcome) -> queue::Outcome {
    queue::Outcome::Done(outcome.wake_at.map(crate::clock::until))
}

async fn run(
    reconciler: &Reconciler,
    vm: &Key,
    key: &Key,
    todo: &[MigrationAction],
    done: &mut Vec<MigrationAction>,
) -> Result<(), Failed> {
    for action in todo {
        let Some(migration) = reconciler.state.migrating.get(key) else { return Ok(()) };
        reconciler.act_on_migration(vm, &migration, action).await?;
        done.push(action.clone());
    }
    Ok(())
}

/// Writes down that an action failed; the action itself waits for the next reconcile.
async fn report_failure(reconciler: &Reconciler, vm_key: &Key, key: &Key, fresh: bool) {
    let Some(migration) = reconciler.state.migrating.get(key) else { return };
    let vm = reconciler.state.cache.vm(vm_key);
    let policies = reconciler.state.migrating.policies();
    let observed = observe(reconciler, vm_key, vm.as_deref(), &migration, &policies, fresh);
    let outcome = step(now(), &migration, &observed, &reconciler.state.settings);
    if outcome.actions != [MigrationAction::Refresh]
        && outcome.status != migration.status.clone().unwrap_or_default()
        && let Err(error) = write(reconciler, vm_key, &migration, &outcome).await
    {
        tracing::debug!(migration = %key, ?error, "the failure was not written down");
    }
}

/// Reads the migration, then its VM and pods, from the server itself.
async fn refresh(reconciler: &Reconciler, vm_key: &Key, key: &Key) -> Result<(), kube::Error> {
    match within(reconciler.requests.migrations(&key.namespace).get(&key.name)).await {
        Ok(read) => drop(reconciler.state.migrating.put(read)),
        Err(error) if is_missing(&error) => drop(reconciler.state.migrating.remove(key, None)),
        Err(error) => return Err(error),
    }
    reconcile::refresh(reconciler, vm_key).await
}

/// Writes the status, then publishes events.
async fn write(
    reconciler: &Reconciler,
    vm_key: &Key,
    migration: &VirtualMachineMigration,
    outcome: &MigrationOutcome,
) -> Result<(), Failed> {
    let json =
        |status: &neonvm_api::VirtualMachineMigrationStatus| serde_json::to_value(status).unwrap_or_default();
    let before = migration.status.clone().unwrap_or_default();
    let change = merge_patch::difference(&json(&before), &json(&outcome.status));
    let change = if migration.status.is_none() { Some(json(&outcome.status)) } else { change };
    if let Some(change) = change {
        reconciler.write_migration_status(migration, change).await?;
    }
    let (from, to) = (before.phase, outcome.status.phase);
    if from != to || before.reason != outcome.status.reason {
        let name = migration.name_any();
        tracing::info!(vm = %vm_key, migration = name, phase = ?to, reason = %outcome.status.reason, "migration");
    }
    count(reconciler, outcome);
    let vm = reconciler.state.cache.vm(vm_key);
    for note in &outcome.events {
        note::publish_migration(&reconciler.events, migration, vm.as_deref(), note);
    }
    if from != to {
        // A place has become free, or has been taken.
        wake(&reconciler.state);
    }
    Ok(())
}

fn count(reconciler: &Reconciler, outcome: &MigrationOutcome) {
    for note in &outcome.events {
        match note.reason {
            NoteReason::Migrated => {
                let downtime = u64::try_from(outcome.status.info.downtime_ms).unwrap_or(0);
                let total = u64::try_from(outcome.status.info.total_time_ms).unwrap_or(0);
                reconciler
                    .metrics
                    .migrations
                    .succeeded(Duration::from_millis(downtime), Duration::from_millis(total));
            }
            NoteReason::MigrationFailed | NoteReason::MigrationCancelled => {
                reconciler.metrics.migrations.failed(&outcome.status.reason);
            }
            _ => {}
        }
    }
}

/// Wakes those that may be admitted now.
pub(crate) fn wake(state: &State) {
    let open = state.migrating.open();
    let line = line(state);
    let all = line.len() <= SHOWN;
    let goes =
        |uid: &str| line.iter().any(|(one, answer)| one.uid == uid && (all || *answer == Admission::Go));
    for migration in open {
        let vm = machine_of(&migration);
        let uid = migration.metadata.uid.as_deref().unwrap_or_default();
        // Those that are prepared may wait for a place on their target's node.
        if goes(uid) || holds(state.cache.vm(&vm).as_deref(), &migration) {
            state.queue.add(&vm);
        }
    }
}
