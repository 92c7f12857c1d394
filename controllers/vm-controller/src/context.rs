//! What all workers share.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_core_vm_lifecycle::Settings;
use ring::rand::{SecureRandom as _, SystemRandom};

use neonvm_kit::event::Events;
use neonvm_kit::queue::Queue;

use crate::addresses::{AddressConfig, Addresses, Worker};
use crate::authority::Authority;
use crate::cache::{Cache, Key};
use crate::cert_manager::CertManager;
use crate::key_state::{KeyState, KeyStates};
use crate::lag::Lag;
use crate::link::Links;
use crate::metrics::Metrics;
use crate::migration::Migrations;
use crate::policy::Policies;

/// What all workers share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<Cache>,
    pub(crate) migrating: Migrations,
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
    key_states: KeyStates,
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
            cache: Arc::new(Cache::default()),
            migrating: Migrations::default(),
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
            key_states: KeyStates::default(),
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
        self.key_states.with(key, change)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.key_states.remove(key);
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
