//! The claims of persistent volumes that disks of VMs name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_types::NamespacedName;

use crate::cache::{Key, key_of};

/// The claims of the cluster, as last observed, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeMap<Key, Arc<ClaimView>>>);

impl Claims {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<ClaimView>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a VM's namespace that its disks name.
    pub(crate) fn of(&self, vm: &VirtualMachine) -> Vec<ClaimView> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let machine = vm.metadata.name.as_deref().unwrap_or_default();
        let known = self.lock();
        let claims = vm.spec.claims(machine).filter_map(|(_, name)| {
            known.get(&NamespacedName::new(namespace.clone(), name)).map(|claim| (**claim).clone())
        });
        claims.collect()
    }

    /// Keeps a claim. Whether anything of it has changed that a VM depends on.
    pub(crate) fn put(&self, claim: &PersistentVolumeClaim) -> bool {
        let view = Arc::new(ClaimView::from(claim));
        let before = self.lock().insert(key_of(&claim.metadata), Arc::clone(&view));
        before.is_none_or(|before| before != view)
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    pub(crate) fn retain(&self, seen: &BTreeSet<Key>) {
        self.lock().retain(|key, _| seen.contains(key));
    }
}
