//! The cache of VMs, their pods and TLS secrets, fed by watches and our own writes. Of two versions of an
//! object the newer stays.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::PodView;
use neonvm_core_vm_lifecycle::tls::{Request, TlsSecret};
use neonvm_types::NamespacedName;
use neonvm_types::runner_protocol::Exit;

use crate::request::MANAGER;

/// Exits of pods that are kept per VM: those of both sides of a migration.
const LAST_EXITS: usize = 2;
/// Tombstones that are kept: more than objects can be deleted while one response is on its way.
const TOMBSTONES: usize = 1024;

/// Namespace and name of a VM.
pub(crate) type Key = Arc<NamespacedName>;

#[derive(Clone, Debug)]
pub(crate) struct KeptPod {
    pub(crate) owner: String,
    pub(crate) version: u64,
    pub(crate) view: PodView,
}

#[derive(Debug, Default)]
struct CachedObjects {
    vms: HashMap<Key, Arc<VirtualMachine>>,
    /// By machine.
    pods: HashMap<Key, Vec<Arc<KeptPod>>>,
    tombstones: Tombstones,
    /// Exits of the VM's pods that were deleted last, newest last.
    last_exits: HashMap<Key, Vec<(String, Exit)>>,
    tls: HashMap<Key, TlsSecret>,
    /// UIDs of the secrets with keys of open requests.
    keys: HashMap<Key, String>,
    /// With their UIDs.
    requests: HashMap<Key, (String, Request)>,
}

/// VMs, pods and secrets as last observed.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<CachedObjects>);

/// The version of an object, as a number; 0 if it is not one.
pub(crate) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(crate) fn key_of(meta: &ObjectMeta) -> Key {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Arc::new(NamespacedName::new(part(&meta.namespace), part(&meta.name)))
}

/// The VM that controls an object: its key and UID.
pub(crate) fn owner(meta: &ObjectMeta) -> Option<(Key, String)> {
    let owner = meta.owner_references.iter().flatten().find(|owner| {
        owner.controller == Some(true)
            && owner.kind == "VirtualMachine"
            && owner.api_version.starts_with("vm.neon.tech/")
    })?;
    let namespace = meta.namespace.clone().unwrap_or_default();
    Some((Arc::new(NamespacedName::new(namespace, owner.name.clone())), owner.uid.clone()))
}

/// The VM that a pod belongs to: its own, or the target of its migration.
pub(crate) fn machine_of(meta: &ObjectMeta) -> Option<(Key, String)> {
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners
        .find(|owner| owner.kind == "VirtualMachine" && owner.api_version.starts_with("vm.neon.tech/"))?;
    let namespace = meta.namespace.clone().unwrap_or_default();
    Some((Arc::new(NamespacedName::new(namespace, owner.name.clone())), owner.uid.clone()))
}

/// UIDs of the VMs and pods that were deleted last: a late response from before the deletion must not bring one back, because
/// its deletion would not be reported again.
#[derive(Debug, Default)]
struct Tombstones {
    uids: HashSet<Arc<str>>,
    /// Oldest first.
    order: VecDeque<Arc<str>>,
}

