//! The watch of cordoned nodes: migrations away from them go first.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use neonvm_kit::watch::each;

use crate::state::State;
use crate::watch::Watch;

/// Watches nodes that are cordoned; never returns.
pub(crate) async fn cordoned(Watch { client, state, listed }: Watch) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(client);
    let config = watcher::Config::default().fields("spec.unschedulable=true");
    let mut seen = BTreeSet::new();
    let name = |node: PartialObjectMeta<Node>| node.metadata.name.unwrap_or_default();
    each("cordoned nodes", api, config, (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(node) => seen.extend([name(node)]),
        watcher::Event::InitDone => {
            let listed = std::mem::take(&mut seen);
            change(&state, |nodes| *nodes = listed);
        }
        watcher::Event::Apply(node) => change(&state, |nodes| nodes.extend([name(node)])),
        watcher::Event::Delete(node) => {
            let name = name(node);
            change(&state, |nodes| nodes.retain(|other| *other != name));
        }
    })
    .await;
}

fn change(state: &State, f: impl FnOnce(&mut BTreeSet<String>)) {
    f(&mut state.cordoned.lock().unwrap_or_else(PoisonError::into_inner));
    // Also those that wait for their turn: what is to leave a node that accepts pods again ends.
    for migration in state.migrating.open() {
        state.queue.add(&crate::migration::machine_of(&migration));
    }
}
