//! Reconcile of a VM: step the core, write the status, carry out the actions, step again, until nothing is left.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_api::virtual_machine::{ActiveMigration, Phase};
use neonvm_core_migration::phases;
use neonvm_core_vm_lifecycle::tls::TlsObserved;
use neonvm_core_vm_lifecycle::{
    Action, FailureReason, Moving, Note, NoteReason, Observed, Outcome, PodView, RunnerView, deserves_link,
};
use neonvm_core_vm_lifecycle::{owned_pod, step};
use neonvm_types::NamespacedName;
use neonvm_types::runner_protocol::{RunnerState, RunnerStatus};
use tokio::time::Instant;

use neonvm_kit::queue;

use crate::act::Failed;
use crate::cache::Key;
use crate::clock::{now, until};
use crate::context::Context;
use crate::lag::Ended;
use crate::link::Target;
use crate::request::{is_missing, within};
use crate::{growth, migration, note, patch};

/// Steps of a reconcile; more would mean that the core does not converge.
const STEPS: usize = 12;

/// Reconciles a VM.
pub(crate) async fn reconcile(context: &Arc<Context>, key: &Key) -> queue::Outcome {
    let started = Instant::now();
    let (mut own, ended) = work(context, key).await;
    let histogram = match ended {
        Ended::Well => &context.metrics.success,
        Ended::Badly => &context.metrics.failure,
        Ended::InConflict => &context.metrics.conflict,
    };
    histogram.observe(started.elapsed());
    if own == queue::Outcome::Gone {
        context.forget(key);
    } else {
        context.lag.record(key, ended);
    }
    let grows = if own == queue::Outcome::Gone { own } else { growth::reconcile(context, key).await };
    own = both(own, grows);
    let moves = migration::reconcile(context, key).await;
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

async fn work(context: &Arc<Context>, key: &Key) -> (queue::Outcome, Ended) {
    let mut fresh = false;
    let mut done: Vec<Action> = Vec::new();
    for _ in 0..STEPS {
        let Some(vm) = context.cache.vm(key) else { return (queue::Outcome::Gone, Ended::Well) };
        if let Err(ended) = look_for_cert_manager(context, key, &vm).await {
            return ended;
        }
        let observed = observe(context, key, &vm, fresh);
        link(context, key, &vm, &observed);
        let outcome = step(now(), &vm, &observed, &context.settings(&key.namespace));
        if outcome.actions == [Action::Refresh] {
            if fresh || refresh(context, key).await.is_err() {
                return (queue::Outcome::Failed, Ended::Badly);
            }
            fresh = true;
            continue;
        }
        let before = vm.status.clone().unwrap_or_default();
        let todo: Vec<Action> =
            outcome.actions.iter().filter(|action| !done.contains(action)).cloned().collect();
        if outcome.status == before && todo.is_empty() {
            return rest(context, key, &observed, &outcome);
        }
        // The size goes first: users wait for it.
        let resized = resize(context, key, &vm, &todo, &mut done).await;
        if outcome.status != before {
            match write(context, key, &vm, &outcome).await {
                Ok(()) => fresh |= before.phase.is_none(),
                Err(Failed::Conflict) => {
                    if refresh(context, key).await.is_err() {
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
        let Some(vm) = context.cache.vm(key) else { continue };
        let acted = match resized {
            Ok(()) => run(context, key, &vm, todo, &mut done).await,
            failed => failed,
        };
        match acted {
            Ok(()) => {
                context.key_state(key, |state| state.failure = None);
                if outcome.status == before {
                    // Events that no write of the status has published.
                    outcome.events.iter().for_each(|note| note::publish(&context.events, &vm, note));
                }
            }
            Err(Failed::Conflict) => {
                if refresh(context, key).await.is_err() {
                    return (queue::Outcome::Failed, Ended::InConflict);
                }
                // What was in conflict is tried again by the next reconcile, with backoff.
                return (queue::Outcome::Failed, Ended::InConflict);
            }
            Err(Failed::Failure(failure)) => {
                tracing::info!(vm = %key, reason = failure.reason.as_str(), error = %failure.message, "not done");
                context.key_state(key, |state| state.failure = Some(failure));
                report_failure(context, key, fresh).await;
                return (queue::Outcome::Failed, Ended::Badly);
            }
        }
    }
    tracing::error!(vm = %key, "the machine does not converge");
    (queue::Outcome::Failed, Ended::Badly)
}

/// Nothing to do. A failure is over when its action is no longer requested.
fn rest(context: &Context, key: &Key, observed: &Observed, outcome: &Outcome) -> (queue::Outcome, Ended) {
    if observed.failure.is_some() {
        context.key_state(key, |state| state.failure = None);
        context.queue.add(key);
    }
    (queue::Outcome::Done(outcome.wake_at.map(until)), Ended::Well)
}

/// The sizes of pod and guest, before anything else.
async fn resize(
    context: &Context,
    key: &Key,
    vm: &VirtualMachine,
    todo: &[Action],
    done: &mut Vec<Action>,
) -> Result<(), Failed> {
    let sizes = todo.iter().filter(|action| matches!(action, Action::ResizePod { .. } | Action::SetSize(_)));
    for action in sizes {
        context.act(key, vm, action).await?;
        done.push(action.clone());
    }
    Ok(())
}

async fn run(
    context: &Context,
    key: &Key,
    vm: &VirtualMachine,
    todo: Vec<Action>,
    done: &mut Vec<Action>,
) -> Result<(), Failed> {
    for action in todo {
        if !done.contains(&action) {
            context.act(key, vm, &action).await?;
            done.push(action);
        }
    }
    Ok(())
}

/// Writes down that an action failed; the action itself waits for the next reconcile.
async fn report_failure(context: &Arc<Context>, key: &Key, fresh: bool) {
    let Some(vm) = context.cache.vm(key) else { return };
    let observed = observe(context, key, &vm, fresh);
    let outcome = step(now(), &vm, &observed, &context.settings(&key.namespace));
    if outcome.status != vm.status.clone().unwrap_or_default()
        && let Err(error) = write(context, key, &vm, &outcome).await
    {
        tracing::debug!(vm = %key, ?error, "the failure was not written down");
    }
}

fn observe(context: &Context, key: &Key, vm: &VirtualMachine, fresh: bool) -> Observed {
    let uid = vm.metadata.uid.clone().unwrap_or_default();
    let (pod, runner) = observe_pod(context, key, &uid, owned_pod(vm).unwrap_or_default());
    let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
    let moving = lock.map(|lock| moving(context, key, &uid, lock)).unwrap_or_default();
    let named =
        |name: &str| owned_pod(vm) == Some(name) || lock.is_some_and(|lock| lock.target_pod_name == name);
    let pods = context.cache.pods(key);
    let orphans = pods.iter().filter(|pod| pod.owner == uid && !named(&pod.view.name));
    let tls = if vm.spec.tls.is_some() {
        let (secret, key, request) = context.cache.tls(key);
        TlsObserved { api: context.cert_manager.is_present(), secret, request, key }
    } else {
        TlsObserved::default()
    };
    Observed {
        fresh,
        pod,
        orphans: orphans.map(|pod| pod.view.clone()).collect(),
        runner,
        tls,
        address: context.addresses.view(&key.to_string()),
        moving,
        resize_refused: context.key_state(key, |state| state.resize_refused.clone()),
        size_unanswered: context.key_state(key, |state| state.size_unanswered.clone()),
        failure: context.key_state(key, |state| state.failure.clone()),
        suffix: context.suffix(),
    }
}

/// A pod of the VM and the runner in it, by the pod's name; the runner's last report outlives the pod.
pub(crate) fn observe_pod(
    context: &Context,
    key: &Key,
    vm: &str,
    pod: &str,
) -> (Option<PodView>, RunnerView) {
    if pod.is_empty() {
        return (None, RunnerView::Unknown);
    }
    let pods = context.cache.pods(key);
    if let Some(found) = pods.iter().find(|kept| kept.owner == vm && kept.view.name == pod) {
        return (Some(found.view.clone()), context.links.view(key, &found.view.uid));
    }
    let last = context.links.last_view(key, pod);
    let Some(exit) = context.cache.last_exits(key, pod) else { return (None, last) };
    let status = last.newest().cloned().unwrap_or_default();
    let status = RunnerStatus { state: RunnerState::Ended, exit: Some(exit), ..status };
    (None, RunnerView::Seen(Box::new(status)))
}

fn moving(context: &Context, key: &Key, vm: &str, lock: &ActiveMigration) -> Moving {
    let (target, target_runner) = observe_pod(context, key, vm, &lock.target_pod_name);
    let found = context.migrating.get(&Arc::new(NamespacedName::new(&key.namespace, &lock.name)));
    let found = found.filter(|found| found.metadata.uid.as_ref() == Some(&lock.uid));
    Moving {
        mover: found.map(|found| phases::mover(&found)),
        recovered: context.key_state(key, |state| state.recovered),
        refused: target.as_ref().is_some_and(|target| {
            context.key_state(key, |state| state.refused.as_deref() == Some(target.uid.as_str()))
        }),
        target,
        target_runner,
    }
}

/// Opens the status streams of the runners in the VM's pod and, during a migration, in the target pod.
fn link(context: &Context, key: &Key, vm: &VirtualMachine, observed: &Observed) {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    let open = |pod: &PodView, runner: &RunnerView| {
        if let Some(target) = Target::new(uid, pod, vm.spec.runner_port)
            && runner.exit().is_none()
        {
            context.links.open(key, target);
        }
    };
    let status = vm.status.as_ref();
    let mut keep = context.migrating.pods_in_use(key);
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
    context.links.retain(key, |pod| keep.contains(pod));
}

/// Only VMs that name an issuer depend on whether cert-manager is there.
async fn look_for_cert_manager(
    context: &Arc<Context>,
    key: &Key,
    vm: &VirtualMachine,
) -> Result<(), (queue::Outcome, Ended)> {
    if vm.spec.tls.as_ref().is_none_or(|tls| tls.certificate_issuer.is_empty())
        || vm.metadata.deletion_timestamp.is_some()
    {
        return Ok(());
    }
    if let Err(error) =
        within(context.cert_manager.look(&context.client, &context.cache, &context.queue)).await
    {
        tracing::warn!(vm = %key, %error, "whether cert-manager is there cannot be read from the API server");
        let failed = Failed::new(FailureReason::CertificateFailed, "cert-manager cannot be looked for");
        if let Failed::Failure(failure) = failed {
            context.key_state(key, |state| state.failure = Some(failure));
        }
        report_failure(context, key, false).await;
        return Err((queue::Outcome::Failed, Ended::Badly));
    }
    Ok(())
}

/// Reads the machine, its pods and the migration that it names from the server itself.
pub(crate) async fn refresh(context: &Context, key: &Key) -> Result<(), kube::Error> {
    let known = context.cache.vm(key).and_then(|vm| vm.metadata.uid.clone());
    match within(context.vms(&key.namespace).get(&key.name)).await {
        Ok(read) => drop(context.cache.put_vm(read)),
        Err(error) if is_missing(&error) => {
            context.cache.drop_vm(key, known.as_deref());
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let vm = context.cache.vm(key);
    if let Some(lock) = vm.as_ref().and_then(|vm| vm.status.as_ref()?.migration.as_ref()) {
        let name = Arc::new(NamespacedName::new(&key.namespace, &lock.name));
        match within(context.migrations(&key.namespace).get(&lock.name)).await {
            Ok(read) => drop(context.migrating.put(read)),
            Err(error) if is_missing(&error) => drop(context.migrating.remove(&name, None)),
            Err(error) => return Err(error),
        }
    }
    let selector = format!("{}={}", label::VM_NAME, key.name);
    let list = within(context.pods(&key.namespace).list(&ListParams::default().labels(&selector))).await?;
    let uids = list.items.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    list.items.iter().for_each(|pod| drop(context.cache.put_pod(pod)));
    context.cache.retain_pods(Some(key), &uids);
    Ok(())
}

/// Writes the status, then publishes events.
async fn write(context: &Context, key: &Key, vm: &VirtualMachine, outcome: &Outcome) -> Result<(), Failed> {
    let json = |status: &neonvm_api::VirtualMachineStatus| serde_json::to_value(status).unwrap_or_default();
    let before = vm.status.clone().unwrap_or_default();
    let change = patch::difference(&json(&before), &json(&outcome.status));
    let change = if vm.status.is_none() { Some(json(&outcome.status)) } else { change };
    if let Some(change) = change {
        context.write_status(key, vm, change).await?;
    }
    let (from, to) = (before.phase, outcome.status.phase);
    if from != to {
        let word = |phase: Option<Phase>| phase.map_or("", Phase::as_str);
        tracing::info!(vm = %key, from = word(from), to = word(to), pod = %outcome.status.pod_name, "phase");
    }
    count(context, key, vm, outcome);
    report(context, key, vm, &outcome.events);
    if before.migration.is_some() != outcome.status.migration.is_some() {
        migration::wake(context);
    }
    Ok(())
}

/// Publishes the notes as events; those about a migration also for the migration.
fn report(context: &Context, key: &Key, vm: &VirtualMachine, notes: &[Note]) {
    let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
    let migration = lock
        .and_then(|lock| context.migrating.get(&Arc::new(NamespacedName::new(&key.namespace, &lock.name))));
    for note in notes {
        match &migration {
            Some(migration) if note.reason.is_of_migration() => {
                note::publish_migration(&context.events, migration, Some(vm), note);
            }
            _ => note::publish(&context.events, vm, note),
        }
    }
}

fn count(context: &Context, key: &Key, vm: &VirtualMachine, outcome: &Outcome) {
    let before = vm.status.as_ref().and_then(|status| status.phase);
    let after = outcome.status.phase;
    if outcome.events.iter().any(|note| note.reason == NoteReason::Restarted) {
        context.metrics.restarts.inc();
    }
    let since =
        |seconds: i64| Duration::from_secs(u64::try_from(now().unix().saturating_sub(seconds)).unwrap_or(0));
    if before == Some(Phase::Pending) && after.is_some_and(Phase::is_alive) {
        let pods = context.cache.pods(key);
        let pod = pods.iter().find(|pod| pod.view.name == outcome.status.pod_name);
        if let Some(made) = pod.and_then(|pod| pod.view.created) {
            context.metrics.runner_to_running.observe(since(made.unix()));
        }
        if outcome.status.restart_count == 0
            && let Some(created) = &vm.metadata.creation_timestamp
        {
            context.metrics.creation_to_running.observe(since(created.0.as_second()));
        }
    }
    if after == Some(Phase::Scaling) && before != after {
        context.key_state(key, |state| state.scaling_since = Some(Instant::now()));
    } else if before == Some(Phase::Scaling)
        && after == Some(Phase::Running)
        && let Some(started) = context.key_state(key, |state| state.scaling_since.take())
    {
        context.metrics.scaling.observe(started.elapsed());
    }
}
