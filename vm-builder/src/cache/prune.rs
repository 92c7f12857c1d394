//! How much is in a cache, and removing it.

use std::fs::{DirEntry, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Cache, partial::is_same};
use crate::source::Error;

/// What a cache holds, or what was removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub layers: u64,
    pub files: u64,
    /// Bytes on disk of everything.
    pub bytes: u64,
}

impl Cache {
    /// What it holds.
    pub fn usage(&self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        self.each(|entry, metadata| {
            usage.add(&entry.path(), metadata);
            Ok(())
        })?;
        Ok(usage)
    }

    /// Removes everything, or what was not used for so long. Returns what was removed. Content in use stays usable,
    /// and what is being fetched stays.
    pub fn prune(&self, unused_for: Option<Duration>) -> Result<Usage, Error> {
        let now = SystemTime::now();
        let mut usage = Usage::default();
        self.each(|entry, metadata| {
            let path = entry.path();
            let age = metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
            if unused_for.is_some_and(|limit| age < limit) {
                return Ok(());
            }
            // The length of a tar is removed with the tar; the time of the tar counts.
            if path.extension().is_some_and(|extension| extension == "size")
                && path.with_extension("").exists()
            {
                return Ok(());
            }
            if is_busy(&path) {
                return Ok(());
            }
            match std::fs::remove_file(&path) {
                Ok(()) => usage.add(&path, metadata),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("remove", &path, error)),
            }
            if path.extension().is_none() {
                let _ = std::fs::remove_file(path.with_extension("size"));
            }
            Ok(())
        })?;
        Ok(usage)
    }

    fn each(&self, mut visit: impl FnMut(&DirEntry, &Metadata) -> Result<(), Error>) -> Result<(), Error> {
        for directory in ["layers/sha256", "blobs/sha256", "references/sha256", "temporary"] {
            let path = self.root().join(directory);
            let entries = std::fs::read_dir(&path).map_err(|error| Error::io("read", &path, error))?;
            for entry in entries {
                let entry = entry.map_err(|error| Error::io("read", &path, error))?;
                match entry.metadata() {
                    Ok(metadata) if metadata.is_file() => visit(&entry, &metadata)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Usage {
    fn add(&mut self, path: &Path, metadata: &Metadata) {
        let is_layer = path.extension().is_none() && path.to_string_lossy().contains("/layers/sha256/");
        self.layers += u64::from(is_layer);
        self.files += 1;
        self.bytes += metadata.blocks() * 512;
    }
}

/// Whether a process is writing a file: then it is locked, or has just got its final name.
pub(super) fn is_busy(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock().is_err() || !is_same(&file, path),
        Err(_) => false,
    }
}
