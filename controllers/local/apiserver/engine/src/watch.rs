//! Watches: a cursor into the window of changes. Nothing is queued per watcher: one that never reads costs only its
//! cursor, and gets `Expired` when its position has left the window.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fields;
use crate::form::{Form, INITIAL_END, metadata_only};
use crate::kinds::Kind;
use crate::media::{Accepted, Shape};
use crate::object;
use crate::options::ListOptions;
use crate::query_list::{Selection, prefix};
use crate::render;
use crate::status::ApiError;
use crate::store::{Change, Store, Stored, Unavailable, key_of};

/// Most changes or objects read in one go.
const BATCH: usize = 256;
/// A batch ends with the event that makes it this long, in bytes: a reader that stalls holds no more than that and one
/// event in memory.
const BATCH_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Watch {
    kind: Arc<Kind>,
    accepted: Accepted,
    include: String,
    prefix: String,
    /// `namespace/name`, if only one object is watched.
    only: Option<String>,
    options: ListOptions,
    selection: Selection,
    cursor: u64,
    /// How far the state before the first change has been sent.
    initial: Initial,
    /// Whether a bookmark closes the initial state.
    mark_initial: bool,
    /// Whether the column definitions of a table have been sent.
    columns_sent: bool,
}

/// The state at the beginning of a watch, sent in pages of one revision.
#[derive(Debug)]
enum Initial {
    /// Nothing sent yet; the first page chooses the revision.
    Wanted,
    /// Everything up to this key has been sent.
    After(Arc<str>),
    /// All sent, or none wanted.
    Sent,
}

#[derive(Debug, Default)]
pub struct Batch {
    pub lines: Bytes,
    pub ended: bool,
    pub more: bool,
}

