//! Reconcile of a VM: step the core, write the status, carry out the actions, step again, until nothing is left.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::{ActiveMigration, Phase};
use neonvm_api::{VirtualMachine, VirtualMachineStatus, merge_patch};
use neonvm_core_migration::phases;
use neonvm_core_vm_lifecycle::tls::TlsObserved;
use neonvm_core_vm_lifecycle::{
    Action, FailureReason, Moving, Note, NoteReason, Observed, Outcome, PodView, RunnerView, deserves_link,
};
use neonvm_core_vm_lifecycle::{owned_pod, step};
use neonvm_types::NamespacedName;
use tokio::time::Instant;

use neonvm_kit::queue;

use crate::act::Failed;
use crate::cache::Key;
use crate::clock::{now, until};
use crate::lag::Ended;
use crate::link::Target;
use crate::preemption::explained;
use crate::reconciler::Reconciler;
use crate::request::{is_missing, within};
use crate::{growth, migration, note};

/// Steps of a reconcile; more would mean that the core does not converge.
const STEPS: usize = 12;

pub(crate) async fn reconcile(reconciler: &Reconciler, key: &Key) -> queue::Outcome {
    let started = Instant::now();
    let (mut own, ended) = work(reconciler, key).await;
    let histogram = match ended {
        Ended::Well => &reconciler.metrics.success,
        Ended::Badly => &reconciler.metrics.failure,
        Ended::InConflict => &reconciler.metrics.conflict,
    };
    histogram.observe(started.elapsed());
    if own == queue::Outcome::Gone {
        reconciler.forget(key);
    } else {
        reconciler.lag.record(key, ended);
    }
    let grows =
        if own == queue::Outcome::Gone { own } else { growth::reconcile(&reconciler.growth, key).await };
    own = both(own, grows);
    let moves = migration::reconcile(reconciler, key).await;
    if own == queue::Outcome::Gone && moves != queue::Outcome::Gone {
        own = moves;
    }
    both(own, moves)
}

/// What comes of a reconcile of which a part did something else.
fn both(own: queue::Outcome, part: queue::Outcome) -> queue::Outcome {
    match (own, part) {
        (queue::Outcome::Done(wake), queue::Outcome::Done(other)) => {
            queue::Outcome::Done(wake.into_iter().chain(other).min())
        }
        (queue::Outcome::Done(_), queue::Outcome::Failed) => queue::Outcome::Failed,
        (own, _) => own,
    }
}

async fn work(reconciler: &Reconciler, key: &Key) -> (queue::Outcome, Ended) {
    let mut fresh = false;
    let mut done: Vec<Action> = Vec::new();
    for _ in 0..STEPS {
        let Some(vm) = reconciler.state.cache.vm(key) else { return (queue::Outcome::Gone, Ended::Well) };
        if let Err(ended) = look_for_cert_manager(reconciler, key, &vm).await {
            return ended;
        }
        let observed = explained(reconciler, key, &vm, observe(reconciler, key, &vm, fresh)).await;
        link(reconciler, key, &vm, &observed);
        let outcome = step(now(), &vm, &observed, &reconciler.state.settings(&key.namespace));
        if outcome.actions == [Action::Refresh] {
            if fresh || refresh(reconciler, key).await.is_err() {
                return (queue::Outcome::Failed, Ended::Badly);
            }
            fresh = true;
            continue;
        }
        let before = vm.status.clone().unwrap_or_default();
        let todo: Vec<Action> =
            outcome.actions.iter().filter(|action| !done.contains(action)).cloned().collect();
        if outcome.status == before && todo.is_empty() {
            return rest(reconciler, key, &observed, &outcome);
        }
        // The size goes first: users wait for it.
        let resized = resize(reconciler, key, &vm, &todo, &mut done).await;
        if outcome.status != before {
            match write(reconciler, key, &vm, &outcome).await {
                Ok(()) => fresh |= before.phase.is_none(),
                Err(Failed::Conflict) => {
                    if refresh(reconciler, key).await.is_err() {
                        return (queue::Outcome::Failed, Ended::InConflict);
                    }
                    fresh = true;
                    continue;
                }
                Err(Failed::Failure(failure)) => {
                    tracing::warn!(vm = %key, error = %failure.message, "the status was not written");
                    return (queue::Outcome::Failed, Ended::Badly);
                }
            }
        }
        // The version that the write made, for actions that are guarded by it.
        let Some(vm) = reconciler.state.cache.vm(key) else { continue };
        let acted = match resized {
            Ok(()) => run(reconciler, key, &vm, todo, &mut done).await,
            failed => failed,
        };
        match acted {
            Ok(()) => {
                reconciler.key_states.with(key, |state| state.failure = None);
                if outcome.status == before {
                    // Events that no write of the status has published.
                    outcome.events.iter().for_each(|note| note::publish(&reconciler.events, &vm, note));
                }
            }
            Err(Failed::Conflict) => {
                if refresh(reconciler, key).await.is_err() {
                    return (queue::Outcome::Failed, Ended::InConflict);
                }
                // What was in conflict is tried again by the next reconcile, with backoff.
                return (queue::Outcome::Failed, Ended::InConflict);
            }
            Err(Failed::Failure(failure)) => {
                tracing::info!(vm = %key, reason = failure.reason.as_str(), error = %failure.message, "not done");
                reconciler.key_states.with(key, |state| state.failure = Some(failure));
                report_failure(reconciler, key, fresh).await;
                return (queue::Outcome::Failed, Ended::Badly);
            }
        }
    }
    tracing::error!(vm = %key, "the VM does not converge");
    (queue::Outcome::Failed, Ended::Badly)
}

