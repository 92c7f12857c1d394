//! The versioned store: every object at its newest version, and a bounded window of past changes per resource.
//!
//! One counter gives each change its revision (`resourceVersion`). The window serves watches, and – by undoing what
//! came later – lists of a past revision. What has left the window is compacted: a request for it is answered with
//! `Expired`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

/// Changes kept per resource.
const WINDOW_CHANGES: usize = 16_384;
/// Bytes of objects that the window of a resource keeps beyond its present objects.
const WINDOW_BYTES: usize = 48 << 20;
/// The same for all resources together: definitions can add any number of resources.
const ALL_WINDOWS_BYTES: usize = 192 << 20;

/// One version of an object, as it is sent to clients that want its storage version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub revision: u64,
    /// Compact JSON, including `metadata.resourceVersion`.
    pub json: Bytes,
}

#[derive(Clone, Debug)]
pub struct Change {
    /// `group/plural`.
    pub table: Arc<str>,
    /// `namespace/name`, or `/name` for cluster-scoped objects.
    pub key: Arc<str>,
    /// Revision of the change.
    pub revision: u64,
    /// The version before; `None` for a creation.
    pub before: Option<Stored>,
    /// The version after; for a deletion, the last state under the deletion's revision.
    pub after: Stored,
    pub deleted: bool,
}

impl Change {
    /// Bytes that are in memory only because this change is in the window: the version before, and what a deletion
    /// left. The version after a write is the present object, or the version before of a later change in the window.
    fn kept(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.json.len());
        if self.deleted { before + self.after.json.len() } else { before }
    }
}

#[derive(Debug)]
struct Limits {
    changes: usize,
    bytes: usize,
    all_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: WINDOW_CHANGES, bytes: WINDOW_BYTES, all_bytes: ALL_WINDOWS_BYTES }
    }
}

#[derive(Debug, Default)]
struct Table {
    items: BTreeMap<Arc<str>, Stored>,
    window: VecDeque<Change>,
    /// Sum of [`Change::kept`] over the window.
    window_bytes: usize,
    /// Watches and exact lists can go back to this revision, not further.
    floor: u64,
}

