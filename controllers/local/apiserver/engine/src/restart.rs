//! What is derived from the objects that were on disk: indexes, and the garbage collector's tasks that were due.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::background::collect::is_propagation;
use crate::engine::{Engine, TableKey};
use crate::follow::DEFINITIONS;
use crate::head::{Head, Owner};
use crate::kinds::{Kind, Kinds};
use crate::store::{Store, key_of};
use crate::task::Task;

impl Engine {
    pub(crate) fn reload(&mut self) {
        let tables: Vec<Arc<str>> = self.kinds.all().map(|kind| Arc::clone(&kind.table)).collect();
        for table in tables {
            self.store.open_table(&table);
        }
        for definition in self.values(DEFINITIONS) {
            self.note_ending(&definition);
            self.serve(&definition);
        }
        self.reload_rules();
        self.reload_webhooks();
        self.reload_owners();
    }

    /// Which objects own which, and what the garbage collector had not done yet.
    fn reload_owners(&mut self) {
        self.owned.clear();
        self.foreground.clear();
        let heads: Vec<(TableKey, Head<'_>)> = heads(&self.store).collect();
        let places: BTreeMap<&str, &TableKey> =
            heads.iter().map(|(place, head)| (head.uid(), place)).collect();
        let mut owners = Owners { kinds: &self.kinds, by_name: BTreeMap::new(), places };
        let (mut waiting, mut due) = (Vec::new(), Vec::new());
        for (place, head) in &heads {
            if head.is_deleting() && head.finalizers().iter().any(|finalizer| is_propagation(finalizer)) {
                waiting.push((head.uid().to_owned(), place.clone()));
            }
            for owner in head.owners() {
                self.owned.entry(owner.uid.clone()).or_default().insert(place.clone());
            }
            if head.owners().iter().any(|owner| !owners.has(owner, &place.1)) {
                due.push(Task::Owners(Arc::clone(&place.0), Arc::clone(&place.1)));
            }
        }
        for (uid, place) in waiting {
            self.await_dependents(&uid, place);
        }
        self.tasks.extend(due);
    }
}

fn heads(store: &Store) -> impl Iterator<Item = (TableKey, Head<'_>)> {
    store.tables().flat_map(|table| {
        let place = move |key: &Arc<str>| (Arc::clone(table), Arc::clone(key));
        store.range(table, "", None).map(move |(key, stored)| (place(key), Head::read(&stored.json)))
    })
}

/// Looks owners up. Each kind is searched once, because that takes longer than the rest of a look-up.
struct Owners<'a> {
    kinds: &'a Kinds,
    by_name: BTreeMap<(String, String), Option<Arc<Kind>>>,
    places: BTreeMap<&'a str, &'a TableKey>,
}

impl Owners<'_> {
    /// Whether an owner exists where a reference of the object with this key finds it.
    fn has(&mut self, owner: &Owner, key: &str) -> bool {
        let name = (owner.api_version.clone(), owner.kind.clone());
        let kinds = self.kinds;
        let kind = self.by_name.entry(name);
        let kind = kind.or_insert_with_key(|(version, kind)| kinds.by_kind(version, kind).cloned());
        let (Some(kind), Some((table, found))) = (kind, self.places.get(owner.uid.as_str())) else {
            return false;
        };
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let namespace = if kind.namespaced { namespace } else { "" };
        kind.table == *table && **found == *key_of(namespace, &owner.name)
    }
}
