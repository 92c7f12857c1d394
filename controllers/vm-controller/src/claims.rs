//! The claims of persistent volumes that disks of VMs name, and those that migrations made for VMs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::claims::ClaimView;
use neonvm_types::NamespacedName;

use crate::cache::{Key, key_of};

/// The claims of the cluster, as last observed.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By namespace and name.
    all: BTreeMap<Key, Arc<ClaimView>>,
    /// Names of those that were made for a VM, by the VM.
    of_vm: BTreeMap<NamespacedName, BTreeSet<String>>,
}

impl Known {
    fn remove(&mut self, key: &Key) {
        let Some(view) = self.all.remove(key) else { return };
        let vm = NamespacedName::new(key.namespace.clone(), view.vm.clone());
        if let Some(names) = self.of_vm.get_mut(&vm) {
            names.remove(&key.name);
            if names.is_empty() {
                self.of_vm.remove(&vm);
            }
        }
    }

    fn put(&mut self, key: &Key, view: Arc<ClaimView>) {
        self.remove(key);
        if !view.vm.is_empty() {
            let vm = NamespacedName::new(key.namespace.clone(), view.vm.clone());
            self.of_vm.entry(vm).or_default().insert(key.name.clone());
        }
        self.all.insert(Arc::clone(key), view);
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that the spec or the status of a VM names, and those that were made for it.
    pub(crate) fn of(&self, vm: &VirtualMachine) -> Vec<ClaimView> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let machine = vm.metadata.name.clone().unwrap_or_default();
        let recorded = vm.status.iter().flat_map(|status| &status.volumes);
        let recorded = recorded.flat_map(|volume| [volume.claim_name.clone(), volume.previous.clone()]);
        let mut names: BTreeSet<String> =
            vm.spec.claims(&machine).map(|(_, name)| name).chain(recorded).collect();
        let known = self.lock();
        names.extend(
            known.of_vm.get(&NamespacedName::new(namespace.clone(), machine)).into_iter().flatten().cloned(),
        );
        let claims = names.into_iter().filter_map(|name| {
            known.all.get(&NamespacedName::new(namespace.clone(), name)).map(|claim| (**claim).clone())
        });
        claims.collect()
    }

    /// Keeps a claim. Whether anything of it has changed that a VM depends on.
    pub(crate) fn put(&self, claim: &PersistentVolumeClaim) -> bool {
        let (key, view) = (key_of(&claim.metadata), Arc::new(ClaimView::from(claim)));
        let mut known = self.lock();
        if known.all.get(&key).is_some_and(|before| *before == view) {
            return false;
        }
        known.put(&key, view);
        true
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    pub(crate) fn retain(&self, seen: &BTreeSet<Key>) {
        let mut known = self.lock();
        let gone: Vec<Key> = known.all.keys().filter(|key| !seen.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| known.remove(key));
    }
}
