//! A VM on a node that denies a growth is migrated to one where the grown size fits: reads the inputs of
//! [`neonvm_core_vm_lifecycle::growth`], and carries out its decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Error, ResourceExt as _};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_migration::phases::plan_target;
use neonvm_core_scheduling::{Demand, Usage, fit, has_ended};
use neonvm_core_vm_lifecycle::growth::{
    CandidateNode, Case, Decision, Denial, Spell, decide, migration, superfluous,
};
use neonvm_core_vm_lifecycle::{Note, NoteReason, Settings};
use neonvm_kit::event::Events;
use neonvm_kit::queue;

use crate::cache::{Key, key_of};
use crate::clock::now;
use crate::clock::until;
use crate::cluster::nodes;
use crate::key_state::KeyStates;
use crate::note;
use crate::request::{is_conflict, is_missing, only, posting, within};
use crate::requests::Requests;
use crate::state::State;

/// What the reconcile of denied growths needs.
#[derive(Debug)]
pub(crate) struct Growth {
    requests: Requests,
    state: Arc<State>,
    key_states: Arc<KeyStates>,
    events: Events,
    /// Held while nodes are searched: all pods of the cluster are read for it, for one VM at a time.
    searching: tokio::sync::Mutex<()>,
}

impl Growth {
    pub(crate) fn new(
        requests: Requests,
        state: Arc<State>,
        key_states: Arc<KeyStates>,
        events: Events,
    ) -> Self {
        Self { requests, state, key_states, events, searching: tokio::sync::Mutex::default() }
    }
}

/// Does what is to be done about a denied growth of a VM.
pub(crate) async fn reconcile(growth: &Growth, key: &Key) -> queue::Outcome {
    let Some(vm) = growth.state.cache.vm(key) else { return queue::Outcome::Done(None) };
    let migrations = growth.state.migrating.of_vm(key);
    if let Some(extra) = superfluous(&vm, &migrations)
        && let Err(error) = withdraw(growth, key, extra).await
    {
        tracing::warn!(vm = %key, %error, "a migration that is not needed any more cannot be deleted");
        return queue::Outcome::Failed;
    }
    let Some(denial) = Denial::from_vm(&vm) else { return queue::Outcome::Done(None) };
    let at = now();
    let (spell, looked) = growth.key_states.with(key, |state| {
        let spell = Spell::next(state.spell.take(), &denial.pod, at);
        state.spell = Some(spell.clone());
        (spell, state.looked.as_ref().map(|(at, _)| *at))
    });
    let settings = growth.state.settings(&key.namespace);
    let case = Case { denial: &denial, spell: &spell, migrations: &migrations, looked };
    let mut decision = decide(at, &case, None, &settings.growth);
    if decision == Decision::Look {
        let _only = growth.searching.lock().await;
        match places(growth, &vm, &denial, &settings).await {
            Ok(places) => decision = decide(at, &case, Some(&places), &settings.growth),
            Err(error) => {
                tracing::warn!(vm = %key, %error, "it is not known where a VM that is denied a growth could go");
                return queue::Outcome::Failed;
            }
        }
    }
    match decision {
        Decision::Stay | Decision::Look => queue::Outcome::Done(None),
        Decision::Wait(at) => queue::Outcome::Done(Some(until(at))),
        Decision::Nowhere(why) => nowhere(growth, key, &vm, &denial, &why),
        Decision::Migrate { number, avoid } => {
            let wanted = migration(&key.name, &denial, number, &avoid);
            create(growth, key, &vm, &denial, &wanted).await
        }
    }
}

/// Reports once why no other node takes the VM; the next look comes later.
fn nowhere(growth: &Growth, key: &Key, vm: &VirtualMachine, denial: &Denial, why: &str) -> queue::Outcome {
    let message = format!("{}; no other node has room: {why}", text(denial));
    let before = growth.key_states.with(key, |state| state.looked.replace((now(), message.clone())));
    if before.is_none_or(|(_, known)| known != message) {
        tracing::info!(vm = %key, "{message}");
        note::publish(&growth.events, vm, &Note { reason: NoteReason::GrowthNowhere, message });
    }
    let pause = growth.state.settings.growth.look_pause;
    let again = std::time::Duration::from_secs(u64::try_from(pause).unwrap_or(0));
    queue::Outcome::Done(Some(again))
}

fn text(denial: &Denial) -> String {
    format!("node {} denied {} CPU and {} of memory", denial.node, denial.size.cpu, denial.size.memory)
}

async fn create(
    growth: &Growth,
    key: &Key,
    vm: &VirtualMachine,
    denial: &Denial,
    wanted: &VirtualMachineMigration,
) -> queue::Outcome {
    let name = wanted.name_any();
    match growth.requests.write(growth.requests.migrations(&key.namespace).create(&posting(), wanted)).await {
        Ok(made) => {
            growth.state.migrating.put(made);
            let message = format!("{}; migration {name} brings the VM to a node with room", text(denial));
            tracing::info!(vm = %key, "{message}");
            note::publish(&growth.events, vm, &Note { reason: NoteReason::GrowthMigrated, message });
            queue::Outcome::Done(None)
        }
        // The watch will bring it.
        Err(error) if is_conflict(&error) => queue::Outcome::Failed,
        Err(error) => {
            tracing::warn!(vm = %key, %error, "a VM that is denied a growth cannot be migrated");
            queue::Outcome::Failed
        }
    }
}

/// Deletes a migration that has not begun.
async fn withdraw(growth: &Growth, key: &Key, extra: &VirtualMachineMigration) -> Result<(), Error> {
    let migrations = growth.requests.migrations(&key.namespace);
    match growth.requests.write(migrations.delete(&extra.name_any(), &only(&extra.metadata))).await {
        // Cached at once, so that it is not admitted in this very reconcile.
        Ok(answer) => {
            match answer.left() {
                Some(ending) if ending.metadata.deletion_timestamp.is_some() => {
                    growth.state.migrating.put(ending);
                }
                _ => drop(
                    growth.state.migrating.remove(&key_of(&extra.metadata), extra.metadata.uid.as_deref()),
                ),
            }
            Ok(())
        }
        Err(error) if is_missing(&error) || is_conflict(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// All nodes, and whether the grown VM has room there.
async fn places(
    growth: &Growth,
    vm: &VirtualMachine,
    denial: &Denial,
    settings: &Settings,
) -> Result<Vec<CandidateNode>, Error> {
    let nodes = nodes(&growth.requests.client).await?;
    let pods: Api<Pod> = Api::all(growth.requests.client.clone());
    // From the server's memory, as the nodes.
    let pods = within(pods.list(&ListParams::default().match_any())).await?.items;
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !has_ended(pod)) {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    // A plan needs a UID, and the name is not checked.
    let mut trial = migration(&vm.name_any(), denial, 0, &[]);
    trial.metadata.uid = Some(String::new());
    let plan = plan_target(vm, &trial, &denial.pod, &denial.node, denial.size, settings);
    let place = |node: &Node| {
        let here = by_node.get(node.name_any().as_str()).map(Vec::as_slice).unwrap_or_default();
        let room = match &plan {
            Ok(pod) => {
                let mut usage = Usage::default();
                // Where pods request what their VMs have, annotations count for nothing: authors of pods can write them.
                let demand = if settings.pod_size { Demand::requested } else { Demand::from_pod };
                here.iter().for_each(|pod| usage.add(&demand(pod)));
                fit(pod, node, &usage, here.iter().copied()).map_err(|why| why.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        CandidateNode { name: node.name_any(), room }
    };
    Ok(nodes.iter().map(place).collect())
}