impl Tombstones {
    /// The object with this UID is gone for good.
    fn add(&mut self, uid: &str) {
        let uid: Arc<str> = uid.into();
        if !self.uids.insert(Arc::clone(&uid)) {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    fn has(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}

impl CachedObjects {
    fn drop_vm(&mut self, key: &Key, uid: Option<&str>) {
        let same =
            self.vms.get(key).is_some_and(|known| uid.is_none() || known.metadata.uid.as_deref() == uid);
        if same {
            self.vms.remove(key);
        }
    }

    fn drop_pod(&mut self, key: &Key, name: &str, uid: Option<&str>) {
        if let Some(pods) = self.pods.get_mut(key) {
            pods.retain(|pod| pod.view.name != name || uid.is_some_and(|uid| pod.view.uid != uid));
            if pods.is_empty() {
                self.pods.remove(key);
            }
        }
    }
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, CachedObjects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn vm(&self, key: &Key) -> Option<Arc<VirtualMachine>> {
        self.lock().vms.get(key).cloned()
    }

    pub(crate) fn all_vms(&self) -> Vec<Arc<VirtualMachine>> {
        self.lock().vms.values().cloned().collect()
    }

    /// How many VMs there are in each phase.
    pub(crate) fn phases(&self) -> std::collections::BTreeMap<&'static str, usize> {
        let mut phases = std::collections::BTreeMap::new();
        for vm in self.lock().vms.values() {
            let phase = vm.status.as_ref().and_then(|status| status.phase);
            *phases.entry(phase.map_or("None", |phase| phase.as_str())).or_default() += 1;
        }
        phases
    }

    /// The nodes that VMs are leaving now, each with the namespace of the VM.
    pub(crate) fn leaving(&self) -> Vec<(String, String)> {
        let kept = self.lock();
        let statuses = kept.vms.iter().filter_map(|(key, vm)| Some((key, vm.status.as_ref()?)));
        let leaving = statuses.filter(|(_, status)| status.migration.is_some());
        leaving.map(|(key, status)| (status.node.clone(), key.namespace.clone())).collect()
    }

    /// Keeps a VM unless a newer version is cached. Returns whether it changed.
    pub(crate) fn put_vm(&self, mut vm: VirtualMachine) -> bool {
        let key = key_of(&vm.metadata);
        vm.metadata.managed_fields = None;
        let mut kept = self.lock();
        if vm.metadata.uid.as_deref().is_some_and(|uid| kept.tombstones.has(uid)) {
            return false;
        }
        let known = kept.vms.get(&key);
        if known.is_some_and(|known| {
            known.metadata.uid == vm.metadata.uid && version(&known.metadata) >= version(&vm.metadata)
        }) {
            return false;
        }
        kept.vms.insert(key, Arc::new(vm));
        true
    }

    /// The server has reported the VM as deleted. A request that returns 404 is no proof: a server that is just starting may
    /// not have our definitions yet.
    pub(crate) fn vm_deleted(&self, key: &Key, uid: Option<&str>) {
        // Under one lock: between the two a late response could bring the VM back for good.
        let mut kept = self.lock();
        kept.drop_vm(key, uid);
        if let Some(uid) = uid {
            kept.tombstones.add(uid);
        }
    }

    /// The VM is not found; another of the same name may be there already.
    pub(crate) fn drop_vm(&self, key: &Key, uid: Option<&str>) {
        self.lock().drop_vm(key, uid);
    }

    /// The keys of VMs that are not among these: they went while the watch was broken.
    pub(crate) fn retain_vms(&self, seen: &HashSet<Key>) -> Vec<Key> {
        let mut kept = self.lock();
        let gone: Vec<Key> = kept.vms.keys().filter(|key| !seen.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| drop(kept.vms.remove(key)));
        gone
    }

    pub(crate) fn pods(&self, key: &Key) -> Vec<Arc<KeptPod>> {
        self.lock().pods.get(key).cloned().unwrap_or_default()
    }

    /// Keeps a pod of a VM unless a newer version is cached. Returns the VM, if the pod changed.
    pub(crate) fn put_pod(&self, pod: &Pod) -> Option<Key> {
        let (key, owner) = machine_of(&pod.metadata)?;
        let new = KeptPod { owner, version: version(&pod.metadata), view: PodView::from_pod(pod, MANAGER) };
        let mut kept = self.lock();
        if kept.tombstones.has(&new.view.uid) {
            return None;
        }
        let pods = kept.pods.entry(Arc::clone(&key)).or_default();
        let known = pods.iter_mut().find(|known| known.view.name == new.view.name);
        match known {
            Some(known) if known.view.uid == new.view.uid && known.version >= new.version => return None,
            Some(known) => {
                // Writes that change only fields we do not read, such as the times of conditions, wake no worker.
                let same = known.view == new.view && known.owner == new.owner;
                *known = Arc::new(new);
                return (!same).then_some(key);
            }
            None => pods.push(Arc::new(new)),
        }
        Some(key)
    }

    pub(crate) fn drop_pod(&self, key: &Key, name: &str, uid: Option<&str>) {
        self.lock().drop_pod(key, name, uid);
    }

    /// The server has reported the pod as deleted, and this is the last version of it: its end may be reported here for the first
    /// time.
    pub(crate) fn pod_deleted(&self, key: &Key, pod: &Pod) {
        let view = PodView::from_pod(pod, MANAGER);
        let mut kept = self.lock();
        kept.drop_pod(key, &view.name, Some(&view.uid));
        kept.tombstones.add(&view.uid);
        if let Some(exit) = view.ended {
            let words = kept.last_exits.entry(Arc::clone(key)).or_default();
            words.retain(|(name, _)| *name != view.name);
            words.push((view.name, exit));
            let old = words.len().saturating_sub(LAST_EXITS);
            words.drain(..old);
        }
    }

    /// How the pod with this name ended, if it is one of those that went last.
    pub(crate) fn last_exits(&self, key: &Key, pod: &str) -> Option<Exit> {
        let kept = self.lock();
        let mut words = kept.last_exits.get(key)?.iter();
        words.find(|(name, _)| name == pod).map(|(_, exit)| exit.clone())
    }

    /// The VM is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().last_exits.remove(key);
    }

    /// Only pods with these UIDs remain of the VM, or of all VMs.
    pub(crate) fn retain_pods(&self, of: Option<&Key>, seen: &HashSet<String>) -> Vec<Key> {
        let mut kept = self.lock();
        let mut changed = Vec::new();
        kept.pods.retain(|key, pods| {
            if of.is_some_and(|of| of != key) {
                return true;
            }
            let before = pods.len();
            pods.retain(|pod| seen.contains(&pod.view.uid));
            if pods.len() != before {
                changed.push(Arc::clone(key));
            }
            !pods.is_empty()
        });
        changed
    }

    pub(crate) fn tls(&self, key: &Key) -> (Option<TlsSecret>, bool, Option<Request>) {
        let kept = self.lock();
        (
            kept.tls.get(key).cloned(),
            kept.keys.contains_key(key),
            kept.requests.get(key).map(|(_, request)| request.clone()),
        )
    }

    pub(crate) fn set_tls(&self, key: &Key, secret: Option<TlsSecret>) {
        let mut kept = self.lock();
        match secret {
            Some(secret) => drop(kept.tls.insert(Arc::clone(key), secret)),
            None => drop(kept.tls.remove(key)),
        }
    }

    pub(crate) fn set_key(&self, key: &Key, uid: &str) {
        self.lock().keys.insert(Arc::clone(key), uid.to_owned());
    }

    /// The secret is gone; without a UID whichever it was.
    pub(crate) fn drop_key(&self, key: &Key, uid: Option<&str>) {
        let mut kept = self.lock();
        if kept.keys.get(key).is_some_and(|known| uid.is_none_or(|uid| uid == known)) {
            kept.keys.remove(key);
        }
    }

    pub(crate) fn set_request(&self, key: &Key, uid: &str, request: Request) {
        self.lock().requests.insert(Arc::clone(key), (uid.to_owned(), request));
    }

    /// The request is gone; without a UID whichever it was.
    pub(crate) fn drop_request(&self, key: &Key, uid: Option<&str>) {
        let mut kept = self.lock();
        if kept.requests.get(key).is_some_and(|(known, _)| uid.is_none_or(|uid| uid == known)) {
            kept.requests.remove(key);
        }
    }

    /// Forgets all secrets, or all requests, before a new list is read.
    pub(crate) fn clear_secrets(&self) {
        let mut kept = self.lock();
        kept.tls.clear();
        kept.keys.clear();
    }

    pub(crate) fn clear_requests(&self) {
        self.lock().requests.clear();
    }
}

#[cfg(test)]
mod tests;