impl Watch {
    /// Opens a watch.
    ///
    /// # Errors
    /// 400 for unsupported fields, 500 for a version that is no number – as the real server answers.
    pub(crate) fn open(
        store: &Store,
        kind: &Arc<Kind>,
        accepted: Accepted,
        include: &str,
        place: (&str, &str),
        options: ListOptions,
    ) -> Result<Self, ApiError> {
        fields::check(kind, &options.fields)?;
        let (namespace, name) = place;
        let from = match options.revision.as_str() {
            "" | "0" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
                ApiError::plain(500, "", format!("resourceVersion: Invalid value: {text:?}: {why}"))
            })?),
        };
        let initial = options.initial.unwrap_or(from.is_none());
        // With initial events a version is only the minimum age of the state; ours is always the newest.
        let cursor = if initial { store.revision() } else { from.unwrap_or_else(|| store.revision()) };
        let name = if name.is_empty() { options.fields.fixed("metadata.name").unwrap_or("") } else { name };
        let only = (!name.is_empty() && (!namespace.is_empty() || !kind.namespaced))
            .then(|| key_of(namespace, name));
        Ok(Self {
            prefix: prefix(kind, namespace),
            kind: Arc::clone(kind),
            accepted,
            include: include.to_owned(),
            only,
            mark_initial: options.initial == Some(true) && options.bookmarks,
            selection: Selection::new(&options),
            options,
            cursor,
            initial: if initial { Initial::Wanted } else { Initial::Sent },
            columns_sent: false,
        })
    }

    pub fn table(&self) -> &Arc<str> {
        &self.kind.table
    }

    pub fn timeout(&self) -> Option<u64> {
        self.options.timeout
    }

    pub fn bookmarks(&self) -> bool {
        self.options.bookmarks
    }

    pub fn next(&mut self, store: &Store, upto: u64, now: Timestamp) -> Batch {
        let mut text = BytesMut::new();
        if !matches!(self.initial, Initial::Sent) {
            match self.put_initial(store, now, &mut text) {
                Ok(()) if matches!(self.initial, Initial::Sent) => {}
                Ok(()) => return Batch { lines: text.freeze(), ended: false, more: true },
                Err(gone) => return self.expired(text, gone),
            }
        }
        let changes = match store.changes(&self.kind.table, self.cursor, upto, BATCH) {
            Ok(changes) => changes,
            Err(gone) => return self.expired(text, gone),
        };
        let full = changes.len() == BATCH;
        for change in &changes {
            if text.len() >= BATCH_BYTES {
                return Batch { lines: text.freeze(), ended: false, more: true };
            }
            if let Some(line) = self.line(change, now) {
                text.extend_from_slice(&line);
            }
            self.cursor = change.revision;
        }
        if !full {
            self.cursor = self.cursor.max(upto);
        }
        Batch { lines: text.freeze(), ended: false, more: full }
    }

    fn expired(&self, mut text: BytesMut, gone: Unavailable) -> Batch {
        let Unavailable::Expired(oldest) = gone;
        let message = format!("too old resource version: {} ({oldest})", self.cursor);
        let error = ApiError::plain(410, "Expired", message);
        text.extend_from_slice(&error_event(&error));
        Batch { lines: text.freeze(), ended: true, more: false }
    }

    /// A bookmark at the cursor.
    pub fn bookmark(&mut self) -> Bytes {
        self.bookmark_with(&json!({ "resourceVersion": self.cursor.to_string() }))
    }

    /// A bookmark is an object without content, in the form that the watch has.
    fn bookmark_with(&mut self, metadata: &Value) -> Bytes {
        let object = self.kind.empty(metadata);
        let body = match self.accepted.shape {
            Shape::Whole => object,
            Shape::Metadata | Shape::MetadataList => metadata_only(&object, "v1"),
            Shape::Table(version) => self.table_of(version, &object, Timestamp::UNIX_EPOCH),
        };
        render::event_line("BOOKMARK", &render::to_bytes(&body))
    }

    /// The table of one event: only the first of a stream carries the column definitions.
    fn table_of(&mut self, version: &str, object: &Value, now: Timestamp) -> Value {
        let form = Form { kind: &self.kind, accepted: self.accepted, include: &self.include, now };
        let meta = json!({ "resourceVersion": object::resource_version(object) });
        let mut table = crate::table::table(&form, version, &meta, &[object]);
        if std::mem::replace(&mut self.columns_sent, true) {
            object::set(&mut table, "columnDefinitions", Value::Null);
        }
        table
    }

    /// Puts the next page of the state at the beginning.
    fn put_initial(&mut self, store: &Store, now: Timestamp, text: &mut BytesMut) -> Result<(), Unavailable> {
        let after = match std::mem::replace(&mut self.initial, Initial::Sent) {
            Initial::After(key) => Some(key),
            Initial::Wanted | Initial::Sent => {
                // Chosen now and not when the watch was opened: all pages and the changes after them fit together.
                self.cursor = store.revision();
                None
            }
        };
        let table = Arc::clone(&self.kind.table);
        let found = match &self.only {
            Some(key) => store
                .read(&table, key)
                .map(|stored| (Arc::from(key.as_str()), stored.clone()))
                .into_iter()
                .collect(),
            None => store.page_at(&table, &self.prefix, after.as_deref(), self.cursor, BATCH)?,
        };
        let full = found.len() == BATCH;
        let last = found.last().map(|(key, _)| Arc::clone(key));
        for (key, stored) in found {
            if self.selection.includes(&self.kind, &stored) {
                text.extend_from_slice(&self.event("ADDED", &stored, now));
            }
            if text.len() >= BATCH_BYTES && self.only.is_none() {
                self.initial = Initial::After(key);
                return Ok(());
            }
        }
        if let Some(last) = last.filter(|_| full) {
            self.initial = Initial::After(last);
            return Ok(());
        }
        if self.mark_initial {
            text.extend_from_slice(&self.bookmark_with(&json!({
                "resourceVersion": self.cursor.to_string(), "annotations": { INITIAL_END: "true" } })));
        }
        Ok(())
    }

    fn event(&mut self, event_type: &str, stored: &Stored, now: Timestamp) -> Bytes {
        if let Shape::Table(version) = self.accepted.shape {
            let value = render::value_in(&self.kind, stored);
            let table = self.table_of(version, &value, now);
            return render::event_line(event_type, &render::to_bytes(&table));
        }
        let form = Form { kind: &self.kind, accepted: self.accepted, include: &self.include, now };
        render::event(&form, event_type, stored)
    }

    fn line(&mut self, change: &Change, now: Timestamp) -> Option<Bytes> {
        let inside = match &self.only {
            Some(key) => &*change.key == key.as_str(),
            None => change.key.starts_with(&self.prefix),
        };
        if !inside {
            return None;
        }
        let was = change.before.as_ref().is_some_and(|stored| self.selection.includes(&self.kind, stored));
        let is = !change.deleted && self.selection.includes(&self.kind, &change.after);
        match (was, is) {
            (false, true) => Some(self.event("ADDED", &change.after, now)),
            (true, true) => Some(self.event("MODIFIED", &change.after, now)),
            (true, false) if change.deleted => Some(self.event("DELETED", &change.after, now)),
            (true, false) => {
                // It left the selection: the client sees the last state that was selected, at the new version.
                let before = change.before.as_ref()?;
                let mut value = render::parse(&before.json);
                object::set_meta(&mut value, "resourceVersion", json!(change.revision.to_string()));
                let left = Stored { revision: change.revision, json: render::to_bytes(&value) };
                Some(self.event("DELETED", &left, now))
            }
            (false, false) => None,
        }
    }
}

pub fn error_event(error: &ApiError) -> Bytes {
    render::event_line("ERROR", error.to_status().to_string().as_bytes())
}

#[cfg(test)]
mod tests;
