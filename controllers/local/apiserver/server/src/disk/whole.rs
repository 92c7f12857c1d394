//! The state as a whole: a backup of it as one file, its check, and putting a backup in its place.
//!
//! A backup is a line of JSON, the [`Header`], and a body of lines: each file of keys as `{"file":…,"text":…}`, each object as
//! `{"table":…,"key":…,"revision":…}` with its JSON on the line after.

use std::io::{self, BufRead, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use neonvm_apiserver_engine::store::{Store, Stored};
use neonvm_kit::ca::Authority;
use neonvm_kit::private;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::Error;
use super::file::{self, Content, NAME, StateFile};
use super::renewed::{Entry, renew, without_addresses};

/// `kind` of the header of a backup.
const KIND: &str = "neonvm-local-backup";
/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// Name of the file in the directory of a cluster that has the range of its overlay.
pub const OVERLAY: &str = "overlay.json";
/// Longest header, in bytes.
const LONGEST_HEADER: u64 = 4096;
/// Longest line of a body, in bytes: an object of the largest size with room for its encoding.
const LONGEST_LINE: u64 = 64 << 20;
/// Files that belong to the state: without them clients of the cluster and the cluster do not trust each other.
const FILES: [&str; 3] = ["ca.crt", "ca.key", "sa.key"];
/// What a restore adds to the newest revision. Clients may have seen what was written after the backup: none of those revisions may
/// come to mean something else. As `etcdutl snapshot restore --bump-revision` does it.
const BUMP: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub kind: String,
    pub format: u32,
    pub version: String,
    pub cluster: String,
    /// SHA-256 of the path of its directory, hexadecimal; none in backups of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub created: String,
    pub revision: u64,
    pub objects: u64,
    pub bytes: u64,
    /// SHA-256 of the body, hexadecimal.
    pub sha256: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    State(#[from] Error),
    #[error("cannot {verb} {path}")]
    File {
        verb: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// It is no backup, or not whole.
    #[error("the backup cannot be used: {0}")]
    Damaged(String),
    #[error("{0} exists: its objects would be lost; restore with --force to replace them")]
    Exists(String),
}

/// One line in front of a body's item.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    File { file: String, text: String },
    Object { table: String, key: String, revision: u64 },
}

/// The state at one revision. It shares its objects with the store it was taken from.
#[derive(Debug, Default)]
pub struct Snapshot {
    revision: u64,
    objects: Vec<Entry>,
    files: Vec<(String, String)>,
    place: Option<String>,
}

/// What was put in the place of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    #[serde(flatten)]
    pub header: Header,
    /// The cluster is another one than that of the backup: it has its own keys, nodes and addresses.
    pub is_new: bool,
}

impl Snapshot {
    #[must_use]
    pub fn from_store(store: &Store) -> Self {
        let of_table = |table: &Arc<str>| {
            let range = store.range(table, "", None);
            range
                .map(|(key, stored)| (Arc::clone(table), Arc::clone(key), stored.clone()))
                .collect::<Vec<_>>()
        };
        let objects = store.tables().flat_map(of_table).collect();
        Self { revision: store.revision(), objects, ..Self::default() }
    }

