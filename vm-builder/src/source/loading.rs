//! What every kind of source needs to be loaded.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::counted::Counted;
use super::formats::{self, Packing};
use super::{Error, Options, Progress};
use crate::cache::{Budget, Cache, CachedLayer};
use crate::reference::Digest;

/// What every kind of source needs to be loaded.
pub(super) struct Loading<'a> {
    pub(super) options: &'a Options,
    pub(super) cache: &'a Cache,
    pub(super) budget: Arc<Budget>,
    pub(super) progress: &'a dyn Progress,
}

impl Loading<'_> {
    /// Opens a tar: in place if it is plain, else decompressed into the cache. `hash`: the digest of the uncompressed
    /// tar is needed; without, it is that of nothing for plain ones.
    pub(super) fn open_tar(&self, path: &Path, hash: bool) -> Result<(CachedLayer, Digest), Error> {
        use std::io::{Read as _, Seek as _};
        let failed = |error| Error::io("read", path, error);
        let mut file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        let what = path.display().to_string();
        let is_tar = |file: &File| match formats::of_file(file).map_err(failed)? {
            Some(format) => Err(Error::no_archive(&what, format)),
            None => Ok(()),
        };
        let mut head = [0; 6];
        let count = file.read(&mut head).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if Packing::of(head.get(..count).unwrap_or_default()) != Packing::None {
            let mut reader = Counted::new(file, &what, self.progress);
            let unpacked = self.cache.unpack(&what, &mut reader, &self.budget)?;
            let digest = unpacked.digest;
            self.progress.finished(&what);
            let layer = self.cache.commit(unpacked, None, &what)?;
            is_tar(&layer.file)?;
            return Ok((layer, digest));
        }
        is_tar(&file)?;
        let (digest, size) = if hash {
            Digest::of_reader(&mut file).map_err(failed)?
        } else {
            (Digest::from_bytes(b""), metadata.len())
        };
        Ok((CachedLayer { file, size }, digest))
    }
}
