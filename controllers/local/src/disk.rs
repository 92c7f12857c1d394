//! State on disk, in one redb file. Writes are grouped: one commit, one flush, for all that came in meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use neonvm_core_apistore::store::{Change, Store, Stored};
use parking_lot::{Condvar, Mutex};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::watch;

/// `group/plural` NUL `namespace/name` → revision (8 bytes, big endian) and JSON.
const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
/// `group/plural` → revision of its last change.
const LAST: TableDefinition<'_, &str, u64> = TableDefinition::new("last-change");
/// `revision` → the newest revision.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Page cache of the database. Objects live in our own memory; the database is read at start only.
const CACHE: usize = 16 << 20;

/// What can go wrong with the state file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused.
    #[error("cannot use the state file {path}: {source}")]
    Database {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// A record is not what it should be.
    #[error("the state file {path} is damaged: {what}")]
    Damaged {
        /// Which file.
        path: String,
        /// What was found.
        what: String,
    },
}

/// Nothing is written any more: why. What was not durable before never becomes durable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the state file cannot be written: {0}")]
pub struct Failed(Arc<str>);

impl Failed {
    /// The thread that writes ended in a panic.
    pub(crate) fn panicked() -> Self {
        Self("its writer panicked".into())
    }
}

/// How far the disk is.
#[derive(Clone, Debug)]
struct Progress {
    /// The newest revision that is on disk.
    durable: u64,
    /// Set once, after which `durable` stays as it is.
    failed: Option<Failed>,
}

/// The queue between the engine and the disk.
#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Change>,
    closed: bool,
}

/// Durable revisions of the tables that are followed. The senders go when the disk fails.
type Tables = Arc<Mutex<BTreeMap<Arc<str>, watch::Sender<u64>>>>;

/// The disk side of the store.
#[derive(Debug)]
pub struct Disk {
    queue: Arc<Queue>,
    progress: watch::Sender<Progress>,
    tables: Tables,
    broken: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<(), Failed>>>>,
}

impl Disk {
    /// Opens the file, reads everything, and starts the writer.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(path: &Path) -> Result<(Self, Store), Error> {
        let failed = |source: redb::Error| Error::Database {
            path: path.display().to_string(),
            source: Box::new(source),
        };
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE);
        let database = builder.create(path).map_err(|e| failed(e.into()))?;
        let store = read(&database, path)?;
        let (progress, _) = watch::channel(Progress { durable: store.revision(), failed: None });
        let queue = Arc::new(Queue { waiting: Mutex::default(), woken: Condvar::new() });
        let (tables, broken) = (Tables::default(), Arc::<AtomicBool>::default());
        let writer = Writer {
            database,
            queue: Arc::clone(&queue),
            progress: progress.clone(),
            tables: Arc::clone(&tables),
            broken: Arc::clone(&broken),
        };
        let thread = std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || writer.run())
            .map_err(|e| failed(redb::Error::Io(e)))?;
        Ok((Self { queue, progress, tables, broken, thread: Mutex::new(Some(thread)) }, store))
    }

    /// Hands changes over, in order; returns at once. After a failure they are dropped.
    pub fn push(&self, changes: Vec<Change>) {
        if changes.is_empty() || self.check().is_err() {
            return;
        }
        self.queue.waiting.lock().changes.extend(changes);
        self.queue.woken.notify_one();
    }

    /// The newest revision that is on disk.
    pub fn durable(&self) -> u64 {
        self.progress.borrow().durable
    }

    /// Whether the disk still takes writes.
    ///
    /// # Errors
    /// If it has failed, or was closed.
    pub fn check(&self) -> Result<(), Failed> {
        self.progress.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// Waits until a revision is on disk.
    ///
    /// # Errors
    /// If it will never be, because the disk failed or was closed before.
    pub async fn wait(&self, revision: u64) -> Result<(), Failed> {
        let over = |now: &Progress| now.durable >= revision || now.failed.is_some();
        let now = self.settled(over).await;
        match now.failed {
            Some(failed) if now.durable < revision => Err(failed),
            _ => Ok(()),
        }
    }

    /// Waits until the disk has failed or was closed, and says why.
    pub async fn failure(&self) -> Failed {
        let failed = self.settled(|now| now.failed.is_some()).await.failed;
        failed.unwrap_or_else(|| Failed("it is gone".into()))
    }

    async fn settled(&self, over: impl FnMut(&Progress) -> bool) -> Progress {
        let mut progress = self.progress.subscribe();
        // It cannot be closed: `self` holds a sender.
        let found = progress.wait_for(over).await.map(|now| now.clone());
        found.unwrap_or_else(|_| self.progress.borrow().clone())
    }

    /// A fault switch: every write from now on fails.
    pub fn fail(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Follows the durable revisions of one table. The receiver is closed when the disk fails.
    pub fn follow(&self, table: &Arc<str>) -> watch::Receiver<u64> {
        let mut tables = self.tables.lock();
        if self.check().is_err() {
            return watch::channel(self.durable()).1;
        }
        let sender = tables.entry(Arc::clone(table)).or_insert_with(|| watch::channel(self.durable()).0);
        sender.subscribe()
    }

    /// Writes what is queued and stops.
    ///
    /// # Errors
    /// If not everything could be written.
    pub fn close(&self) -> Result<(), Failed> {
        self.queue.waiting.lock().closed = true;
        self.queue.woken.notify_one();
        match self.thread.lock().take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Failed::panicked()),
            None => Ok(()),
        }
    }
}