impl Table {
    /// Drops the oldest change; returns the bytes that are free with it.
    fn forget_oldest(&mut self) -> Option<usize> {
        let old = self.window.pop_front()?;
        let freed = old.kept();
        self.window_bytes = self.window_bytes.saturating_sub(freed);
        self.floor = old.revision;
        Some(freed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// It has been compacted; the oldest available is given.
    Expired(u64),
}

#[derive(Debug, Default)]
pub struct Store {
    tables: BTreeMap<Arc<str>, Table>,
    revision: u64,
    /// Changes not yet handed to the shell for persistence.
    fresh: Vec<Change>,
    limits: Limits,
    window_bytes: usize,
}

impl Store {
    /// An empty store whose first change gets `revision + 1`.
    pub fn new(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Keeps fewer changes per resource than usual; for tests of compaction.
    pub fn set_window(&mut self, changes: usize) {
        self.limits.changes = changes;
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts back an object read from disk; it makes no history.
    pub fn restore(&mut self, table: &str, key: &str, stored: Stored) {
        let revision = self.revision;
        let entry =
            self.tables.entry(table.into()).or_insert_with(|| Table { floor: revision, ..Table::default() });
        entry.items.insert(key.into(), stored);
    }

    /// Sets the revision from which on a table's history is complete (its last change before a restart).
    pub fn restore_floor(&mut self, table: &str, floor: u64) {
        self.tables.entry(table.into()).or_default().floor = floor;
    }

    /// Registers a table, its history starting now.
    pub fn open_table(&mut self, table: &str) {
        let revision = self.revision;
        self.tables.entry(table.into()).or_insert_with(|| Table { floor: revision, ..Table::default() });
    }

    /// Forgets a table that holds no objects, with its history.
    pub fn close_table(&mut self, table: &str) {
        if let Some(closed) = self.tables.remove(table) {
            self.window_bytes = self.window_bytes.saturating_sub(closed.window_bytes);
        }
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tables.keys()
    }

    pub fn read(&self, table: &str, key: &str) -> Option<&Stored> {
        self.tables.get(table)?.items.get(key)
    }

    pub fn count(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, |t| t.items.len())
    }

    /// The newest versions whose keys start with `prefix` and come after `after`, in key order.
    pub fn range<'a>(
        &'a self,
        table: &str,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Stored)> + use<'a> {
        let from: Bound<&str> = match after {
            Some(key) if key >= prefix => Bound::Excluded(key),
            _ => Bound::Included(prefix),
        };
        let range = self.tables.get(table).map(|t| t.items.range::<str, _>((from, Bound::Unbounded)));
        range.into_iter().flatten().take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The oldest revision a watch or an exact list of this table can start from.
    pub fn floor(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(self.revision, |t| t.floor)
    }

    /// The first `limit` objects, in key order, of the state of a table at a past revision.
    ///
    /// # Errors
    /// `Expired` if the window no longer reaches back that far.
    pub fn page_at(
        &self,
        table: &str,
        prefix: &str,
        after: Option<&str>,
        revision: u64,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Stored)>, Unavailable> {
        // What later changes replaced or removed; `None` for what they created.
        let mut undone: BTreeMap<Arc<str>, Option<Stored>> = BTreeMap::new();
        if let Some(found) = self.tables.get(table) {
            if revision < found.floor {
                return Err(Unavailable::Expired(found.floor));
            }
            for change in found.window.iter().rev().take_while(|c| c.revision > revision) {
                if change.key.starts_with(prefix) && after.is_none_or(|after| &*change.key > after) {
                    undone.insert(Arc::clone(&change.key), change.before.clone());
                }
            }
        }
        let mut page = Vec::new();
        let mut present = self.range(table, prefix, after).peekable();
        while page.len() < limit {
            let gone_comes_first = match (undone.first_key_value(), present.peek()) {
                (None, None) => break,
                (Some((gone, _)), Some((key, _))) => gone < *key,
                (gone, _) => gone.is_some(),
            };
            let (key, stored) = if gone_comes_first {
                let Some((key, before)) = undone.pop_first() else { break };
                (key, before)
            } else {
                let Some((key, stored)) = present.next() else { break };
                (Arc::clone(key), undone.remove(key).unwrap_or_else(|| Some(stored.clone())))
            };
            page.extend(stored.map(|stored| (key, stored)));
        }
        Ok(page)
    }

    /// Changes of a table after `after` and up to `upto`, at most `limit`.
    ///
    /// # Errors
    /// `Expired` if some of them have left the window.
    pub fn changes(
        &self,
        table: &str,
        after: u64,
        upto: u64,
        limit: usize,
    ) -> Result<Vec<Change>, Unavailable> {
        let Some(found) = self.tables.get(table) else { return Ok(Vec::new()) };
        if after < found.floor {
            return Err(Unavailable::Expired(found.floor));
        }
        let start = found.window.partition_point(|c| c.revision <= after);
        Ok(found.window.iter().skip(start).take_while(|c| c.revision <= upto).take(limit).cloned().collect())
    }

    pub fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// Writes an object whose JSON already carries `next_revision()`.
    pub fn put(&mut self, table: &str, key: &str, json: Bytes) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        let (table, entry) = self.entry(table);
        let key: Arc<str> =
            entry.items.get_key_value(key).map_or_else(|| key.into(), |(known, _)| Arc::clone(known));
        let after = Stored { revision, json };
        let before = entry.items.insert(Arc::clone(&key), after.clone());
        self.record(Change { table, key, revision, before, after, deleted: false });
        revision
    }

    /// Removes an object; `json` is its last state and carries `next_revision()`.
    pub fn remove(&mut self, table: &str, key: &str, json: Bytes) -> u64 {
        let (table, entry) = self.entry(table);
        let Some((key, before)) = entry.items.remove_entry(key) else { return self.revision };
        self.revision += 1;
        let revision = self.revision;
        let after = Stored { revision, json };
        self.record(Change { table, key, revision, before: Some(before), after, deleted: true });
        revision
    }

    fn entry(&mut self, table: &str) -> (Arc<str>, &mut Table) {
        self.open_table(table);
        let name =
            self.tables.get_key_value(table).map_or_else(|| table.into(), |(name, _)| Arc::clone(name));
        (Arc::clone(&name), self.tables.entry(name).or_default())
    }

    fn record(&mut self, change: Change) {
        self.fresh.push(change.clone());
        let (name, kept) = (Arc::clone(&change.table), change.kept());
        let Some(table) = self.tables.get_mut(&name) else { return };
        table.window_bytes += kept;
        self.window_bytes += kept;
        table.window.push_back(change);
        while table.window.len() > self.limits.changes || table.window_bytes > self.limits.bytes {
            let Some(freed) = table.forget_oldest() else { break };
            self.window_bytes = self.window_bytes.saturating_sub(freed);
        }
        // The longest history is shortened first: a resource with little of it keeps it.
        while self.window_bytes > self.limits.all_bytes {
            let largest = self.tables.values_mut().max_by_key(|table| table.window_bytes);
            let Some(freed) = largest.and_then(Table::forget_oldest) else { break };
            self.window_bytes = self.window_bytes.saturating_sub(freed);
        }
    }

    pub fn take_fresh(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.fresh)
    }
}

pub fn key_of(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests;
