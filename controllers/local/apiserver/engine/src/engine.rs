//! The state of the API server, and how a change of an object is stored. [`crate::pipeline`] runs requests against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::access::RuleIndex;
use crate::admission::{Cluster, Webhooks};
use crate::kinds::{Kind, Kinds};
use crate::render;
use crate::store::{Change, Store, Stored};
use crate::task::Task;

pub(crate) type TableKey = (Arc<str>, Arc<str>);

#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) rules: RuleIndex,
    pub(crate) webhooks: Webhooks,
    /// Objects by the uid of an owner they name.
    pub(crate) owned: BTreeMap<String, BTreeSet<TableKey>>,
    pub(crate) foreground: BTreeMap<String, (Arc<Kind>, String)>,
    /// Names of definitions that are being deleted: kept here so that writes of their objects need not read one.
    pub(crate) ending: BTreeSet<String>,
    pub(crate) plugin: Option<crate::plugin::Plugin>,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) documents: crate::documents::Documents,
}

impl Engine {
    /// An engine over a store, which may hold objects read from disk.
    pub fn new(store: Store) -> Self {
        let mut engine = Self {
            store,
            kinds: Kinds::builtin(),
            rules: RuleIndex::default(),
            webhooks: Webhooks::default(),
            owned: BTreeMap::new(),
            foreground: BTreeMap::new(),
            ending: BTreeSet::new(),
            plugin: None,
            tasks: VecDeque::new(),
            documents: crate::documents::Documents::default(),
        };
        engine.reload();
        engine
    }

    /// The store, for the shell: floors, changes, revisions.
    pub fn store(&self) -> &Store {
        &self.store
    }

    #[cfg(test)]
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    pub fn take_changes(&mut self) -> Vec<Change> {
        self.store.take_fresh()
    }

    pub(crate) fn value(&self, table: &str, key: &str) -> Option<Value> {
        self.store.read(table, key).map(|stored| render::parse(&stored.json))
    }

    /// Stores an object: gives it its revision, and lets everything derived follow.
    pub(crate) fn put(&mut self, kind: &Kind, key: &str, mut object: Value) -> (Value, Stored) {
        let before = self.store.read(&kind.table, key).cloned();
        self.to_storage(&mut object, kind);
        let revision = self.store.next_revision();
        crate::object::set_meta(&mut object, "resourceVersion", Value::String(revision.to_string()));
        let json = render::to_bytes(&object);
        self.store.put(&kind.table, key, json.clone());
        self.follow(kind, key, before.as_ref(), Some((&object, &json)));
        let stored = Stored { revision, json };
        let shown = if kind.storage == kind.api_version() { object } else { render::value_in(kind, &stored) };
        (shown, stored)
    }

    /// Brings an object of a served version into the stored one. Custom objects lose what the stored version does
    /// not have.
    fn to_storage(&self, object: &mut Value, kind: &Kind) {
        if kind.api_version() == kind.storage {
            return;
        }
        crate::convert::to_storage(object, kind);
        if kind.custom.is_some()
            && let Some(stored) = self.kinds.of_table(&kind.table)
        {
            crate::convert::fit(object, stored);
        }
    }

    /// Removes an object; returns `object`, its last state for the response, at the final revision. Watchers get the state
    /// that was stored last: a finalizer whose removal lets the object go is still in it.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &str, mut object: Value) -> Value {
        let before = self.store.read(&kind.table, key).cloned();
        self.to_storage(&mut object, kind);
        let revision = self.store.next_revision();
        crate::object::set_meta(&mut object, "resourceVersion", Value::String(revision.to_string()));
        let json = render::to_bytes(&object);
        let stored = before.as_ref().map(|before| {
            let mut stored = render::parse(&before.json);
            crate::object::set_meta(&mut stored, "resourceVersion", Value::String(revision.to_string()));
            render::to_bytes(&stored)
        });
        self.store.remove(&kind.table, key, stored.unwrap_or_else(|| json.clone()));
        self.follow(kind, key, before.as_ref(), None);
        if self.is_ending(kind) {
            self.tasks.push_back(Task::Definition(kind.qualified()));
        }
        self.tasks.push_back(Task::Removed(crate::object::uid(&object).to_owned()));
        if !crate::object::namespace(&object).is_empty() {
            let namespace = crate::object::namespace(&object).to_owned();
            self.tasks.push_back(Task::NamespaceContent(namespace));
        }
        render::value_in(kind, &Stored { revision, json })
    }

    /// Whether the definition behind a custom kind is being deleted.
    pub(crate) fn is_ending(&self, kind: &Kind) -> bool {
        kind.custom.is_some() && self.ending.contains(&kind.qualified())
    }
}

impl Cluster for Engine {
    fn namespace(&self, name: &str) -> Option<Value> {
        self.value("/namespaces", &crate::store::key_of("", name))
    }

    fn equivalents(&self, kind: &Kind) -> Vec<Arc<Kind>> {
        let same =
            |other: &&Arc<Kind>| other.table == kind.table && other.api_version() != kind.api_version();
        self.kinds.all().filter(same).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
