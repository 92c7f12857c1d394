//! Disruption budgets for runner pods of earlier versions: one for each namespace that has some, which lets none of its runner
//! pods go. Their names do not match the condition of the eviction webhook
//! ([`PATTERN`](neonvm_core_vm_lifecycle::pod::name::PATTERN)), so nothing else holds them. The budget goes when each VM of the
//! namespace has a new pod, after a restart or a migration; until then the cluster autoscaler leaves the nodes of these pods alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_core_vm_lifecycle::pod::name::is_runner;
use neonvm_kit::watch::retry;
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::request::MANAGER;
use crate::request::{is_missing, within};

/// Name of each budget.
const NAME: &str = "neonvm-machines";
/// Marks what is ours.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// First and longest pause after a failed write.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The budgets that there are.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Whether there should be any.
    wanted: bool,
    /// Namespaces that have one as it should be.
    there: Mutex<BTreeSet<String>>,
    news: Notify,
}

impl Budgets {
    /// `wanted`: whether evictions are answered at all; if not, machines are not held.
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted, there: Mutex::default(), news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a VM of this namespace as it is now, or that it is gone.
    pub(crate) fn see(&self, namespace: &str, vm: Option<&VirtualMachine>) {
        if (self.wanted && vm.is_some_and(is_held)) != self.lock().contains(namespace) {
            self.news.notify_one();
        }
    }

    /// Keeps them as they should be; returns only if their watch ends.
    pub(crate) async fn keep(budgets: Arc<Self>, client: Client, cache: Arc<Cache>) {
        tokio::select! {
            () = budgets.watch(&client) => {}
            () = budgets.write(&client, &cache) => {}
        }
    }

    async fn watch(&self, client: &Client) {
        let api: Api<PodDisruptionBudget> = Api::all(client.clone());
        let config = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
        let mut events = watcher(api, config).backoff(retry()).boxed();
        let mut seen = BTreeSet::new();
        loop {
            let place = |budget: &PodDisruptionBudget| budget.metadata.namespace.clone().unwrap_or_default();
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => seen.clear(),
                Ok(Some(watcher::Event::InitApply(budget))) => {
                    if is_right(&budget) {
                        seen.insert(place(&budget));
                    }
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    *self.lock() = std::mem::take(&mut seen);
                    self.news.notify_one();
                }
                Ok(Some(watcher::Event::Apply(budget))) => {
                    if is_right(&budget) {
                        self.lock().insert(place(&budget));
                    } else {
                        self.lock().remove(&place(&budget));
                        self.news.notify_one();
                    }
                }
                Ok(Some(watcher::Event::Delete(budget))) => {
                    self.lock().remove(&place(&budget));
                    self.news.notify_one();
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "disruption budgets cannot be watched"),
            }
        }
    }

    async fn write(&self, client: &Client, cache: &Cache) {
        let mut pause = PAUSES.0;
        loop {
            self.news.notified().await;
            while !self.turn(client, cache).await {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            pause = PAUSES.0;
        }
    }

    /// Makes what is missing, removes what is not needed; whether that went well.
    async fn turn(&self, client: &Client, cache: &Cache) -> bool {
        let vms = if self.wanted { cache.all_vms() } else { Vec::new() };
        let held = vms.iter().filter(|vm| is_held(vm));
        let wanted: BTreeSet<String> = held.filter_map(|vm| vm.metadata.namespace.clone()).collect();
        let there = self.lock().clone();
        let mut good = true;
        for namespace in wanted.symmetric_difference(&there) {
            let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
            let missing = wanted.contains(namespace);
            let done = if missing {
                let params = PatchParams::apply(MANAGER).force();
                within(api.patch(NAME, &params, &Patch::Apply(budget()))).await.map(drop)
            } else {
                within(api.delete(NAME, &DeleteParams::default())).await.map(drop)
            };
            match done {
                Err(error) if missing || !is_missing(&error) => {
                    tracing::warn!(%error, namespace, "the disruption budget of VMs cannot be written");
                    good = false;
                }
                // Only the watch updates the set: it may already have seen a later change by another client.
                _ => {}
            }
        }
        good
    }
}

/// Whether the VM has a pod that the eviction webhook is not called for.
fn is_held(vm: &VirtualMachine) -> bool {
    let pod = vm.status.as_ref().map(|status| status.pod_name.as_str());
    pod.is_some_and(|pod| !pod.is_empty() && !is_runner(pod))
}

/// What each of them is. More pods than can exist must stay: a share of them, or a number that may go, can only be
/// counted for pods of an owner with a scale, which VMs do not have.
fn budget() -> PodDisruptionBudget {
    let selector = [(label::APP_NAME.to_owned(), label::APP_NAME_VALUE.to_owned())];
    PodDisruptionBudget {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some([(MANAGED_BY.to_owned(), MANAGER.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(i32::MAX)),
            selector: Some(LabelSelector { match_labels: Some(selector.into()), match_expressions: None }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

/// Whether one of ours has the desired content.
fn is_right(found: &PodDisruptionBudget) -> bool {
    let wanted = budget();
    let parts = |budget: &PodDisruptionBudget| {
        let spec = budget.spec.clone().unwrap_or_default();
        (spec.min_available, spec.max_unavailable, spec.selector)
    };
    found.metadata.name == wanted.metadata.name && parts(found) == parts(&wanted)
}
