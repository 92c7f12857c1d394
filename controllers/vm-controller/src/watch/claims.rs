//! The watch of claims of persistent volumes: those that disks of VMs name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;
use kube::runtime::watcher;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_kit::watch::each;

use crate::cache::{Key, key_of};
use crate::state::State;
use crate::watch::Watch;

/// The claims of the cluster, as last observed, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeMap<Key, Arc<ClaimView>>>);

impl Claims {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<ClaimView>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a VM's namespace that its disks name.
    pub(crate) fn of(&self, vm: &neonvm_api::VirtualMachine) -> Vec<ClaimView> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let machine = vm.metadata.name.as_deref().unwrap_or_default();
        let known = self.lock();
        let claims = vm.spec.claims(machine).filter_map(|(_, name)| {
            known
                .get(&neonvm_types::NamespacedName::new(namespace.clone(), name))
                .map(|claim| (**claim).clone())
        });
        claims.collect()
    }

    /// Keeps a claim. Whether anything of it has changed that a VM depends on.
    pub(crate) fn put(&self, claim: &PersistentVolumeClaim) -> bool {
        let view = Arc::new(ClaimView::from(claim));
        let before = self.lock().insert(key_of(&claim.metadata), Arc::clone(&view));
        before.is_none_or(|before| before != view)
    }

    fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn retain(&self, seen: &BTreeSet<Key>) {
        self.lock().retain(|key, _| seen.contains(key));
    }
}

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
            wake(&state, &key);
        }
    })
    .await;
}

fn take(state: &State, claim: &PersistentVolumeClaim) {
    if state.claims.put(claim) {
        wake(state, &key_of(&claim.metadata));
    }
}

/// VMs that name the claim are reconciled again.
fn wake(state: &State, claim: &Key) {
    for vm in state.cache.all_vms() {
        let machine = vm.metadata.name.as_deref().unwrap_or_default();
        let here = vm.metadata.namespace.as_deref() == Some(claim.namespace.as_str());
        if here && vm.spec.claims(machine).any(|(_, name)| name == claim.name) {
            state.queue.add(&key_of(&vm.metadata));
        }
    }
}
