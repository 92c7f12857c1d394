//! The state file: opening, verifying and writing it. No threads, no queue.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

use bytes::Bytes;
use neonvm_apiserver_engine::store::{Change, Store, Stored};
use neonvm_kit::private;
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    WriteTransaction,
};

use super::Error;

/// `group/plural` NUL `namespace/name` → a record, see [`record::encode`].
const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
/// `group/plural` → revision of its last change.
const LAST: TableDefinition<'_, &str, u64> = TableDefinition::new("last-change");
/// `revision` → the newest revision.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Page cache of the database. Objects live in our own memory; the database is read at start only.
const CACHE: usize = 16 << 20;

/// Name of the state file in the directory of a cluster.
pub const NAME: &str = "state.redb";
/// Files that show that a cluster has had a state.
const KEYS: [&str; 2] = ["ca.key", "sa.key"];

/// A new store starts here: revision 1 is then one that has been compacted, as on any server that has run for a while.
const FIRST_REVISION: u64 = 100;

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) objects: Vec<(String, String, Stored)>,
    pub(super) last: BTreeMap<String, u64>,
    pub(super) revision: u64,
}

impl Content {
    fn store(self) -> Store {
        let mut store = Store::new(self.revision);
        for (table, key, stored) in self.objects {
            store.restore(&table, &key, stored);
        }
        for (table, revision) in self.last {
            store.restore_floor(&table, revision);
        }
        store
    }
}

#[derive(Debug)]
pub(super) struct StateFile {
    /// None only between two openings.
    database: Option<Database>,
    path: PathBuf,
}

impl StateFile {
    /// Opens a state file and reads all of it, or makes one in a directory that has had none.
    pub(super) fn open(path: &Path) -> Result<(Self, Store), Error> {
        let io = |source| Error::Database {
            path: path.display().to_string(),
            source: Box::new(redb::Error::Io(source)),
        };
        let length = match std::fs::symlink_metadata(path) {
            Ok(metadata) => Some(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io(error)),
        };
        if length.is_none_or(|length| length == 0) {
            let directory = path.parent().unwrap_or(path);
            if KEYS.iter().any(|key| directory.join(key).exists()) {
                let what = if length.is_none() { "is missing" } else { "is empty" };
                return Err(Error::lost(path, what));
            }
            make(path, &Content { revision: FIRST_REVISION, ..Content::default() })?;
        }
        let (database, content) = within(path, || {
            let mut database = open(path)?;
            // Every page against its checksum, also those of what is free. What it repairs of these is not our data.
            if !database.check_integrity().map_err(|error| of_library(path, error.into()))? {
                tracing::warn!(path = %path.display(), "the state file's list of free pages was repaired");
            }
            let transaction = database.begin_read().map_err(|error| of_library(path, error.into()))?;
            let content = read(&transaction, path)?;
            drop(transaction);
            Ok((database, content))
        })?;
        Ok((Self { database: Some(database), path: path.to_path_buf() }, content.store()))
    }

    /// Opens the file again after a failed write, without reading it: the database has refused everything since.
    pub(super) fn reopen(&mut self) -> Result<(), redb::Error> {
        self.database = None;
        let path = self.path.clone();
        let opened = contained(move || {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE);
            builder.open(&path)
        });
        self.database = Some(opened.map_err(redb::Error::Corrupted)??);
        Ok(())
    }

    /// Writes changes, all of them or none.
    pub(super) fn commit(&mut self, changes: &[Change]) -> Result<(), redb::Error> {
        let database = self.database.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut touched: BTreeMap<&str, u64> = BTreeMap::new();
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut value = Vec::new();
            for change in changes {
                let key = key_of(&change.table, &change.key);
                if change.deleted {
                    objects.remove(key.as_slice())?;
                } else {
                    encode(change.revision, &change.after.json, &mut value);
                    objects.insert(key.as_slice(), value.as_slice())?;
                }
                touched.insert(&change.table, change.revision);
            }
        }
        put_last(&transaction, &touched)?;
        if let Some(last) = changes.last() {
            put_revision(&transaction, last.revision)?;
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn close(&mut self) {
        self.database = None;
    }

    /// The state as of the last commit, to be verified while writes continue.
    pub(super) fn snapshot(&self) -> Result<OnDisk, Error> {
        let path = self.path.clone();
        let begin = || {
            self.database.as_ref().ok_or(redb::Error::DatabaseClosed)?.begin_read().map_err(redb::Error::from)
        };
        let transaction = begin().map_err(|error| of_library(&path, error))?;
        Ok(OnDisk { transaction, path })
    }
}

/// A state on disk that stays as it is.
pub(super) struct OnDisk {
    transaction: ReadTransaction,
    path: PathBuf,
}

impl OnDisk {
    /// Verifies every record; returns their number and the newest revision.
    pub(super) fn verify(&self) -> Result<(u64, u64), Error> {
        let content = within(&self.path, || read(&self.transaction, &self.path))?;
        Ok((content.objects.len() as u64, content.revision))
    }
}

/// Makes a state file with this content. It has its name when it is whole, in place of what had the name.
pub(super) fn make(path: &Path, content: &Content) -> Result<(), Error> {
    let mut next = path.as_os_str().to_owned();
    next.push(".new");
    let next = PathBuf::from(next);
    let fill = || -> Result<(), redb::Error> {
        let database = Database::builder().set_cache_size(CACHE).create_file(private::create(&next)?)?;
        write_all(&database, content)?;
        drop(database);
        std::fs::rename(&next, path)?;
        // So that the name survives a loss of power.
        Ok(File::open(path.parent().unwrap_or(path))?.sync_all()?)
    };
    fill().map_err(|error| {
        drop(std::fs::remove_file(&next));
        of_library(path, error)
    })
}

