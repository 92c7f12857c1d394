//! Garbage collection by owner references.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::Context;
use crate::engine::{Engine, TableKey};
use crate::kinds::Kind;
use crate::object;
use crate::options::DeleteOptions;
use crate::task::Task;

/// Finalizer of an object whose dependents are released before it goes.
pub(crate) const ORPHAN: &str = "orphan";
/// Finalizer of an object whose dependents go before it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

pub(crate) fn is_propagation(finalizer: &str) -> bool {
    matches!(finalizer, ORPHAN | FOREGROUND)
}

impl Engine {
    /// An object under an orphaning or foreground deletion waits until its dependents are released or gone.
    pub(crate) fn await_dependents(&mut self, uid: &str, (table, key): TableKey) {
        if let Some(kind) = self.kinds.of_table(&table).cloned() {
            self.foreground.insert(uid.to_owned(), (kind, key.to_string()));
        }
        self.tasks.push_back(Task::Propagate(table, key));
    }

    fn dependents(&self, uid: &str) -> Vec<(Arc<Kind>, Value)> {
        let places = self.owned.get(uid).into_iter().flatten();
        places
            .filter_map(|(table, key)| {
                let kind = Arc::clone(self.kinds.of_table(table)?);
                Some((kind, self.value(table, key)?))
            })
            .collect()
    }

    /// Whether the owner that a reference names lives, in the namespace of the dependent or cluster-wide.
    fn owner(&self, reference: &Value, namespace: &str) -> Option<(Arc<Kind>, Value)> {
        let api_version = object::text_at(reference, "apiVersion");
        let kind = Arc::clone(self.kinds.by_kind(api_version, object::text_at(reference, "kind"))?);
        let namespace = if kind.namespaced { namespace } else { "" };
        let key = crate::store::key_of(namespace, object::text_at(reference, "name"));
        let found = self.value(&kind.table, &key)?;
        (object::uid(&found) == object::text_at(reference, "uid")).then_some((kind, found))
    }

    /// After an owner is gone: each dependent is checked.
    pub(crate) fn release_dependents(&mut self, uid: &str, context: &Context) {
        for (kind, dependent) in self.dependents(uid) {
            let key = self.key_for(&kind, &dependent);
            self.check_owners(&kind.table, &key, context);
        }
    }

    fn key_for(&self, kind: &Kind, object: &Value) -> String {
        let namespace = if kind.namespaced { object::namespace(object) } else { "" };
        crate::store::key_of(namespace, object::name(object))
    }

    /// Deletes an object whose owners are all gone; drops references to some that are.
    pub(crate) fn check_owners(&mut self, table: &str, key: &str, context: &Context) {
        let Some(object) = self.value(table, key) else { return };
        let Some(kind) = self.kinds.of_table(table).cloned() else { return };
        let references = object::meta(&object).get("ownerReferences").and_then(Value::as_array).cloned();
        let references = references.unwrap_or_default();
        if references.is_empty() {
            return;
        }
        let namespace = object::namespace(&object).to_owned();
        let (mut solid, mut gone, mut waiting) = (Vec::new(), 0, Vec::new());
        for reference in &references {
            match self.owner(reference, &namespace) {
                None => gone += 1,
                Some((_, owner))
                    if object::is_deleting(&owner) && object::finalizers(&owner).contains(&FOREGROUND) =>
                {
                    waiting.push(object::uid(&owner).to_owned());
                }
                Some(_) => solid.push(reference.clone()),
            }
        }
        if gone == 0 && waiting.is_empty() {
            return;
        }
        if !solid.is_empty() {
            // Some owner still wants it: only the dead and dying ones are forgotten.
            let mut kept = object;
            object::set_meta(&mut kept, "ownerReferences", json!(solid));
            self.put_as_system(&kind, kept);
            for uid in waiting {
                self.finish_foreground(&uid);
            }
            return;
        }
        if object::is_deleting(&object) {
            return;
        }
        // Under a foreground deletion the dependents of dependents go first, too.
        let deeper = !waiting.is_empty() && !self.dependents(object::uid(&object)).is_empty();
        let policy = if deeper { "Foreground" } else { "Background" };
        let options = DeleteOptions { policy: policy.into(), ..DeleteOptions::default() };
        self.delete_as_system(&kind, &object, context, &options);
        for uid in waiting {
            self.finish_foreground(&uid);
        }
    }

    /// Checks an object that was just marked: its propagation finalizer is the collector's to take off.
    pub(crate) fn propagate(&mut self, kind: &Arc<Kind>, key: &str, context: &Context) {
        let Some(owner) = self.value(&kind.table, key) else { return };
        if !object::is_deleting(&owner) {
            return;
        }
        let uid = object::uid(&owner).to_owned();
        let finalizers = object::finalizers(&owner);
        if finalizers.contains(&ORPHAN) {
            for (dependent_kind, mut dependent) in self.dependents(&uid) {
                let references =
                    object::meta(&dependent).get("ownerReferences").and_then(Value::as_array).cloned();
                let rest: Vec<Value> = references
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|reference| object::text_at(reference, "uid") != uid)
                    .collect();
                object::set_meta(
                    &mut dependent,
                    "ownerReferences",
                    if rest.is_empty() { Value::Null } else { json!(rest) },
                );
                self.put_as_system(&dependent_kind, dependent);
            }
            self.take_finalizer(kind, key, ORPHAN);
        } else if finalizers.contains(&FOREGROUND) {
            for (dependent_kind, dependent) in self.dependents(&uid) {
                let key = self.key_for(&dependent_kind, &dependent);
                self.check_owners(&dependent_kind.table, &key, context);
            }
            self.finish_foreground(&uid);
        }
    }

    /// Lets an owner under foreground deletion go when no dependent blocks it any more.
    pub(crate) fn finish_foreground(&mut self, uid: &str) {
        let blocked = self.dependents(uid).iter().any(|(_, dependent)| {
            let references = object::meta(dependent).get("ownerReferences").and_then(Value::as_array);
            references.into_iter().flatten().any(|reference| {
                object::text_at(reference, "uid") == uid
                    && reference.get("blockOwnerDeletion") == Some(&json!(true))
            })
        });
        if blocked {
            return;
        }
        if let Some((kind, key)) = self.foreground.get(uid).cloned() {
            self.foreground.remove(uid);
            self.take_finalizer(&kind, &key, FOREGROUND);
        }
    }

    fn take_finalizer(&mut self, kind: &Arc<Kind>, key: &str, finalizer: &str) {
        let Some(mut owner) = self.value(&kind.table, key) else { return };
        let rest: Vec<String> =
            object::finalizers(&owner).into_iter().filter(|f| *f != finalizer).map(str::to_owned).collect();
        object::set_meta(&mut owner, "finalizers", if rest.is_empty() { Value::Null } else { json!(rest) });
        let grace =
            object::meta(&owner).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if rest.is_empty() && grace == 0 {
            self.remove(kind, key, owner);
        } else {
            self.put_as_system(kind, owner);
        }
    }
}
