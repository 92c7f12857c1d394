//! State on disk, in one redb file. Writes are grouped: one commit, one flush, for all that came in meanwhile.
//!
//! `file` opens and writes it, `room` keeps room back for a full disk, `whole` takes the state as a whole: backup, check, restore.

mod file;
mod renewed;
mod room;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use neonvm_apiserver_engine::store::{Change, Store};
use neonvm_kit::reserve::{PIECE, is_full};
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::watch;

pub use file::NAME;
use file::StateFile;
pub use room::Full;
use room::Room;
pub use whole::{
    BackupError, Checked, Header, OVERLAY, Restored, Snapshot, check, release_addresses, restore,
};
pub(crate) use whole::{keys, with_causes};

/// Time between two looks whether a full disk has room again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use the state file {path}: {source}")]
    Database {
        path: String,
        #[source]
        source: Box<redb::Error>,
    },
    /// A record is not what it should be.
    #[error("the state file {path} is damaged: {what}; {remedy}")]
    Damaged { path: String, what: String, remedy: String },
    /// There is no state where there has been one.
    #[error(
        "the state file {path} {what}, although its cluster has keys, so that all objects would be lost; {remedy}"
    )]
    Lost { path: String, what: &'static str, remedy: String },
    #[error("the state file {path} is in use: stop its cluster first")]
    InUse { path: String },
}

impl Error {
    fn damaged(path: &Path, what: String) -> Self {
        Self::Damaged { path: path.display().to_string(), what, remedy: remedy(path) }
    }

    fn lost(path: &Path, what: &'static str) -> Self {
        Self::Lost { path: path.display().to_string(), what, remedy: remedy(path) }
    }

    /// Whether it only lacks room.
    fn is_full(&self) -> bool {
        matches!(self, Self::Database { source, .. } if lacks_room(source))
    }
}

/// The ways out of a lost state. The directory of a cluster has its name.
fn remedy(path: &Path) -> String {
    let name = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    format!(
        "put a backup back with `neonctl local restore --name {name} --force FILE`, or forget the cluster with `neonctl local down --name {name} --delete`"
    )
}

fn lacks_room(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(error) if is_full(error))
}

/// Nothing is written any more: why. What was not durable before never becomes durable.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the state file cannot be written: {0}")]
pub struct Failed(Arc<str>);

impl Failed {
    pub(crate) fn panicked() -> Self {
        Self("its writer panicked".into())
    }
}

#[derive(Clone, Debug)]
struct Progress {
    durable: u64,
    /// Set once, after which `durable` stays as it is.
    failed: Option<Failed>,
}

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

#[derive(Debug)]
pub struct Disk {
    queue: Arc<Queue>,
    progress: watch::Sender<Progress>,
    tables: Tables,
    broken: Arc<AtomicBool>,
    file: Arc<RwLock<StateFile>>,
    room: Arc<Room>,
    thread: Mutex<Option<JoinHandle<Result<(), Failed>>>>,
}

impl Disk {
    /// Opens the file, reads and verifies everything, and starts the writer.
    ///
    /// # Errors
    /// If the file cannot be opened or is damaged.
    pub fn open(path: &Path) -> Result<(Self, Store), Error> {
        let room = Arc::new(Room::from_directory(path.parent().unwrap_or(path)));
        let (file, store) = loop {
            match StateFile::open(path) {
                Err(error) if error.is_full() && room.reserve.give(PIECE) => {}
                opened => break opened?,
            }
        };
        room.prepare();
        let (progress, _) = watch::channel(Progress { durable: store.revision(), failed: None });
        let queue = Arc::new(Queue { waiting: Mutex::default(), woken: Condvar::new() });
        let (tables, broken) = (Tables::default(), Arc::<AtomicBool>::default());
        let file = Arc::new(RwLock::new(file));
        let writer = Writer {
            file: Arc::clone(&file),
            queue: Arc::clone(&queue),
            progress: progress.clone(),
            tables: Arc::clone(&tables),
            broken: Arc::clone(&broken),
            room: Arc::clone(&room),
        };
        let thread = std::thread::Builder::new().name("disk".into()).spawn(move || writer.run());
        let thread = thread.map_err(|source| Error::Database {
            path: path.display().to_string(),
            source: Box::new(redb::Error::Io(source)),
        })?;
        Ok((Self { queue, progress, tables, broken, file, room, thread: Mutex::new(Some(thread)) }, store))
    }

    /// Reads every record on disk, as of the last commit; returns their number and revision. Writes continue
    /// meanwhile.
    ///
    /// # Errors
    /// What is damaged.
    pub fn verify(&self) -> Result<(u64, u64), Error> {
        let snapshot = self.file.read().snapshot()?;
        snapshot.verify()
    }

    /// Whether the disk is full, so that only what frees room is to be written.
    pub fn full(&self) -> Option<Full> {
        self.room.full()
    }

    /// A fault switch: the disk has no room from now on, or has it again.
    pub fn fill(&self, is_full: bool) {
        self.room.pretend(is_full);
        self.queue.woken.notify_one();
    }

    /// Hands changes over, in order; returns at once. After a failure they are dropped.
    pub fn push(&self, changes: Vec<Change>) {
        if changes.is_empty() || self.check().is_err() {
            return;
        }
        self.queue.waiting.lock().changes.extend(changes);
        self.queue.woken.notify_one();
    }

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

    /// Waits until the disk has failed or was closed, and returns the reason.
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
        let ended = match self.thread.lock().take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Failed::panicked()),
            None => Ok(()),
        };
        self.file.write().close();
        ended
    }
}

struct Writer {
    file: Arc<RwLock<StateFile>>,
    queue: Arc<Queue>,
    progress: watch::Sender<Progress>,
    tables: Tables,
    broken: Arc<AtomicBool>,
    room: Arc<Room>,
}

/// However the writer ends, also in a panic of the database: waiting requests end with it.
impl Drop for Writer {
    fn drop(&mut self) {
        self.end("it was closed");
    }
}

impl Writer {
    /// Nothing is written any more; the first reason stays.
    fn end(&self, why: &str) {
        // Under the lock, so that no request begins to follow a table in between.
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
            self.room.look();
            let Some(last) = changes.last() else {
                if closed {
                    return Ok(());
                }
                continue;
            };
            let revision = last.revision;
            if let Err(error) = self.write(&changes) {
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

    /// What is queued, as soon as there is something. Nothing while the disk is full, from time to time.
    fn take(&self) -> (Vec<Change>, bool) {
        let mut waiting = self.queue.waiting.lock();
        while waiting.changes.is_empty() && !waiting.closed {
            if self.room.full().is_some() {
                self.queue.woken.wait_for(&mut waiting, LOOK_AGAIN);
                break;
            }
            self.queue.woken.wait(&mut waiting);
        }
        (std::mem::take(&mut waiting.changes), waiting.closed)
    }

    /// Writes changes; on a full disk with the space that the reserve releases.
    fn write(&self, changes: &[Change]) -> Result<(), redb::Error> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(redb::Error::Io(std::io::Error::other("failed by a fault switch")));
        }
        let needed: usize = changes.iter().map(|change| change.key.len() + change.after.json.len()).sum();
        let mut file = self.file.write();
        let mut written = self.room.pretended().and_then(|()| file.commit(changes));
        while let Err(error) = &written
            && lacks_room(error)
            && self.room.lend(needed as u64)
        {
            // The database refuses everything after a failed write.
            written = file.reopen().and_then(|()| file.commit(changes));
        }
        written
    }
}

#[cfg(test)]
mod tests;
