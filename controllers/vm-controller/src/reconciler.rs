//! What the reconcile of VMs and of their migrations needs.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use neonvm_kit::event::Events;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::addresses::Addresses;
use crate::authority::Authority;
use crate::cache::Key;
use crate::cert_manager::CertManager;
use crate::growth::Growth;
use crate::key_state::KeyStates;
use crate::lag::Lag;
use crate::metrics::Metrics;
use crate::requests::Requests;
use crate::state::State;

/// Reconciles VMs and their migrations: reads the state, steps the core, sends requests.
#[derive(Debug)]
pub(crate) struct Reconciler {
    pub(crate) requests: Requests,
    pub(crate) state: Arc<State>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lag: Arc<Lag>,
    pub(crate) growth: Growth,
    pub(crate) cert_manager: CertManager,
    pub(crate) key_states: Arc<KeyStates>,
    pub(crate) random: SystemRandom,
}

impl Reconciler {
    /// Drops what is remembered of a VM that no longer exists.
    pub(crate) fn forget(&self, key: &Key) {
        self.key_states.remove(key);
        self.state.links.close(key);
        self.state.cache.forget(key);
        self.lag.forget(key);
        self.addresses.gone(&key.to_string());
    }

    /// The random end of the name of a new runner pod.
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