/// Nothing to do. A failure is over when its action is no longer requested.
fn rest(
    reconciler: &Reconciler,
    key: &Key,
    observed: &Observed,
    outcome: &Outcome,
) -> (queue::Outcome, Ended) {
    if observed.failure.is_some() {
        reconciler.key_states.with(key, |state| state.failure = None);
        reconciler.state.queue.add(key);
    }
    (queue::Outcome::Done(outcome.wake_at.map(until)), Ended::Well)
}

/// The sizes of pod and guest, before anything else.
async fn resize(
    reconciler: &Reconciler,
    key: &Key,
    vm: &VirtualMachine,
    todo: &[Action],
    done: &mut Vec<Action>,
) -> Result<(), Failed> {
    let sizes = todo.iter().filter(|action| matches!(action, Action::ResizePod { .. } | Action::SetSize(_)));
    for action in sizes {
        reconciler.act(key, vm, action).await?;
        done.push(action.clone());
    }
    Ok(())
}

async fn run(
    reconciler: &Reconciler,
    key: &Key,
    vm: &VirtualMachine,
    todo: Vec<Action>,
    done: &mut Vec<Action>,
) -> Result<(), Failed> {
    for action in todo {
        if !done.contains(&action) {
            reconciler.act(key, vm, &action).await?;
            done.push(action);
        }
    }
    Ok(())
}

/// Writes down that an action failed; the action itself waits for the next reconcile.
async fn report_failure(reconciler: &Reconciler, key: &Key, fresh: bool) {
    let Some(vm) = reconciler.state.cache.vm(key) else { return };
    let observed = observe(reconciler, key, &vm, fresh);
    let outcome = step(now(), &vm, &observed, &reconciler.state.settings(&key.namespace));
    if outcome.status != vm.status.clone().unwrap_or_default()
        && let Err(error) = write(reconciler, key, &vm, &outcome).await
    {
        tracing::debug!(vm = %key, ?error, "the failure was not written down");
    }
}

fn observe(reconciler: &Reconciler, key: &Key, vm: &VirtualMachine, fresh: bool) -> Observed {
    let uid = vm.metadata.uid.clone().unwrap_or_default();
    let (pod, runner) = reconciler.state.runner_pod(key, &uid, owned_pod(vm).unwrap_or_default());
    let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
    let moving = lock.map(|lock| moving(reconciler, key, &uid, lock)).unwrap_or_default();
    let named =
        |name: &str| owned_pod(vm) == Some(name) || lock.is_some_and(|lock| lock.target_pod_name == name);
    let pods = reconciler.state.cache.pods(key);
    let orphans = pods.iter().filter(|pod| pod.owner == uid && !named(&pod.view.name));
    let tls = if vm.spec.tls.is_some() {
        let (secret, key, request) = reconciler.state.cache.tls(key);
        TlsObserved { api: reconciler.cert_manager.is_present(), secret, request, key }
    } else {
        TlsObserved::default()
    };
    Observed {
        fresh,
        pod,
        orphans: orphans.map(|pod| pod.view.clone()).collect(),
        runner,
        tls,
        claims: reconciler.state.claims.of(vm),
        address: reconciler.addresses.view(&key.to_string()),
        moving,
        resize_refused: reconciler.key_states.with(key, |state| state.resize_refused.clone()),
        size_unanswered: reconciler.key_states.with(key, |state| state.size_unanswered.clone()),
        limits_requested: reconciler.key_states.with(key, |state| state.limits_requested.clone()),
        disks_requested: reconciler.key_states.with(key, |state| state.disks_requested.clone()),
        failure: reconciler.key_states.with(key, |state| state.failure.clone()),
        suffix: reconciler.suffix(),
    }
}

