//! Uncompressed layers: found by the digest of the tar, written while they are decompressed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use super::budget::{Budget, Counting};
use super::{Cache, Temporary, read_limited, touch};
use crate::out;
use crate::reference::{Digest, Hasher};
use crate::source::{Error, Packing};

/// Most memory of the decoder of xz, in KiB. The highest level of xz needs 65 MiB.
const XZ_MEMORY: u32 = 1 << 19;

/// A layer in the cache; it stays readable even if it is removed.
#[derive(Debug)]
pub struct CachedLayer {
    pub file: File,
    /// Its length in bytes.
    pub size: u64,
}

/// A layer that was decompressed and is not in the cache yet.
#[derive(Debug)]
pub struct Unpacked {
    temporary: Temporary,
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
}

impl Cache {
    /// A layer, if it is here. Its length is checked; with `verify` its digest, too. A damaged one is removed.
    pub fn layer(&self, diff_id: Digest, verify: bool) -> Result<Option<CachedLayer>, Error> {
        let path = self.path("layers", diff_id);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let size = file.metadata().map_err(|error| Error::io("read", &path, error))?.len();
        let recorded = read_limited(&self.size_path(diff_id), 64).ok();
        let recorded = recorded.and_then(|text| String::from_utf8(text).ok()?.trim().parse::<u64>().ok());
        let mut intact = recorded == Some(size);
        if intact && verify {
            let (digest, _) =
                Digest::of_reader(&mut file).map_err(|error| Error::io("read", &path, error))?;
            intact = digest == diff_id;
        }
        if !intact {
            std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
            return Ok(None);
        }
        touch(&path);
        Ok(Some(CachedLayer { file, size }))
    }

    pub(super) fn size_path(&self, diff_id: Digest) -> PathBuf {
        self.path("layers", diff_id).with_extension("size")
    }

    /// Decompresses a tar (gzip, bzip2, xz, zstd or none, recognised by its first bytes) into a new file, within a budget.
    /// `what` is for errors.
    ///
    /// # Errors
    /// If reading, decompressing or writing fails. An [`Error`] that the reader wrapped comes back as it was.
    pub fn unpack(&self, what: &str, reader: &mut dyn Read, budget: &Budget) -> Result<Unpacked, Error> {
        let mut temporary = self.temporary()?;
        let stored = Cell::new(0);
        let mut reader = BufReader::with_capacity(1 << 16, Counting { reader, count: &stored });
        let malformed = |problem: String| Error::Malformed { what: what.to_owned(), problem };
        let mut head = Vec::new();
        reader.by_ref().take(6).read_to_end(&mut head).map_err(|error| unwrapped(error, &malformed))?;
        let packing = Packing::of(&head);
        let reader = io::Cursor::new(head).chain(reader);
        let mut decoder: Box<dyn Read + '_> = match packing {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
            Packing::Zstd => Box::new(
                zstd::stream::read::Decoder::with_buffer(reader)
                    .map_err(|error| unwrapped(error, &malformed))?,
            ),
            Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(reader, true, XZ_MEMORY)),
            Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(reader)),
            Packing::None => Box::new(reader),
        };
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 1 << 17];
        loop {
            let count = match decoder.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unwrapped(error, &malformed)),
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            hasher.update(bytes);
            budget.charge(what, count as u64, stored.get(), hasher.length())?;
            temporary.write(bytes)?;
        }
        let size = hasher.length();
        Ok(Unpacked { temporary, digest: hasher.finish(), size })
    }

    /// Gives a layer its place if it is the one expected.
    pub fn commit(
        &self,
        unpacked: Unpacked,
        expected: Option<Digest>,
        what: &str,
    ) -> Result<CachedLayer, Error> {
        let Unpacked { temporary, digest, size } = unpacked;
        if let Some(expected) = expected
            && expected != digest
        {
            let what = format!("uncompressed {what}");
            return Err(Error::DigestMismatch { what, expected, actual: digest });
        }
        // First the length: a tar under its final name has one beside it.
        self.write(format!("{size}\n").as_bytes(), &self.size_path(digest))?;
        let path = self.path("layers", digest);
        let file =
            File::open(out::handle(&temporary.file)).map_err(|error| Error::io("open", &path, error))?;
        temporary.rename(&path)?;
        Ok(CachedLayer { file, size })
    }
}

/// Gives back an error of ours that a reader had to wrap.
pub(crate) fn unwrapped(error: io::Error, malformed: &dyn Fn(String) -> Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => malformed(error.to_string()),
    }
}