fn key_of(change: &Change) -> Vec<u8> {
    let mut key = Vec::with_capacity(change.table.len() + change.key.len() + 1);
    key.extend_from_slice(change.table.as_bytes());
    key.push(0);
    key.extend_from_slice(change.key.as_bytes());
    key
}

fn read(database: &Database, path: &Path) -> Result<Store, Error> {
    let failed =
        |source: redb::Error| Error::Database { path: path.display().to_string(), source: Box::new(source) };
    let damaged = |what: String| Error::Damaged { path: path.display().to_string(), what };
    // Tables are made here, so that reading an empty file finds them.
    let made = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(LAST)?;
        transaction.open_table(META)?;
        transaction.commit()?;
        Ok(())
    };
    made().map_err(failed)?;
    let load = || -> Result<Result<Store, Error>, redb::Error> {
        let transaction = database.begin_read()?;
        let meta = transaction.open_table(META)?;
        let revision = meta.get("revision")?.map_or(FIRST_REVISION, |value| value.value());
        let mut store = Store::new(revision);
        let objects = transaction.open_table(OBJECTS)?;
        for entry in objects.iter()? {
            let (key, value) = entry?;
            let key = String::from_utf8_lossy(key.value()).into_owned();
            let Some((table, key)) = key.split_once('\0') else {
                return Ok(Err(damaged(format!("the key {key:?} names no table"))));
            };
            let Some((revision, json)) = value.value().split_first_chunk::<8>() else {
                return Ok(Err(damaged(format!("the value of {table} {key} is too short"))));
            };
            let stored =
                Stored { revision: u64::from_be_bytes(*revision), json: Bytes::copy_from_slice(json) };
            store.restore(table, key, stored);
        }
        for entry in transaction.open_table(LAST)?.iter()? {
            let (table, revision) = entry?;
            store.restore_floor(table.value(), revision.value());
        }
        Ok(Ok(store))
    };
    load().map_err(failed)?
}

/// A new store starts here: revision 1 is then one that has been compacted, as on any server that has run for a while.
const FIRST_REVISION: u64 = 100;

struct Writer {
    database: Database,
    queue: Arc<Queue>,
    progress: watch::Sender<Progress>,
    tables: Tables,
    broken: Arc<AtomicBool>,
}

/// However the writer ends, also in a panic of the database: nobody waits for it any more.
impl Drop for Writer {
    fn drop(&mut self) {
        self.end("it was closed");
    }
}

impl Writer {
    /// Nothing is written any more; the first reason stays.
    fn end(&self, why: &str) {
        // Under the lock, so that nobody begins to follow a table in between.
        let mut tables = self.tables.lock();
        self.progress.send_if_modified(|now| {
            let first = now.failed.is_none();
            now.failed.get_or_insert_with(|| Failed(why.into()));
            first
        });
        tables.clear();
        drop(tables);
        self.queue.waiting.lock().changes.clear();
    }

    fn run(self) -> Result<(), Failed> {
        loop {
            let (changes, closed) = self.take();
            let Some(last) = changes.last() else {
                if closed {
                    return Ok(());
                }
                continue;
            };
            let revision = last.revision;
            if let Err(error) = self.commit(&changes) {
                // Nothing that was not written is ever acknowledged; the owner decides what becomes of the process.
                tracing::error!(%error, "cannot write the state file");
                let why = error.to_string();
                self.end(&why);
                return Err(Failed(why.into()));
            }
            self.progress.send_modify(|now| now.durable = revision);
            let touched: BTreeSet<&Arc<str>> = changes.iter().map(|change| &change.table).collect();
            let mut tables = self.tables.lock();
            tables.retain(|table, sender| {
                if touched.contains(table) {
                    sender.send_replace(revision);
                }
                sender.receiver_count() > 0
            });
        }
    }

    fn take(&self) -> (Vec<Change>, bool) {
        let mut waiting = self.queue.waiting.lock();
        while waiting.changes.is_empty() && !waiting.closed {
            self.queue.woken.wait(&mut waiting);
        }
        (std::mem::take(&mut waiting.changes), waiting.closed)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), redb::Error> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(redb::Error::Io(std::io::Error::other("failed by a fault switch")));
        }
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut last = transaction.open_table(LAST)?;
            let mut meta = transaction.open_table(META)?;
            let mut touched: BTreeMap<&str, u64> = BTreeMap::new();
            let mut value = Vec::new();
            for change in changes {
                let key = key_of(change);
                if change.deleted {
                    objects.remove(key.as_slice())?;
                } else {
                    value.clear();
                    value.extend_from_slice(&change.revision.to_be_bytes());
                    value.extend_from_slice(&change.after.json);
                    objects.insert(key.as_slice(), value.as_slice())?;
                }
                touched.insert(&change.table, change.revision);
                meta.insert("revision", change.revision)?;
            }
            for (table, revision) in touched {
                last.insert(table, revision)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