fn moving(reconciler: &Reconciler, key: &Key, vm: &str, lock: &ActiveMigration) -> Moving {
    let (target, target_runner) = reconciler.state.runner_pod(key, vm, &lock.target_pod_name);
    let found = reconciler.state.migrating.get(&Arc::new(NamespacedName::new(&key.namespace, &lock.name)));
    let found = found.filter(|found| found.metadata.uid.as_ref() == Some(&lock.uid));
    Moving {
        mover: found.map(|found| phases::mover(&found)),
        recovered: reconciler.key_states.with(key, |state| state.recovered),
        refused: target.as_ref().is_some_and(|target| {
            reconciler.key_states.with(key, |state| state.refused.as_deref() == Some(target.uid.as_str()))
        }),
        target,
        target_runner,
    }
}

/// Opens the status streams of the runners in the VM's pod and, during a migration, in the target pod.
fn link(reconciler: &Reconciler, key: &Key, vm: &VirtualMachine, observed: &Observed) {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    let open = |pod: &PodView, runner: &RunnerView| {
        if let Some(target) = Target::new(uid, pod, vm.spec.runner_port)
            && runner.exit().is_none()
        {
            reconciler.state.links.open(key, target);
        }
    };
    let status = vm.status.as_ref();
    let mut keep = reconciler.state.migrating.pods_in_use(key);
    if let Some(lock) = status.and_then(|status| status.migration.as_ref()) {
        keep.insert(lock.target_pod_name.clone());
        keep.extend(owned_pod(vm).map(str::to_owned));
        if let Some(target) = observed.moving.target.as_ref().filter(|target| deserves_link(target)) {
            open(target, &observed.moving.target_runner);
        }
    }
    // The last report of a runner whose pod vanished is still needed while the VM counts as running.
    let alive = status.and_then(|status| status.phase).is_some_and(Phase::is_alive);
    let keeps = match &observed.pod {
        Some(pod) => pod.is_live(),
        None => alive,
    };
    if keeps {
        keep.extend(owned_pod(vm).map(str::to_owned));
    }
    if let Some(pod) = observed.pod.as_ref().filter(|pod| deserves_link(pod)) {
        open(pod, &observed.runner);
    }
    reconciler.state.links.retain(key, |pod| keep.contains(pod));
}

/// Only VMs that name an issuer depend on whether cert-manager is there.
async fn look_for_cert_manager(
    reconciler: &Reconciler,
    key: &Key,
    vm: &VirtualMachine,
) -> Result<(), (queue::Outcome, Ended)> {
    if vm.spec.tls.as_ref().is_none_or(|tls| tls.certificate_issuer.is_empty())
        || vm.metadata.deletion_timestamp.is_some()
    {
        return Ok(());
    }
    if let Err(error) = within(reconciler.cert_manager.look(
        &reconciler.requests.client,
        &reconciler.state.cache,
        &reconciler.state.queue,
    ))
    .await
    {
        tracing::warn!(vm = %key, %error, "whether cert-manager is there cannot be read from the API server");
        let failed = Failed::new(FailureReason::CertificateFailed, "cert-manager cannot be looked for");
        if let Failed::Failure(failure) = failed {
            reconciler.key_states.with(key, |state| state.failure = Some(failure));
        }
        report_failure(reconciler, key, false).await;
        return Err((queue::Outcome::Failed, Ended::Badly));
    }
    Ok(())
}

