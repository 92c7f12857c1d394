//! Migrations created by this scheduler that are still queued, and those of others whose target has no node. They may wait for long:
//! until one is over, its VM counts as leaving, and is scaled as before; a migration of this scheduler is withdrawn if its VM has left in
//! another way.

use std::collections::BTreeMap;

use neonvm_types::NamespacedName;

use super::pods::REST;
use super::{Action, MigrationSeen, PodSeen, State, WantedMigration};

impl State {
    /// Whether a migration of ours for the VM in this pod exists and is not over, or another one looks for a node for it.
    pub(crate) fn is_queued(&self, seen: &PodSeen) -> bool {
        self.looks_for_node(seen) || self.migrations.values().any(|migration| is_for(migration, seen))
    }

    fn looks_for_node(&self, seen: &PodSeen) -> bool {
        let migration = seen.leaves_by().and_then(|uid| self.migrations.get(uid));
        migration.is_some_and(|one| !one.ended && one.waits_for_node())
    }

    /// Updates which pods have a queued migration. Returns whether any changed.
    pub(crate) fn look_at_queue(&mut self) -> bool {
        let mut waiting: BTreeMap<NamespacedName, Vec<&MigrationSeen>> = BTreeMap::new();
        for migration in self.migrations.values() {
            if let Some(pod) = WantedMigration::pod_of(migration) {
                waiting.entry(pod).or_default().push(migration);
            }
        }
        let of = |seen: &PodSeen| {
            let own = waiting.get(&seen.pod).into_iter().flatten();
            self.looks_for_node(seen) || own.into_iter().any(|migration| is_for(migration, seen))
        };
        let changed: Vec<(usize, bool)> = self
            .pods
            .iter()
            .map(|(index, pod)| (index, of(&pod.seen), pod.queued))
            .filter(|(_, now, before)| now != before)
            .map(|(index, now, _)| (index, now))
            .collect();
        let rest_until = self.latest + REST;
        for (index, queued) in &changed {
            self.change(*index, |pod| {
                pod.queued = *queued;
                if !*queued {
                    (pod.leaving, pod.rest_until) = (None, rest_until);
                }
            });
        }
        !changed.is_empty()
    }

    /// A migration that waits for a VM that has left its pod would migrate it once more, from wherever it is by then.
    pub(crate) fn withdraw(&mut self) {
        // What was not seen yet has not left.
        if !(self.listed && self.migrations_listed) {
            return;
        }
        let left: Vec<MigrationSeen> = self
            .migrations
            .values()
            .filter(|migration| {
                migration.pending && !migration.deleting && !self.withdrawn.contains(&migration.uid)
            })
            .filter(|migration| WantedMigration::pod_of(migration).is_some_and(|pod| !self.is_there(&pod)))
            .cloned()
            .collect();
        for MigrationSeen { migration, uid, .. } in left {
            self.withdrawn.insert(uid.clone());
            self.actions.push_back(Action::DeleteMigration { migration, uid });
        }
    }

    fn is_there(&self, pod: &NamespacedName) -> bool {
        let index = self.pod_index.get(pod);
        index.and_then(|index| self.pods.get(*index)).is_some_and(|pod| !pod.seen.ended)
    }
}

fn is_for(migration: &MigrationSeen, seen: &PodSeen) -> bool {
    seen.vm.as_ref().is_some_and(|vm| vm.name == migration.vm)
        && WantedMigration::pod_of(migration).as_ref() == Some(&seen.pod)
}
