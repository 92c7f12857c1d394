//! What has to be written to the cluster.

use std::time::Duration;

use neonvm_types::{NamespacedName, Resources};

use super::{MigrationSeen, State};

/// A write to the cluster. The caller reports its outcome to [`super::State::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Note request and permit at the VM.
    Annotate(Annotation),
    CreateMigration(WantedMigration),
    /// Delete a migration that has ended, this very one.
    DeleteMigration {
        migration: NamespacedName,
        /// Its uid: another of that name stays.
        uid: String,
    },
}

/// What is noted at a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The pod whose agent sent the request.
    pub pod: NamespacedName,
    pub pod_uid: String,
    pub vm: NamespacedName,
    /// UID of the VM, if observed: another VM of that name is left alone.
    pub vm_uid: Option<String>,
    /// What is written.
    pub values: Noted,
}

/// The values of the three annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The compute unit.
    pub unit: Resources,
    /// Size that the agent requested.
    pub requested: Resources,
    pub approved: Resources,
}

/// A migration to make, named `schedplugin-<pod>` in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMigration {
    pub pod: NamespacedName,
    pub pod_uid: String,
    pub vm: String,
    /// Where it was seen to fit. The migration itself is placed when its pod is.
    pub target: String,
    /// Reason, in words.
    pub why: String,
}

impl WantedMigration {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.pod.name)
    }

    /// The pod that a migration of ours, which is not over, is to empty.
    pub(crate) fn pod_of(seen: &MigrationSeen) -> Option<NamespacedName> {
        let name = seen.migration.name.strip_prefix(PREFIX).filter(|_| seen.ours && !seen.ended)?;
        Some(NamespacedName::new(seen.migration.namespace.clone(), name))
    }
}

/// How names of our migrations begin; that of the pod follows.
const PREFIX: &str = "schedplugin-";

/// Attempts to note a permit until the next change.
const TRIES: u32 = 8;
/// First and longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The pause after so many failed tries.
fn pause(tries: u32) -> Duration {
    PAUSES.0.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSES.1)
}

impl State {
    /// At most `limit` writes that are due. The caller must report each outcome to [`State::done`].
    pub fn take_actions(&mut self, now: Duration, limit: usize) -> Vec<Action> {
        self.latest = self.latest.max(now);
        self.delete_again();
        let ready = self.actions.len().min(limit);
        let mut actions: Vec<Action> = self.actions.drain(..ready).collect();
        while actions.len() < limit {
            let Some((due, index)) = self.due.first().copied() else { break };
            if due > self.latest {
                break;
            }
            self.due.pop_first();
            let now = self.latest;
            let Some(pod) = self.pods.get_mut(index) else { continue };
            pod.due = None;
            let Some((_, values)) = pod.request.filter(|(_, values)| Some(*values) != pod.noted) else {
                continue;
            };
            let Some(vm) = &pod.seen.vm else { continue };
            (pod.writing, pod.tried) = (true, Some(now));
            actions.push(Action::Annotate(Annotation {
                pod: pod.seen.pod.clone(),
                pod_uid: pod.seen.uid.clone(),
                vm: NamespacedName::new(pod.seen.pod.namespace.clone(), vm.name.clone()),
                vm_uid: vm.uid.clone(),
                values,
            }));
        }
        actions
    }

    /// An action was tried. What failed is tried again later, but not for ever.
    pub fn done(&mut self, now: Duration, action: &Action, ok: bool) {
        self.latest = self.latest.max(now);
        match action {
            Action::Annotate(note) => self.annotated(note, ok),
            Action::CreateMigration(wanted) if !ok => {
                if let Some(index) = self.pod_index.get(&wanted.pod).copied() {
                    let until = self.latest + PAUSES.1;
                    self.change(index, |pod| {
                        if pod.seen.uid == wanted.pod_uid {
                            (pod.leaving, pod.rest_until) = (None, until);
                        }
                    });
                }
            }
            Action::CreateMigration(_) => {}
            Action::DeleteMigration { uid, .. } if ok => drop(self.undeleted.remove(uid)),
            Action::DeleteMigration { uid, .. } => {
                let tries = self.undeleted.get(uid).map_or(0, |(_, tries)| *tries) + 1;
                if tries < TRIES && self.migrations.contains_key(uid) {
                    self.undeleted.insert(uid.clone(), (self.latest + pause(tries), tries));
                } else {
                    self.undeleted.remove(uid);
                }
            }
        }
    }

    /// Deletions that failed are put back when they are due.
    fn delete_again(&mut self) {
        let now = self.latest;
        // A migration that was to be withdrawn and has begun continues.
        let migrations = &self.migrations;
        let still = |uid: &String| migrations.get(uid).is_some_and(|seen| seen.ended || seen.pending);
        self.undeleted.retain(|uid, _| still(uid));
        for (uid, (due, _)) in &mut self.undeleted {
            if *due <= now
                && let Some(seen) = self.migrations.get(uid)
            {
                // Until the outcome is reported.
                *due = now + PAUSES.1;
                let (migration, uid) = (seen.migration.clone(), uid.clone());
                self.actions.push_back(Action::DeleteMigration { migration, uid });
            }
        }
    }

    fn annotated(&mut self, note: &Annotation, ok: bool) {
        let Some(index) = self.pod_index.get(&note.pod).copied() else { return };
        let now = self.latest;
        let Some(pod) = self.pods.get_mut(index).filter(|pod| pod.seen.uid == note.pod_uid) else { return };
        pod.writing = false;
        if ok {
            (pod.tries, pod.noted) = (0, Some(note.values));
            self.note(index);
            return;
        }
        pod.tries += 1;
        if pod.tries >= TRIES {
            pod.tries = 0;
            self.counters.writes_lost += 1;
            return;
        }
        let due = now + pause(pod.tries);
        if let Some(old) = pod.due.replace(due) {
            self.due.remove(&(old, index));
        }
        self.due.insert((due, index));
    }
}