/// Reads the VM, its pods and the migration that it names from the server itself.
pub(crate) async fn refresh(reconciler: &Reconciler, key: &Key) -> Result<(), kube::Error> {
    let known = reconciler.state.cache.vm(key).and_then(|vm| vm.metadata.uid.clone());
    match within(reconciler.requests.vms(&key.namespace).get(&key.name)).await {
        Ok(read) => drop(reconciler.state.cache.put_vm(read)),
        Err(error) if is_missing(&error) => {
            reconciler.state.cache.drop_vm(key, known.as_deref());
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let vm = reconciler.state.cache.vm(key);
    if let Some(lock) = vm.as_ref().and_then(|vm| vm.status.as_ref()?.migration.as_ref()) {
        let name = Arc::new(NamespacedName::new(&key.namespace, &lock.name));
        match within(reconciler.requests.migrations(&key.namespace).get(&lock.name)).await {
            Ok(read) => drop(reconciler.state.migrating.put(read)),
            Err(error) if is_missing(&error) => drop(reconciler.state.migrating.remove(&name, None)),
            Err(error) => return Err(error),
        }
    }
    let selector = format!("{}={}", label::VM_NAME, key.name);
    let list =
        within(reconciler.requests.pods(&key.namespace).list(&ListParams::default().labels(&selector)))
            .await?;
    let uids = list.items.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    list.items.iter().for_each(|pod| drop(reconciler.state.cache.put_pod(pod)));
    reconciler.state.cache.retain_pods(Some(key), &uids);
    Ok(())
}

/// Writes the status, then publishes events.
async fn write(
    reconciler: &Reconciler,
    key: &Key,
    vm: &VirtualMachine,
    outcome: &Outcome,
) -> Result<(), Failed> {
    let json = |status: &neonvm_api::VirtualMachineStatus| serde_json::to_value(status).unwrap_or_default();
    let before = vm.status.clone().unwrap_or_default();
    let change = merge_patch::difference(&json(&before), &json(&outcome.status));
    let change = if vm.status.is_none() { Some(json(&outcome.status)) } else { change };
    if let Some(change) = change {
        reconciler.write_status(key, vm, change).await?;
    }
    let (from, to) = (before.phase, outcome.status.phase);
    if from != to {
        let word = |phase: Option<Phase>| phase.map_or("", Phase::as_str);
        tracing::info!(vm = %key, from = word(from), to = word(to), pod = %outcome.status.pod_name, "phase");
    }
    count(reconciler, key, vm, outcome);
    report(reconciler, key, vm, &outcome.events);
    if before.migration.is_some() != outcome.status.migration.is_some() {
        migration::wake(&reconciler.state);
    }
    Ok(())
}

/// Publishes the notes as events; those about a migration also for the migration.
fn report(reconciler: &Reconciler, key: &Key, vm: &VirtualMachine, notes: &[Note]) {
    let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
    let migration = lock.and_then(|lock| {
        reconciler.state.migrating.get(&Arc::new(NamespacedName::new(&key.namespace, &lock.name)))
    });
    for note in notes {
        match &migration {
            Some(migration) if note.reason.is_of_migration() => {
                note::publish_migration(&reconciler.events, migration, Some(vm), note);
            }
            _ => note::publish(&reconciler.events, vm, note),
        }
    }
}

fn count(reconciler: &Reconciler, key: &Key, vm: &VirtualMachine, outcome: &Outcome) {
    let before = vm.status.as_ref().and_then(|status| status.phase);
    let after = outcome.status.phase;
    if outcome.events.iter().any(|note| note.reason == NoteReason::Restarted) {
        reconciler.metrics.restarts.inc();
    }
    let ends = |status: &VirtualMachineStatus| {
        status.last_exit.as_ref().map(|last| (last.pod_name.clone(), last.time))
    };
    if let Some(last) = &outcome.status.last_exit
        && vm.status.as_ref().and_then(ends) != ends(&outcome.status)
    {
        reconciler.metrics.exits.with([last.reason.as_str()]).inc();
    }
    let since =
        |seconds: i64| Duration::from_secs(u64::try_from(now().unix().saturating_sub(seconds)).unwrap_or(0));
    if before == Some(Phase::Pending) && after.is_some_and(Phase::is_alive) {
        let pods = reconciler.state.cache.pods(key);
        let pod = pods.iter().find(|pod| pod.view.name == outcome.status.pod_name);
        if let Some(made) = pod.and_then(|pod| pod.view.created) {
            reconciler.metrics.runner_to_running.observe(since(made.unix()));
        }
        if outcome.status.restart_count == 0
            && let Some(created) = &vm.metadata.creation_timestamp
        {
            reconciler.metrics.creation_to_running.observe(since(created.0.as_second()));
        }
    }
    if after == Some(Phase::Scaling) && before != after {
        reconciler.key_states.with(key, |state| state.scaling_since = Some(Instant::now()));
    } else if before == Some(Phase::Scaling)
        && after == Some(Phase::Running)
        && let Some(started) = reconciler.key_states.with(key, |state| state.scaling_since.take())
    {
        reconciler.metrics.scaling.observe(started.elapsed());
    }
}
