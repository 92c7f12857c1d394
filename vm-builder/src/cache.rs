//! The cache of images: content by digest, shared by all processes of a user.
//!
//! ```text
//! layers/sha256/<diff id>           uncompressed tars; <diff id>.size holds their length
//! layers/sha256/<digest>.partial    compressed layers on their way; locked by who fetches them
//! blobs/sha256/<digest>             manifests and configurations
//! references/sha256/<digest>        which manifest a name meant when it was last asked for
//! temporary/                        what is being written, where it needs a name; locked by who writes it
//! ```
//!
//! A file appears under its final name complete and checked, by renaming. A tar is checked by its length when it is
//! used (and by its digest on request); small documents are hashed each time. What is in use stays usable when it
//! is removed, since its users have it open.

mod budget;
mod layer;
mod partial;
mod prune;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use budget::Budget;
pub(crate) use layer::unwrapped;
pub use layer::{CachedLayer, Unpacked};
pub(crate) use partial::Partial;
pub use prune::Usage;

use crate::out;
use crate::reference::{Digest, Reference};
use crate::source::{Error, Platform};

/// Largest manifest or configuration, in bytes.
pub(crate) const DOCUMENT_LIMIT: u64 = 8 << 20;

#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens a cache; makes the directory if it is missing.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let cache = Self { root: root.to_path_buf() };
        for directory in ["layers/sha256", "blobs/sha256", "references/sha256", "temporary"] {
            let path = root.join(directory);
            // It holds layers of private images, which only the user that pulled them may read.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| Error::io("create", &path, error))?;
        }
        remove_leftovers(&root.join("temporary"));
        Ok(cache)
    }

    /// A new directory for work.
    pub(crate) fn work(&self) -> Result<Work, Error> {
        let parent = self.root.join("temporary");
        let make = || -> io::Result<Option<Work>> {
            let directory = tempfile::tempdir_in(&parent)?;
            let lock = File::open(directory.path())?;
            lock.lock()?;
            // What removes leftovers may have been faster.
            let is_ours = partial::is_same(&lock, directory.path());
            Ok(is_ours.then_some(Work { directory, _lock: lock }))
        };
        loop {
            if let Some(work) = make().map_err(|error| Error::io("create", &parent, error))? {
                return Ok(work);
            }
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, kind: &str, digest: Digest) -> PathBuf {
        self.root.join(kind).join("sha256").join(digest.hex())
    }

    /// A manifest or configuration, if it is here and intact.
    pub fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path("blobs", digest);
        match read_limited(&path, DOCUMENT_LIMIT) {
            Ok(bytes) if Digest::from_bytes(&bytes) == digest => {
                touch(&path);
                Ok(Some(bytes))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    /// Keeps a manifest or configuration.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::from_bytes(bytes);
        self.write(bytes, &self.path("blobs", digest))?;
        Ok(digest)
    }

    /// The manifest of a name when it was last requested from the registry, for a platform.
    pub fn recall(&self, reference: &Reference, platform: &Platform) -> Result<Option<Digest>, Error> {
        let path = self.path("references", key(reference, platform));
        match read_limited(&path, DOCUMENT_LIMIT) {
            Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    /// Remembers what a name means.
    pub fn remember(
        &self,
        reference: &Reference,
        platform: &Platform,
        manifest: Digest,
    ) -> Result<(), Error> {
        self.write(format!("{manifest}\n").as_bytes(), &self.path("references", key(reference, platform)))
    }

    fn write(&self, bytes: &[u8], path: &Path) -> Result<(), Error> {
        let mut temporary = self.temporary()?;
        temporary.write(bytes)?;
        temporary.rename(path).map(drop)
    }

    /// A new file that no other process uses.
    pub(crate) fn temporary(&self) -> Result<Temporary, Error> {
        Temporary::new(&self.root.join("temporary"))
    }
}

fn key(reference: &Reference, platform: &Platform) -> Digest {
    Digest::from_bytes(format!("{reference} {}", platform.limit()).as_bytes())
}

/// A file on its way to its final name. Gone unless it arrives there: it has no name until then, or is locked where files without a
/// name cannot be.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) file: File,
    hidden: Option<tempfile::TempPath>,
    directory: PathBuf,
}

impl Temporary {
    pub(crate) fn new(directory: &Path) -> Result<Self, Error> {
        loop {
            let (file, hidden) =
                out::new_file(directory, 0o666).map_err(|error| Error::io("create", directory, error))?;
            // What removes leftovers may have been faster.
            let is_ours = |path: &tempfile::TempPath| file.lock().is_ok() && partial::is_same(&file, path);
            if hidden.as_ref().is_none_or(is_ours) {
                return Ok(Self { file, hidden, directory: directory.to_owned() });
            }
        }
    }

    /// Adds bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| Error::io("write", &self.directory.join("file"), error))
    }

    /// Gives the file its name, once its bytes are on the disk. Returns it.
    pub(crate) fn rename(self, path: &Path) -> Result<File, Error> {
        self.file.sync_data().map_err(|error| Error::io("write", path, error))?;
        out::give_name(&self.file, self.hidden, path).map_err(|error| Error::io("create", path, error))?;
        Ok(self.file)
    }
}

/// A directory for work, removed when it is dropped, or by who opens the cache after its process was killed.
#[derive(Debug)]
pub(crate) struct Work {
    directory: tempfile::TempDir,
    _lock: File,
}

impl Work {
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what processes that were killed left in a directory for temporary files.
pub(crate) fn remove_leftovers(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if prune::is_busy(&path) {
            continue;
        }
        // Another process may do the same. What cannot be removed costs space only.
        let _ = match entry.file_type() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
            _ => std::fs::remove_file(&path),
        };
    }
}

/// Marks a file as used now. That it could not be marked costs nothing but a fetch one day.
fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(std::time::SystemTime::now());
    }
}

pub(crate) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}