    /// The state of a cluster that is stopped.
    ///
    /// # Errors
    /// If it is damaged, in use, or not there.
    pub fn of_stopped(directory: &Path) -> Result<Self, BackupError> {
        let path = directory.join(NAME);
        std::fs::metadata(&path).map_err(file_error("read", &path))?;
        let (file, store) = StateFile::open(&path)?;
        drop(file);
        Self::from_store(&store).with_files(directory)
    }

    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// With the cluster's directory and the keys in it.
    ///
    /// # Errors
    /// If one cannot be read. A missing one is made by the next start.
    pub fn with_files(mut self, directory: &Path) -> Result<Self, BackupError> {
        self.place = Some(place(directory));
        for name in FILES {
            let path = directory.join(name);
            match std::fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                text => self.files.push((name.to_owned(), text.map_err(file_error("read", &path))?)),
            }
        }
        Ok(self)
    }

    /// Writes a backup.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, cluster: &str, mut to: impl Write) -> io::Result<Header> {
        let mut hashed = Hashed { context: Context::new(&SHA256), bytes: 0 };
        self.body(&mut hashed)?;
        let header = Header {
            kind: KIND.into(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            cluster: cluster.to_owned(),
            place: self.place.clone(),
            created: jiff::Timestamp::now().to_string(),
            revision: self.revision,
            objects: self.objects.len() as u64,
            bytes: hashed.bytes,
            sha256: hex(hashed.context),
        };
        line(&mut to, &header)?;
        self.body(&mut to)?;
        to.flush()?;
        Ok(header)
    }

    fn body(&self, to: &mut impl Write) -> io::Result<()> {
        for (file, text) in &self.files {
            line(to, &Line::File { file: file.clone(), text: text.clone() })?;
        }
        for (table, key, stored) in &self.objects {
            let (table, key) = (table.to_string(), key.to_string());
            line(to, &Line::Object { table, key, revision: stored.revision })?;
            to.write_all(&stored.json)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Reads a backup and verifies it.
    ///
    /// # Errors
    /// If it is no backup, of a newer format, or not what was written.
    pub fn read(mut from: impl BufRead) -> Result<(Header, Self), BackupError> {
        let damaged = |what: &str| BackupError::Damaged(what.to_owned());
        let first = next_line(&mut from, LONGEST_HEADER)?.unwrap_or_default();
        let header: Header =
            serde_json::from_slice(&first).map_err(|_| damaged("it does not begin as a backup does"))?;
        if header.kind != KIND || header.format > FORMAT {
            return Err(damaged(&format!(
                "it is of kind {:?}, format {}; this version reads {KIND:?} up to format {FORMAT}",
                header.kind, header.format
            )));
        }
        let mut context = Context::new(&SHA256);
        let (mut bytes, mut snapshot) = (0, Self { revision: header.revision, ..Self::default() });
        let mut next = |context: &mut Context| -> Result<Option<Vec<u8>>, BackupError> {
            let line = next_line(&mut from, LONGEST_LINE)?;
            if let Some(line) = &line {
                context.update(line);
                context.update(b"\n");
                bytes += line.len() as u64 + 1;
            }
            Ok(line)
        };
        while let Some(text) = next(&mut context)? {
            match serde_json::from_slice(&text) {
                Ok(Line::File { file, text }) if FILES.contains(&file.as_str()) => {
                    snapshot.files.push((file, text));
                }
                Ok(Line::Object { table, key, revision }) => {
                    let json = next(&mut context)?.ok_or_else(|| damaged("it ends within an object"))?;
                    snapshot.objects.push((
                        table.into(),
                        key.into(),
                        Stored { revision, json: Bytes::from(json) },
                    ));
                }
                _ => return Err(damaged("it has a line that is neither a key nor an object")),
            }
        }
        let is_whole = bytes == header.bytes && snapshot.objects.len() as u64 == header.objects;
        if !is_whole || hex(context) != header.sha256 {
            return Err(damaged(&format!(
                "{} objects in {bytes} bytes are not the {} in {} bytes that were written, or not the same",
                snapshot.objects.len(),
                header.objects,
                header.bytes
            )));
        }
        Ok((header, snapshot))
    }
}

/// A directory as a backup names it.
fn place(directory: &Path) -> String {
    let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
    let mut context = Context::new(&SHA256);
    context.update(path.as_os_str().as_bytes());
    hex(context)
}

impl Snapshot {
    /// Whether a cluster in this directory is another one than that of the backup: the source may run beside it.
    fn is_new_in(&self, header: &Header, directory: &Path) -> bool {
        match &header.place {
            Some(source) => *source != place(directory),
            // Its keys show where the source is.
            None => !self.files.iter().any(|(name, text)| {
                std::fs::read_to_string(directory.join(name)).is_ok_and(|own| own == *text)
            }),
        }
    }
}

/// Puts a backup in the place of the state of a stopped cluster. Objects keep their resource versions, unless the restored cluster
/// cannot have them as they were; what is written next gets one that no client has, and watches start again. In another directory than
/// that of its source the cluster is a new one, with its own keys.
///
/// # Errors
/// If the backup is not whole, the cluster runs, or there is a state and `force` is not set. The state stays as it is then.
pub fn restore(directory: &Path, from: impl BufRead, force: bool) -> Result<Restored, BackupError> {
    let path = directory.join(NAME);
    if path.exists() {
        if !force {
            return Err(BackupError::Exists(path.display().to_string()));
        }
        if let Err(error @ Error::InUse { .. }) = StateFile::open(&path) {
            return Err(error.into());
        }
    }
    let (header, snapshot) = Snapshot::read(from)?;
    private::directory(directory).map_err(file_error("make", directory))?;
    let is_new = snapshot.is_new_in(&header, directory);
    let newest = header.revision.saturating_add(BUMP);
    let (mut objects, mut newest) = renew(snapshot.objects, newest, is_new);
    if !directory.join(OVERLAY).exists() {
        // Which range it will have is not known.
        (objects, newest) = without_addresses(objects, newest);
    }
    for (name, text) in &snapshot.files {
        let path = directory.join(name);
        let done = if is_new { remove(&path) } else { private::replace(&path, text.as_bytes()) };
        done.map_err(file_error("write", &path))?;
    }
    make(&path, objects, newest)?;
    if is_new {
        make_keys(directory)?;
    }
    Ok(Restored { header, is_new })
}

fn make(path: &Path, objects: Vec<Entry>, newest: u64) -> Result<(), Error> {
    let objects =
        objects.into_iter().map(|(table, key, stored)| (table.to_string(), key.to_string(), stored));
    file::make(path, &Content { objects: objects.collect(), revision: newest, ..Content::default() })
}

/// Releases all addresses on the overlay in the state of a stopped cluster: its overlay has another range now. VMs start as after a
/// restore, because their pods were made with addresses.
///
/// # Errors
/// If the state cannot be read or written, or is in use.
pub fn release_addresses(directory: &Path) -> Result<(), BackupError> {
    let path = directory.join(NAME);
    if !path.exists() {
        return Ok(());
    }
    let snapshot = Snapshot::of_stopped(directory)?;
    let (objects, newest) = renew(snapshot.objects, snapshot.revision, false);
    let (objects, newest) = without_addresses(objects, newest);
    Ok(make(&path, objects, newest)?)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Keys that no other cluster has.
fn make_keys(directory: &Path) -> Result<(), BackupError> {
    let failed = |error: &dyn std::error::Error| {
        file_error("make keys in", directory)(io::Error::other(with_causes(error)))
    };
    Authority::open(directory).map_err(|error| failed(&error))?;
    crate::token::Tokens::open(directory).map_err(|error| failed(&error))?;
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Newest revision; 0 if it cannot be read.
    pub revision: u64,
    /// Objects; 0 if they cannot be read.
    pub objects: u64,
    /// What is wrong, one sentence each; nothing if all is well.
    pub problems: Vec<String>,
}

/// Checks the state of a stopped cluster: every record, and that the keys can be used.
#[must_use]
pub fn check(directory: &Path) -> Checked {
    let path = directory.join(NAME);
    let mut checked = Checked::default();
    match std::fs::metadata(&path)
        .map_err(file_error("read", &path))
        .and_then(|_| Ok(StateFile::open(&path)?))
    {
        Ok((_, store)) => {
            checked.objects = Snapshot::from_store(&store).objects.len() as u64;
            checked.revision = store.revision();
        }
        Err(error) => checked.problems.push(with_causes(&error)),
    }
    checked.problems.extend(keys(directory));
    checked
}

pub(crate) fn keys(directory: &Path) -> Vec<String> {
    let missing = FILES.iter().filter(|name| !directory.join(name).exists());
    let mut problems: Vec<String> =
        missing.map(|name| format!("{} is missing", directory.join(name).display())).collect();
    if problems.is_empty() {
        problems.extend(Authority::open(directory).err().map(|error| with_causes(&error)));
        problems.extend(crate::token::Tokens::open(directory).err().map(|error| with_causes(&error)));
    }
    problems
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn file_error(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> BackupError {
    let path = path.display().to_string();
    move |source| BackupError::File { verb, path: path.clone(), source }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    to.write_all(&text)
}

/// The next line without its end; none at the end of the file.
fn next_line(from: &mut impl BufRead, longest: u64) -> Result<Option<Vec<u8>>, BackupError> {
    let mut text = Vec::new();
    let failed = |error: io::Error| BackupError::Damaged(error.to_string());
    if from.take(longest).read_until(b'\n', &mut text).map_err(failed)? == 0 {
        return Ok(None);
    }
    match text.pop() {
        Some(b'\n') => Ok(Some(text)),
        _ => Err(BackupError::Damaged("it ends within a line, or has one that is too long".to_owned())),
    }
}

struct Hashed {
    context: Context,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(context: Context) -> String {
    use std::fmt::Write as _;
    context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
