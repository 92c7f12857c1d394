//! Autoscalers of the cluster, and which of them has its target.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;
use neonvm_api::{PodAutoscaler, validate};
use neonvm_core_pod_autoscaler::claim::{Claim, Foreign, Verdict, resolve};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// An object, and what it wants if it is valid and not going away.
#[derive(Debug)]
struct Known {
    object: Arc<PodAutoscaler>,
    claim: Option<Claim>,
}

impl Known {
    fn from_object(object: PodAutoscaler) -> Self {
        let is_going = object.metadata.deletion_timestamp.is_some();
        let claim =
            (!is_going && validate::pod_autoscaler(&object).is_empty()).then(|| Claim::from_object(&object));
        Self { object: Arc::new(object), claim }
    }
}

#[derive(Debug, Default)]
struct Inner {
    objects: HashMap<Key, Known>,
    /// All of the cluster, whether created by us or not.
    wrappers: HashMap<Key, Foreign>,
    verdicts: BTreeMap<Key, Verdict>,
}

/// Autoscalers and wrappers as last observed, with the verdicts about their targets.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Inner>);

/// Whether something changed that a decision depends on; the status does not count.
fn differs(old: &PodAutoscaler, new: &PodAutoscaler) -> bool {
    let of = |object: &PodAutoscaler| {
        let meta = object.metadata.clone();
        (meta.uid, meta.generation, meta.annotations, meta.labels, meta.deletion_timestamp.is_some())
    };
    of(old) != of(new) || old.spec != new.spec
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in an object as it is now; answers with the keys that need work.
    pub(crate) fn put(&self, key: &Key, object: Option<PodAutoscaler>) -> Vec<Key> {
        let mut inner = self.lock();
        if !inner.take(key, object) {
            return Vec::new();
        }
        let mut wake = inner.judge();
        if !wake.contains(key) {
            wake.push(key.clone());
        }
        wake
    }

    /// Takes in an object of a list; claims are judged when the list is whole. Answers whether it needs work.
    pub(crate) fn put_listed(&self, key: &Key, object: PodAutoscaler) -> bool {
        self.lock().take(key, Some(object))
    }

    /// What a list did not show is gone.
    pub(crate) fn retain(&self, listed: &std::collections::HashSet<Key>) -> Vec<Key> {
        let mut inner = self.lock();
        let mut wake: Vec<Key> = inner.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        inner.objects.retain(|key, _| listed.contains(key));
        wake.extend(inner.judge());
        wake
    }

    /// Takes in a `HorizontalPodAutoscaler`; answers as [`Cache::put`].
    pub(crate) fn put_wrapper(&self, key: &Key, wrapper: Option<Foreign>) -> Vec<Key> {
        let mut inner = self.lock();
        if inner.wrappers.get(key) == wrapper.as_ref() {
            return Vec::new();
        }
        match wrapper {
            Some(wrapper) => drop(inner.wrappers.insert(key.clone(), wrapper)),
            None => drop(inner.wrappers.remove(key)),
        }
        inner.judge()
    }

    /// What a list did not show is gone.
    pub(crate) fn retain_wrappers(&self, listed: &std::collections::HashSet<Key>) -> Vec<Key> {
        let mut inner = self.lock();
        inner.wrappers.retain(|key, _| listed.contains(key));
        inner.judge()
    }

    pub(crate) fn object(&self, key: &Key) -> Option<Arc<PodAutoscaler>> {
        self.lock().objects.get(key).map(|known| Arc::clone(&known.object))
    }

    /// Takes in the status that was just written; the watch will bring the same.
    pub(crate) fn put_status(&self, key: &Key, written: &PodAutoscaler) {
        let mut inner = self.lock();
        let known =
            inner.objects.get_mut(key).filter(|known| known.object.metadata.uid == written.metadata.uid);
        if let Some(known) = known {
            let mut object = (*known.object).clone();
            object.status.clone_from(&written.status);
            known.object = Arc::new(object);
        }
    }

    /// Whether there is such a `HorizontalPodAutoscaler`, controlled by the object with this unique id.
    pub(crate) fn has_wrapper(&self, key: &Key, uid: &str) -> bool {
        self.lock().wrappers.get(key).is_some_and(|hpa| hpa.controller.as_deref() == Some(uid))
    }

    /// The object that controls a `HorizontalPodAutoscaler`, by its unique id.
    pub(crate) fn controlled_by(&self, uid: &str) -> Option<Key> {
        let inner = self.lock();
        let found = inner.objects.iter().find(|(_, known)| known.object.metadata.uid.as_deref() == Some(uid));
        found.map(|(key, _)| key.clone())
    }

    /// Why an object may not scale its target; `None`: it may.
    pub(crate) fn conflict(&self, key: &Key) -> Option<String> {
        let inner = self.lock();
        let verdict = inner.verdicts.get(key)?;
        if *verdict == Verdict::Owner {
            return None;
        }
        Some(verdict.message(inner.objects.get(key)?.claim.as_ref()?))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().objects.len()
    }
}

impl Inner {
    /// Whether something changed.
    fn take(&mut self, key: &Key, object: Option<PodAutoscaler>) -> bool {
        let Some(object) = object else { return self.objects.remove(key).is_some() };
        let changed = self.objects.get(key).is_none_or(|old| differs(&old.object, &object));
        self.objects.insert(key.clone(), Known::from_object(object));
        changed
    }

    /// Decides all claims again; returns those whose verdict changed.
    fn judge(&mut self) -> Vec<Key> {
        let claims: Vec<Claim> = self.objects.values().filter_map(|known| known.claim.clone()).collect();
        let foreign: Vec<Foreign> = self.wrappers.values().cloned().collect();
        let verdicts = resolve(&claims, &foreign);
        let old = std::mem::replace(&mut self.verdicts, verdicts);
        let changed = |key: &&Key| old.get(*key) != self.verdicts.get(*key);
        let mut keys: Vec<Key> = self.verdicts.keys().filter(changed).cloned().collect();
        keys.extend(old.keys().filter(|key| !self.verdicts.contains_key(*key)).cloned());
        keys
    }
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &impl kube::ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// As a core sees a `HorizontalPodAutoscaler`.
pub(crate) fn foreign(hpa: &k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler) -> Option<Foreign> {
    let reference = &hpa.spec.scale_target_ref;
    let version = reference.api_version.clone().unwrap_or_default();
    let namespace = hpa.namespace().unwrap_or_default();
    let owners = hpa.metadata.owner_references.iter().flatten();
    let controller =
        owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next();
    Some(Foreign {
        name: hpa.name_any(),
        controller,
        target: neonvm_core_pod_autoscaler::claim::Target::new(
            &namespace,
            &version,
            &reference.kind,
            &reference.name,
        ),
    })
}
