//! What watches have observed of the cluster, and the queue of VMs that a change wakes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use neonvm_core_vm_lifecycle::{PodView, RunnerView, Settings};
use neonvm_kit::queue::Queue;
use neonvm_types::runner_protocol::{RunnerState, RunnerStatus};

use crate::authority::Authority;
use crate::cache::{Cache, Key};
use crate::claims::Claims;
use crate::link::Links;
use crate::migration::Migrations;
use crate::policy::Policies;

/// The observed objects, the links to runners, and the queue.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<Cache>,
    pub(crate) migrating: Migrations,
    pub(crate) policies: Policies,
    pub(crate) claims: Claims,
    /// Names of the nodes on which no pod may be placed.
    pub(crate) cordoned: Mutex<BTreeSet<String>>,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) links: Links,
}

impl State {
    /// Nothing observed yet. Links to runners present the identity of `authority`.
    pub(crate) fn new(settings: Settings, authority: &Arc<Authority>) -> Self {
        let queue = Arc::new(Queue::new());
        let links = Links::new(Arc::clone(&queue), Arc::clone(authority));
        Self {
            settings,
            cache: Arc::default(),
            migrating: Migrations::default(),
            policies: Policies::default(),
            claims: Claims::default(),
            cordoned: Mutex::default(),
            queue,
            links,
        }
    }

    /// Whether a node is cordoned, as one that is drained is.
    pub(crate) fn is_cordoned(&self, node: &str) -> bool {
        self.cordoned.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    /// The settings for VMs of a namespace, with its policy.
    pub(crate) fn settings(&self, namespace: &str) -> Cow<'_, Settings> {
        self.policies.settings(&self.settings, namespace)
    }

    /// A pod of the VM with this UID and the runner in it, by the pod's name; the runner's last report outlives the pod.
    pub(crate) fn runner_pod(&self, key: &Key, vm: &str, pod: &str) -> (Option<PodView>, RunnerView) {
        if pod.is_empty() {
            return (None, RunnerView::Unknown);
        }
        let pods = self.cache.pods(key);
        if let Some(found) = pods.iter().find(|kept| kept.owner == vm && kept.view.name == pod) {
            return (Some(found.view.clone()), self.links.view(key, &found.view.uid));
        }
        let last = self.links.last_view(key, pod);
        let Some(exit) = self.cache.last_exits(key, pod) else { return (None, last) };
        let status = last.newest().cloned().unwrap_or_default();
        let status = RunnerStatus { state: RunnerState::Ended, exit: Some(exit), ..status };
        (None, RunnerView::Seen(Box::new(status)))
    }
}
