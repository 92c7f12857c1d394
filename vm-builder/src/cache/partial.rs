//! A compressed layer on its way: bytes from its beginning, kept for the case that the rest does not come.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Cache;
use crate::reference::Digest;
use crate::source::Error;

/// The beginning of a layer, ours alone while this lives.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
}

impl Cache {
    fn partial_path(&self, digest: Digest) -> PathBuf {
        self.path("layers", digest).with_extension("partial")
    }

    /// How much of a layer there is, for watching another process.
    pub(crate) fn partial_length(&self, digest: Digest) -> u64 {
        std::fs::metadata(self.partial_path(digest)).map_or(0, |metadata| metadata.len())
    }

    /// Where the beginning of a layer is kept, for messages.
    pub(crate) fn partial_name(&self, digest: Digest) -> PathBuf {
        self.partial_path(digest)
    }

    /// The beginning of a layer, which may be empty. None while another process has it.
    pub(crate) fn try_partial(&self, digest: Digest) -> Result<Option<Partial>, Error> {
        let path = self.partial_path(digest);
        loop {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(|error| Error::io("create", &path, error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
                Err(std::fs::TryLockError::Error(error)) => return Err(Error::io("lock", &path, error)),
            }
            // The previous owner of the lock may have removed it: then this file has no name any more.
            if is_same(&file, &path) {
                return Ok(Some(Partial { file, path }));
            }
        }
    }
}

/// Whether a path still leads to an open file.
pub(super) fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

impl Partial {
    /// Bytes there are.
    pub(crate) fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Another handle, positioned at the beginning.
    pub(crate) fn reader(&self) -> Result<File, Error> {
        File::open(&self.path).map_err(|error| Error::io("open", &self.path, error))
    }

    /// Adds bytes at the end.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let result = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(bytes));
        result.map_err(|error| Error::io("write", &self.path, error))
    }

    /// Throws the bytes away.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(|error| Error::io("write", &self.path, error))
    }

    /// Removes the file: the layer is complete, or of no use.
    pub(crate) fn remove(self) -> Result<(), Error> {
        std::fs::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, error))
    }
}
