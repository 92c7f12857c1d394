//! What all workers share.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_vm_lifecycle::growth::Spell;
use neonvm_core_vm_lifecycle::{Failure, ResizeRefused, Settings, SizeUnanswered};
use neonvm_types::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};

use neonvm_kit::event::Events;
use neonvm_kit::queue::Queue;

use crate::addresses::{AddressConfig, Addresses, Worker};
use crate::authority::Authority;
use crate::cache::{Cache, Key};
use crate::cert_manager::CertManager;
use crate::lag::Lag;
use crate::link::Links;
use crate::metrics::Metrics;
use crate::moves::Moves;
use crate::policy::Policies;

/// Field manager of everything we write.
pub(crate) const MANAGER: &str = "neonvm-vm-controller";
/// Longest wait for one answer of the API server.
pub(crate) const REQUEST: Duration = Duration::from_secs(20);

/// Per-key state: what is remembered of a VM between reconciles.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyState {
    /// What went wrong in the last reconcile.
    pub(crate) failure: Option<Failure>,
    /// When a change of size was first seen, for the histogram.
    pub(crate) scaling_since: Option<tokio::time::Instant>,
    /// When the runner was ordered to continue a paused post-copy.
    pub(crate) recovered: Option<Timestamp>,
    /// The last resize of a pod that the API server refused.
    pub(crate) resize_refused: Option<ResizeRefused>,
    /// The size that was requested from the runner without a reply.
    pub(crate) size_unanswered: Option<SizeUnanswered>,
    /// UID of the pod, if its runner has replied that it cannot take the VM.
    pub(crate) refused: Option<String>,
    /// Since when the node of its pod denies more.
    pub(crate) spell: Option<Spell>,
    /// When nodes were last searched for it, and why none of them was suitable.
    pub(crate) looked: Option<(Timestamp, String)>,
}

/// What all workers share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) cache: Cache,
    pub(crate) moves: Moves,
    pub(crate) policies: Policies,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) links: Links,
    pub(crate) authority: Arc<Authority>,
    pub(crate) cert_manager: CertManager,
    pub(crate) addresses: Addresses,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lag: Arc<Lag>,
    /// Held while nodes are searched: all pods of the cluster are read for it, for one VM at a time.
    pub(crate) looking: tokio::sync::Mutex<()>,
    key_states: Mutex<HashMap<Key, KeyState>>,
    random: SystemRandom,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// What a context is made of.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) authority: Arc<Authority>,
    pub(crate) addresses: AddressConfig,
    /// Of the controller: address pools are there.
    pub(crate) namespace: String,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lag: Arc<Lag>,
    pub(crate) events: Events,
}

impl Context {
    /// The context, and what looks after its addresses.
    pub(crate) fn new(parts: Parts) -> (Self, Worker) {
        let Parts { client, settings, authority, addresses, namespace, metrics, lag, events } = parts;
        let (addresses, worker) = Addresses::new(addresses, &namespace, Arc::clone(&metrics.ipam));
        let queue = Arc::new(Queue::new());
        let links = Links::new(Arc::clone(&queue), Arc::clone(&authority));
        let context = Self {
            client,
            settings,
            cache: Cache::default(),
            moves: Moves::default(),
            policies: Policies::default(),
            queue,
            links,
            authority,
            cert_manager: CertManager::default(),
            addresses,
            events,
            metrics,
            lag,
            looking: tokio::sync::Mutex::default(),
            key_states: Mutex::default(),
            random: SystemRandom::new(),
        };
        (context, worker)
    }

    /// The settings for VMs of a namespace, with its policy.
    pub(crate) fn settings(&self, namespace: &str) -> Cow<'_, Settings> {
        self.policies.settings(&self.settings, namespace)
    }

    pub(crate) fn vms(&self, namespace: &str) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn migrations(&self, namespace: &str) -> Api<VirtualMachineMigration> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn key_state<T>(&self, key: &Key, change: impl FnOnce(&mut KeyState) -> T) -> T {
        let mut key_states = self.key_states.lock().unwrap_or_else(PoisonError::into_inner);
        change(key_states.entry(Arc::clone(key)).or_default())
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.key_states.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.links.close(key);
        self.cache.forget(key);
        self.lag.forget(key);
        self.addresses.gone(&key.to_string());
    }

    /// What ends the name of a new runner pod.
    pub(crate) fn suffix(&self) -> String {
        let mut bytes = [0_u8; 5];
        if self.random.fill(&mut bytes).is_err() {
            // The name only has to differ from the last; the clock does that.
            let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            bytes.iter_mut().zip(nanos.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        neonvm_core_vm_lifecycle::pod::name::suffix(bytes)
    }
}

/// 1970-01-01.
const EPOCH: Timestamp = match Timestamp::from_unix(0) {
    Some(time) => time,
    // 1970 lies between the years 0 and 9999.
    None => unreachable!(),
};

/// The time of day, in seconds.
pub(crate) fn now() -> Timestamp {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(seconds).ok().and_then(Timestamp::from_unix).unwrap_or(EPOCH)
}
