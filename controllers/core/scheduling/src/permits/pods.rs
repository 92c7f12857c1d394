//! What is seen of pods.

use std::time::Duration;

use neonvm_types::NamespacedName;

use super::account::PodEntry;
use super::{MigrationRole, MigrationSeen, Noted, Pair, PodSeen, State};

impl State {
    pub(crate) fn pod_seen(&mut self, seen: PodSeen) -> bool {
        match self.pod_index.get(&seen.pod).copied() {
            Some(index) => {
                let Some(old) = self.pods.get(index) else { return false };
                if old.seen == seen {
                    return false;
                }
                if old.seen.uid == seen.uid {
                    self.pod_changed(index, seen);
                } else if old.tentative.is_some() && seen.node.is_none() && seen.created <= old.seen.created {
                    // A late report of an earlier pod: the target of a migration that was made again under its name.
                    return false;
                } else {
                    let gone = seen.pod.clone();
                    self.pod_gone(&gone, "");
                    self.pod_new(seen);
                }
            }
            None => self.pod_new(seen),
        }
        true
    }

    pub(crate) fn pod_new(&mut self, seen: PodSeen) {
        let key = seen.pod.clone();
        let ignored = self.settings.ignored_namespaces.contains(&key.namespace);
        let mut pod = PodEntry { ignored, known: true, ..PodEntry::default() };
        pod.noted = seen
            .vm
            .as_ref()
            .and_then(|vm| Some(Noted { unit: vm.unit?, requested: vm.requested?, approved: vm.approved? }));
        (pod.migrating, pod.queued) = (self.is_migrating(&seen), self.is_queued(&seen));
        let (node, is_bound) = (seen.place().cloned(), seen.node.is_some());
        pod.seen = seen;
        if is_bound {
            buffer(&mut pod, self.latest);
        }
        let index = self.pods.insert(pod);
        self.wait_for_agent(index);
        self.pod_index.insert(key, index);
        if let Some(name) = node {
            self.attach(index, &name);
        }
    }

    fn pod_changed(&mut self, index: usize, seen: PodSeen) {
        let Some(node) = self.detach(index) else { return };
        let migrating = self.is_migrating(&seen);
        let now = self.latest;
        let Some(pod) = self.pods.get_mut(index) else { return };
        let before = pod.unknown;
        let was_scaled = pod.seen.vm.as_ref().is_some_and(|vm| vm.scaled);
        let scaled = seen.vm.as_ref().is_some_and(|vm| vm.scaled);
        let newly_bound = seen.node.is_some() && node.is_none();
        let place = match (&seen.node, pod.tentative) {
            (Some(name), _) => {
                pod.tentative = None;
                Some(name.clone())
            }
            (None, Some(_)) if !seen.ended => node,
            (None, _) => seen.expects.clone(),
        };
        pod.seen = seen;
        if !scaled {
            (pod.held, pod.buffer, pod.pressure, pod.known) =
                (Pair::default(), Pair::default(), Pair::default(), true);
            (pod.request, pod.load) = (None, None);
        } else if newly_bound || !pod.known {
            buffer(pod, now);
        } else if !was_scaled {
            pod.held = pod.seen.usage;
        }
        rests(pod, migrating, now);
        let ended = pod.seen.ended;
        let newly_unknown = pod.unknown != before;
        if !pod.is_pending() {
            self.pending.remove(&index);
        }
        if newly_unknown {
            self.wait_for_agent(index);
        }
        if let Some(name) = place {
            self.attach(index, &name);
        }
        if ended {
            self.withdraw();
        }
    }

    pub(crate) fn pod_gone(&mut self, key: &NamespacedName, uid: &str) -> bool {
        let Some(index) = self.pod_index.get(key).copied() else { return false };
        if !uid.is_empty() && self.pods.get(index).is_some_and(|pod| pod.seen.uid != uid) {
            return false;
        }
        self.detach(index);
        self.pod_index.remove(key);
        self.pending.remove(&index);
        if let Some(pod) = self.pods.remove(index)
            && let Some(due) = pod.due
        {
            self.due.remove(&(due, index));
        }
        self.withdraw();
        true
    }

    /// Whether a migration has the VM, and its size is kept: until its target has a node, it is scaled as before.
    pub(crate) fn is_migrating(&self, seen: &PodSeen) -> bool {
        let keeps_size = |one: &MigrationSeen| !one.ended && !one.waits_for_node();
        let Some(uid) = seen.leaves_by() else { return false };
        self.migrations.get(uid).map_or(!self.migrations_listed, keeps_size)
    }
}

/// A migration has begun, has changed or has ended.
pub(crate) fn rests(pod: &mut PodEntry, migrating: bool, now: Duration) {
    if migrating {
        // The cluster shows it now.
        pod.leaving = None;
    }
    if migrating && !pod.migrating {
        pod.pressure = Pair::default();
    }
    if pod.migrating && !migrating {
        pod.rest_until = now + REST;
    }
    pod.migrating = migrating;
}

/// Until its agent reports, the permit of a scaled VM that runs is unknown, and room for its upper bound is kept, for at most
/// [`super::state::SILENT`].
pub(crate) fn buffer(pod: &mut PodEntry, now: Duration) {
    if pod.known {
        pod.unknown = Some(now);
    }
    let usage = pod.seen.usage;
    let Some(vm) = pod.seen.vm.as_ref().filter(|vm| vm.scaled) else {
        (pod.known, pod.buffer) = (true, Pair::default());
        return;
    };
    pod.held = pod.held.max(usage);
    if pod.seen.starting || matches!(vm.migration, Some((MigrationRole::Target, _))) {
        // It was placed at this size, and no agent scales it before it runs and is the VM's only pod.
        (pod.known, pod.buffer) = (true, Pair::default());
        return;
    }
    let most = vm.max.map_or(Pair::default(), Pair::from);
    (pod.known, pod.buffer) = (false, most.less(pod.held));
}

/// How long a VM stays after a migration has ended.
pub(crate) const REST: Duration = Duration::from_secs(60);
