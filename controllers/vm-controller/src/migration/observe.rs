//! The observed state for a migration's step.

use std::sync::Arc;

use neonvm_api::Power;
use neonvm_api::migration::MigrationPhase;
use neonvm_api::{MigrationPolicy, VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationStatus};
use neonvm_core_migration::phases::queue::{Active, Admission, Waiting, admit, held_up, ordered};
use neonvm_core_migration::phases::{MigrationObserved, is_over, is_waiting, ready};
use neonvm_core_vm_lifecycle::PodView;
use neonvm_types::Timestamp;

use super::machine_of;
use crate::cache::{Key, key_of};
use crate::reconciler::Reconciler;
use crate::state::State;

/// Whether the VM names this migration.
pub(super) fn holds(vm: Option<&VirtualMachine>, migration: &VirtualMachineMigration) -> bool {
    let lock = vm.and_then(|vm| vm.status.as_ref()?.migration.as_ref());
    lock.is_some_and(|lock| Some(&lock.uid) == migration.metadata.uid.as_ref())
}

pub(super) fn observe<'a>(
    reconciler: &Reconciler,
    key: &Key,
    vm: Option<&'a VirtualMachine>,
    migration: &VirtualMachineMigration,
    policies: &'a [Arc<MigrationPolicy>],
    fresh: bool,
) -> MigrationObserved<'a> {
    let uid = vm.and_then(|vm| vm.metadata.uid.as_deref()).unwrap_or_default();
    let status = migration.status.as_ref();
    let of_vm = vm.and_then(|vm| vm.status.as_ref());
    let first = |own: Option<&String>, other: Option<&String>| {
        own.filter(|name| !name.is_empty()).or(other).cloned().unwrap_or_default()
    };
    let source = first(status.map(|now| &now.source_pod_name), of_vm.map(|now| &now.pod_name));
    let lock = of_vm.and_then(|now| now.migration.as_ref()).filter(|_| holds(vm, migration));
    let target = first(status.map(|now| &now.target_pod_name), lock.map(|lock| &lock.target_pod_name));
    let (source, source_runner) = reconciler.state.runner_pod(key, uid, &source);
    let (target, target_runner) = reconciler.state.runner_pod(key, uid, &target);
    let waiting = is_waiting(migration, holds(vm, migration));
    let admission =
        if waiting { admission(&reconciler.state, migration) } else { Admission::Wait(String::new()) };
    let node = target.as_ref().map(|pod| pod.node.clone()).unwrap_or_default();
    let placeless = target.as_ref().is_some_and(PodView::is_unschedulable);
    let held_up = if placeless { held_up_by(&reconciler.state, key, status) } else { 0 };
    let state = reconciler
        .state
        .migrating
        .key_state(migration.metadata.uid.as_deref().unwrap_or_default(), |state| state.clone());
    MigrationObserved {
        fresh,
        vm,
        source,
        source_runner,
        target,
        target_runner,
        claims: vm.map(|vm| reconciler.state.claims.of(vm)).unwrap_or_default(),
        policies: policies.iter().map(AsRef::as_ref).collect(),
        admission,
        cordoned: of_vm.is_some_and(|status| reconciler.state.is_cordoned(&status.node)),
        inbound: if node.is_empty() { 0 } else { inbound(&reconciler.state, migration, &node) },
        held_up,
        unknown_at_source: state.unknown_at_source,
        failure: state.failure,
        suffix: reconciler.suffix(),
    }
}

/// The line of waiting migrations, with the answer for each.
pub(super) fn line(state: &State) -> Vec<(Waiting, Admission)> {
    let (waiting, active) = (waiting(state), leaving(state));
    let answers = admit(&waiting, &active, &state.settings.migration);
    waiting.into_iter().zip(answers).collect()
}

/// How many would go if this migration did not hold its place.
fn held_up_by(state: &State, vm: &Key, status: Option<&VirtualMachineMigrationStatus>) -> usize {
    let node = status.map(|now| now.source_node.as_str()).unwrap_or_default();
    held_up(&waiting(state), &leaving(state), &state.settings.migration, &active(state, node, &vm.namespace))
}

fn active(state: &State, node: &str, namespace: &str) -> Active {
    Active { node: node.to_owned(), namespace: namespace.to_owned(), drain: state.is_cordoned(node) }
}

/// The migrations of VMs that are leaving their nodes now.
fn leaving(state: &State) -> Vec<Active> {
    let leaving = state.cache.leaving();
    let mut active: Vec<Active> =
        leaving.iter().map(|(node, namespace)| active(state, node, namespace)).collect();
    active.sort_unstable();
    active
}

/// Those that wait, in their order.
fn waiting(state: &State) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for migration in state.migrating.open() {
        let key = machine_of(&migration);
        let Some(vm) = state.cache.vm(&key) else { continue };
        if !is_waiting(&migration, holds(Some(&vm), &migration)) {
            continue;
        }
        let status = vm.status.clone().unwrap_or_default();
        let (_, runner) =
            state.runner_pod(&key, vm.metadata.uid.as_deref().unwrap_or_default(), &status.pod_name);
        let created = migration.metadata.creation_timestamp.as_ref();
        waiting.push(Waiting {
            name: key_of(&migration.metadata).to_string(),
            uid: migration.metadata.uid.clone().unwrap_or_default(),
            vm: vm.metadata.uid.clone().unwrap_or_default(),
            drain: state.is_cordoned(&status.node),
            priority: priority(state, &key.namespace, &migration),
            namespace: key.namespace.clone(),
            created: created.and_then(|time| Timestamp::from_unix(time.0.as_second())),
            node: status.node,
            ready: vm.metadata.deletion_timestamp.is_none() && ready(&vm, &runner).is_ok(),
        });
    }
    ordered(waiting)
}

/// One above the default needs permission.
fn priority(state: &State, namespace: &str, migration: &VirtualMachineMigration) -> i32 {
    let may = state.settings(namespace).policy.allows(Power::MigrationPriority);
    if may { migration.spec.priority } else { migration.spec.priority.min(0) }
}

fn admission(state: &State, migration: &VirtualMachineMigration) -> Admission {
    let uid = migration.metadata.uid.as_deref().unwrap_or_default();
    let own = line(state).into_iter().find(|(waiting, _)| waiting.uid == uid);
    own.map_or(Admission::Wait(String::new()), |(_, answer)| answer)
}

/// Other machines that are on their way to the node.
fn inbound(state: &State, migration: &VirtualMachineMigration, node: &str) -> usize {
    let coming = |other: &&Arc<VirtualMachineMigration>| {
        other.metadata.uid != migration.metadata.uid
            && !is_over(other)
            && other.status.as_ref().is_some_and(|status| {
                status.phase == Some(MigrationPhase::Running) && status.target_node == node
            })
    };
    state.migrating.open().iter().filter(coming).count()
}
