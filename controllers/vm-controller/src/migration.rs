//! Migrations: their cache, and the reconcile of those of one VM. They are reconciled under the VM's key, so
//! that two workers never handle a VM and its migrations at the same time.

mod act;
mod observe;
mod tidy;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use neonvm_api::{MigrationPolicy, VirtualMachineMigration};
use neonvm_core_migration::phases::is_over;
use neonvm_core_vm_lifecycle::Failure;
use neonvm_types::{NamespacedName, Timestamp};

use crate::cache::{Key, key_of, version};
use crate::metrics::Progress;

pub(crate) use work::{reconcile, wake};

/// Per-key state: what is remembered of a migration between reconciles.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyState {
    /// What went wrong in the last reconcile.
    pub(crate) failure: Option<Failure>,
    /// The source runner does not have it.
    pub(crate) unknown_at_source: bool,
}

#[derive(Debug, Default)]
struct CachedMigrations {
    all: HashMap<Key, Arc<VirtualMachineMigration>>,
    /// By machine.
    by_vm: HashMap<Key, BTreeSet<Key>>,
    policies: BTreeMap<String, Arc<MigrationPolicy>>,
    key_states: HashMap<String, KeyState>,
}

#[derive(Debug, Default)]
pub(crate) struct Migrations {
    kept: Mutex<CachedMigrations>,
    /// Locked while a migration is chosen to begin and begins, so that migrations of different VMs begin one by one.
    pub(crate) gate: tokio::sync::Mutex<()>,
}

/// The VM that a migration is about.
pub(crate) fn machine_of(migration: &VirtualMachineMigration) -> Key {
    let namespace = migration.metadata.namespace.clone().unwrap_or_default();
    Arc::new(NamespacedName::new(namespace, migration.spec.vm_name.clone()))
}

impl Migrations {
    fn lock(&self) -> MutexGuard<'_, CachedMigrations> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<VirtualMachineMigration>> {
        self.lock().all.get(key).cloned()
    }

    /// Keeps a migration unless a newer version is cached. Returns its VM, if it changed.
    pub(crate) fn put(&self, mut migration: VirtualMachineMigration) -> Option<Key> {
        let key = key_of(&migration.metadata);
        migration.metadata.managed_fields = None;
        let vm = machine_of(&migration);
        let mut kept = self.lock();
        let known = kept.all.get(&key);
        if known.is_some_and(|known| {
            known.metadata.uid == migration.metadata.uid
                && version(&known.metadata) >= version(&migration.metadata)
        }) {
            return None;
        }
        kept.forget(&key);
        kept.by_vm.entry(Arc::clone(&vm)).or_default().insert(Arc::clone(&key));
        kept.all.insert(key, Arc::new(migration));
        Some(vm)
    }

    /// The migration is gone; without a UID whichever has the name. Its VM.
    pub(crate) fn remove(&self, key: &Key, uid: Option<&str>) -> Option<Key> {
        let mut kept = self.lock();
        let known = kept.all.get(key)?;
        if uid.is_some() && known.metadata.uid.as_deref() != uid {
            return None;
        }
        let vm = machine_of(known);
        if let Some(uid) = known.metadata.uid.clone() {
            kept.key_states.remove(&uid);
        }
        kept.forget(key);
        Some(vm)
    }

    /// Those that are not among these went while the watch was broken. Their machines.
    pub(crate) fn retain(&self, seen: &HashSet<Key>) -> Vec<Key> {
        let gone: Vec<Key> = self.lock().all.keys().filter(|key| !seen.contains(*key)).cloned().collect();
        gone.iter().filter_map(|key| self.remove(key, None)).collect()
    }

    pub(crate) fn of_vm(&self, vm: &Key) -> Vec<Arc<VirtualMachineMigration>> {
        let kept = self.lock();
        let keys = kept.by_vm.get(vm).into_iter().flatten();
        keys.filter_map(|key| kept.all.get(key).cloned()).collect()
    }

    /// All that have not ended.
    pub(crate) fn open(&self) -> Vec<Arc<VirtualMachineMigration>> {
        self.lock().all.values().filter(|migration| !is_over(migration)).cloned().collect()
    }

    /// Names of the pods that migrations of the VM still read.
    pub(crate) fn pods_in_use(&self, vm: &Key) -> BTreeSet<String> {
        let open = self.of_vm(vm).into_iter().filter(|migration| !is_over(migration));
        let names = open.filter_map(|migration| {
            let status = migration.status.as_ref()?;
            Some([status.source_pod_name.clone(), status.target_pod_name.clone()])
        });
        names.flatten().filter(|name| !name.is_empty()).collect()
    }

    pub(crate) fn put_policy(&self, policy: MigrationPolicy) {
        let name = policy.metadata.name.clone().unwrap_or_default();
        self.lock().policies.insert(name, Arc::new(policy));
    }

    pub(crate) fn drop_policy(&self, name: &str) {
        self.lock().policies.remove(name);
    }

    pub(crate) fn retain_policies(&self, seen: &HashSet<String>) {
        self.lock().policies.retain(|name, _| seen.contains(name));
    }

    pub(crate) fn policies(&self) -> Vec<Arc<MigrationPolicy>> {
        self.lock().policies.values().cloned().collect()
    }

    pub(crate) fn key_state<T>(&self, uid: &str, change: impl FnOnce(&mut KeyState) -> T) -> T {
        change(self.lock().key_states.entry(uid.to_owned()).or_default())
    }

    /// How far those that run are at `now`, by VM.
    pub(crate) fn progress(&self, now: Timestamp) -> Vec<Progress> {
        let kept = self.lock();
        let by_vm: BTreeMap<&Key, &BTreeSet<Key>> = kept.by_vm.iter().collect();
        let keys = by_vm.into_values().flatten();
        keys.filter_map(|key| Progress::new(kept.all.get(key)?, now)).collect()
    }

    /// How many there are in each phase.
    pub(crate) fn phases(&self) -> BTreeMap<String, usize> {
        let mut phases = BTreeMap::new();
        for migration in self.lock().all.values() {
            let phase = migration.status.as_ref().and_then(|status| status.phase);
            let word = phase.map_or_else(|| "None".to_owned(), |phase| format!("{phase:?}"));
            *phases.entry(word).or_default() += 1;
        }
        phases
    }
}

impl CachedMigrations {
    fn forget(&mut self, key: &Key) {
        let Some(old) = self.all.remove(key) else { return };
        let vm = machine_of(&old);
        if let Some(keys) = self.by_vm.get_mut(&vm) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_vm.remove(&vm);
            }
        }
    }
}
