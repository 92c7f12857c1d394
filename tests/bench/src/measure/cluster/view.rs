//! The fleet as the API server shows it to a watch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;

/// What is known of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Name of its pod; empty if it has none.
    pub(super) pod: String,
    /// Name of its node; empty if it has none.
    pub(super) node: String,
    /// How often it was started again.
    pub(super) restarts: i32,
    /// Since when it runs at the size that is requested, as this watch shows it.
    pub(super) since: Option<Instant>,
}

/// All VMs, by name.
#[derive(Debug, Default)]
pub(super) struct View {
    vms: Mutex<HashMap<String, Seen>>,
    running: AtomicUsize,
    changes: AtomicU64,
}

impl View {
    /// VMs that run at the size that is requested.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Changes of VMs so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// All VMs now.
    pub(super) fn vms(&self) -> HashMap<String, Seen> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of them.
    pub(super) fn vm(&self, name: &str) -> Option<Seen> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Follows the VMs; never returns.
    pub(super) async fn follow(&self, client: Client) {
        let api: Api<VirtualMachine> = Api::default_namespaced(client);
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Apply(vm))) => {
                    self.changes.fetch_add(1, Ordering::Relaxed);
                    self.take(&vm);
                }
                Ok(Some(watcher::Event::InitApply(vm))) => self.take(&vm),
                _ => {}
            }
        }
    }

    fn take(&self, vm: &VirtualMachine) {
        let status = vm.status.clone().unwrap_or_default();
        let settled = status.phase == Some(Phase::Running)
            && status.conditions.iter().any(|c| c.type_ == "Scaled" && c.status == "True");
        let mut vms = self.vms.lock().unwrap_or_else(PoisonError::into_inner);
        let before = vms.get(&vm.name_any()).and_then(|seen| seen.since);
        let seen = Seen {
            pod: status.pod_name,
            node: status.node,
            restarts: status.restart_count,
            since: settled.then(|| before.unwrap_or_else(Instant::now)),
        };
        match (before, seen.since) {
            (None, Some(_)) => drop(self.running.fetch_add(1, Ordering::Relaxed)),
            (Some(_), None) => drop(self.running.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        vms.insert(vm.name_any(), seen);
    }
}

/// VMs whose pod or count of starts is another one, or that are gone.
pub(super) fn disturbed(before: &HashMap<String, Seen>, now: &HashMap<String, Seen>) -> usize {
    let same = |old: &Seen, new: &Seen| old.pod == new.pod && old.restarts == new.restarts;
    before.iter().filter(|(name, old)| !now.get(*name).is_some_and(|new| same(old, new))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pod: &str, restarts: i32) -> Seen {
        Seen { pod: pod.to_owned(), node: "n".to_owned(), restarts, since: None }
    }

    #[test]
    fn a_new_pod_another_start_and_a_missing_vm_are_disturbances() {
        let all = |vms: &[(&str, Seen)]| {
            vms.iter().map(|(name, seen)| ((*name).to_owned(), seen.clone())).collect::<HashMap<_, _>>()
        };
        let before =
            all(&[("a", seen("p", 0)), ("b", seen("q", 0)), ("c", seen("r", 0)), ("d", seen("s", 1))]);
        let now = all(&[("a", seen("p", 0)), ("b", seen("x", 0)), ("d", seen("s", 2)), ("e", seen("t", 0))]);
        assert_eq!(disturbed(&before, &now), 3);
        assert_eq!(disturbed(&before, &before), 0);
    }
}
