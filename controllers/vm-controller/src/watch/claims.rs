//! The watch of claims of persistent volumes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;
use kube::runtime::watcher;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_kit::watch::each;

use crate::cache::key_of;
use crate::state::State;
use crate::watch::Watch;

/// Watches claims; never returns.
pub(crate) async fn claims(Watch { client, state, listed }: Watch) {
    let api: Api<PersistentVolumeClaim> = Api::all(client);
    let mut seen = BTreeSet::new();
    each("claims", api, watcher::Config::default(), (&listed, false), |event| match event {
        watcher::Event::Init => seen.clear(),
        watcher::Event::InitApply(claim) => {
            seen.insert(key_of(&claim.metadata));
            take(&state, &claim);
        }
        watcher::Event::Apply(claim) => take(&state, &claim),
        watcher::Event::InitDone => state.claims.retain(&std::mem::take(&mut seen)),
        watcher::Event::Delete(claim) => {
            let key = key_of(&claim.metadata);
            state.claims.remove(&key);
            wake(&state, &claim);
        }
    })
    .await;
}

fn take(state: &State, claim: &PersistentVolumeClaim) {
    if state.claims.put(claim) {
        wake(state, claim);
    }
}

/// VMs that name the claim, or that it was made for, are reconciled again.
fn wake(state: &State, claim: &PersistentVolumeClaim) {
    let (key, made_for) = (key_of(&claim.metadata), ClaimView::from(claim).vm);
    for vm in state.cache.all_vms() {
        let machine = vm.metadata.name.as_deref().unwrap_or_default();
        let here = vm.metadata.namespace.as_deref() == Some(key.namespace.as_str());
        let names = || vm.spec.claims(machine).any(|(_, name)| name == key.name);
        if here && (machine == made_for || names()) {
            state.queue.add(&key_of(&vm.metadata));
        }
    }
}
