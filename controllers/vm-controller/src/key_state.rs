//! What is remembered of each VM between reconciles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use neonvm_core_vm_lifecycle::growth::Spell;
use neonvm_core_vm_lifecycle::{DiskRequested, Failure, LimitsRequested, ResizeRefused, SizeUnanswered};
use neonvm_types::Timestamp;

use crate::cache::Key;

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
    /// The last request to the runner for each disk that was to grow.
    pub(crate) disks_requested: Vec<DiskRequested>,
    /// The last request to the runner for limits of disks.
    pub(crate) limits_requested: Option<LimitsRequested>,
    /// UID of the pod, if its runner has replied that it cannot take the VM.
    pub(crate) refused: Option<String>,
    /// Since when the node of its pod denies more.
    pub(crate) spell: Option<Spell>,
    /// When nodes were last searched for it, and why none of them was suitable.
    pub(crate) looked: Option<(Timestamp, String)>,
}

/// The states of all VMs, by key.
#[derive(Debug, Default)]
pub(crate) struct KeyStates(Mutex<HashMap<Key, KeyState>>);

impl KeyStates {
    /// Reads or changes the state of a VM; it begins empty.
    pub(crate) fn with<T>(&self, key: &Key, change: impl FnOnce(&mut KeyState) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(Arc::clone(key)).or_default())
    }

    /// Removes the state of a VM that is gone.
    pub(crate) fn remove(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