fn write_all(database: &Database, content: &Content) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut value = Vec::new();
        for (table, key, stored) in &content.objects {
            let key = key_of(table, key);
            encode(stored.revision, &stored.json, &mut value);
            objects.insert(key.as_slice(), value.as_slice())?;
        }
    }
    let last: BTreeMap<&str, u64> = content.last.iter().map(|(table, at)| (table.as_str(), *at)).collect();
    put_last(&transaction, &last)?;
    put_revision(&transaction, content.revision)?;
    Ok(transaction.commit()?)
}

fn put_last(transaction: &WriteTransaction, touched: &BTreeMap<&str, u64>) -> Result<(), redb::Error> {
    let mut last = transaction.open_table(LAST)?;
    for (table, revision) in touched {
        last.insert(*table, *revision)?;
    }
    Ok(())
}

fn put_revision(transaction: &WriteTransaction, revision: u64) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert("revision", revision)?;
    Ok(())
}

fn open(path: &Path) -> Result<Database, Error> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder.open(path).map_err(|error| of_library(path, error.into()))
}

/// Work on the file in which a panic means that it is damaged.
fn within<T: Send>(path: &Path, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    contained(work)
        .unwrap_or_else(|why| Err(Error::damaged(path, format!("the database cannot be read ({why})"))))
}

/// What an error of the library means: damage, or something else.
fn of_library(path: &Path, error: redb::Error) -> Error {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    match &error {
        redb::Error::DatabaseAlreadyOpen => Error::InUse { path: path.display().to_string() },
        redb::Error::Corrupted(why) => Error::damaged(path, format!("the database is broken ({why})")),
        redb::Error::Io(why) if matches!(why.kind(), InvalidData | UnexpectedEof) => {
            Error::damaged(path, format!("the database is broken ({why})"))
        }
        redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted => Error::damaged(path, format!("the database is broken ({error})")),
        _ => Error::Database { path: path.display().to_string(), source: Box::new(error) },
    }
}

fn read(transaction: &ReadTransaction, path: &Path) -> Result<Content, Error> {
    let failed = |error: redb::Error| of_library(path, error);
    let revision = revision(transaction).map_err(failed)?;
    let mut content = Content { revision, ..Content::default() };
    let objects = transaction.open_table(OBJECTS).map_err(|error| failed(error.into()))?;
    for entry in objects.iter().map_err(|error| failed(error.into()))? {
        let (key, value) = entry.map_err(|error| failed(error.into()))?;
        let found = decode(value.value());
        let name = str::from_utf8(key.value()).ok().and_then(|key| key.split_once('\0'));
        let (Some((revision, json)), Some((table, name))) = (found, name) else {
            let shown = String::from_utf8_lossy(key.value()).replace('\0', " ").escape_debug().to_string();
            return Err(Error::damaged(path, format!("the record {shown:?} is not what was written")));
        };
        let stored = Stored { revision, json: Bytes::copy_from_slice(json) };
        content.objects.push((table.to_owned(), name.to_owned(), stored));
    }
    let last = transaction.open_table(LAST).map_err(|error| failed(error.into()))?;
    for entry in last.iter().map_err(|error| failed(error.into()))? {
        let (table, revision) = entry.map_err(|error| failed(error.into()))?;
        content.last.insert(table.value().to_owned(), revision.value());
    }
    Ok(content)
}

fn revision(transaction: &ReadTransaction) -> Result<u64, redb::Error> {
    Ok(transaction.open_table(META)?.get("revision")?.map_or(FIRST_REVISION, |value| value.value()))
}

fn key_of(table: &str, key: &str) -> Vec<u8> {
    [table.as_bytes(), b"\0", key.as_bytes()].concat()
}

/// Bytes in front of the revision. Older versions kept a checksum there.
const UNUSED: usize = 16;
/// Bytes of a record in front of its JSON.
const HEAD: usize = UNUSED + 8;

/// A record: unused bytes, revision (big endian), JSON.
pub(super) fn encode(revision: u64, json: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&[0; UNUSED]);
    into.extend_from_slice(&revision.to_be_bytes());
    into.extend_from_slice(json);
}

pub(super) fn decode(value: &[u8]) -> Option<(u64, &[u8])> {
    let (head, json) = value.split_first_chunk::<HEAD>()?;
    let revision = u64::from_be_bytes(head.get(UNUSED..)?.try_into().ok()?);
    json.starts_with(b"{").then_some((revision, json))
}

/// The thread of such work; its panics are reported by [`contained`] alone.
const THREAD: &str = "state-reader";

/// Runs work on a separate thread. The database checks pages when it repairs them, not when it reads them, and panics on some of what it
/// finds; here a panic is an answer.
///
/// # Errors
/// The text of the panic that ended it, or why there is no thread.
pub(super) fn contained<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    silence();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(THREAD.into()).spawn_scoped(scope, work);
        let joined = thread.map_err(|error| error.to_string())?.join();
        joined.map_err(|panic| text(&*panic).to_owned())
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let line = owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
    line.lines().next().unwrap_or_default()
}

/// Keeps such panics off standard error, where they would look like defects of ours.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(THREAD) {
                tracing::debug!("{info}");
            } else {
                former(info);
            }
        }));
    });
}
