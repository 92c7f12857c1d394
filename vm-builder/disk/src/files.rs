//! Reads files of an ext4 file system out of an image, by the independent reader `ext4-view`.

use std::io;

use ext4_view::{Ext4, Ext4Error, Ext4Read};

use crate::image::Image;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Read { path: String, source: Box<Ext4Error> },
    #[error("{0}: not a path of an ext4 file system")]
    Path(String),
    #[error("{path}: {length} bytes are more than the limit of {limit}")]
    TooLong {
        path: String,
        /// Size of the file in bytes.
        length: u64,
        /// What was allowed, in bytes.
        limit: u64,
    },
}

/// An ext4 file system in an image.
#[derive(Debug)]
pub struct FileSystem {
    inner: Ext4,
}

/// Gives the reader bytes of an image.
struct Source<I>(I);

impl<I: Image> Ext4Read for Source<I> {
    fn read(
        &mut self,
        start: u64,
        into: &mut [u8],
    ) -> Result<(), Box<dyn core::error::Error + Send + Sync + 'static>> {
        self.0.read_at(start, into).map_err(|error: io::Error| error.into())
    }
}

impl FileSystem {
    /// Takes an image as an ext4 file system.
    pub fn open(image: impl Image + 'static) -> Result<Self, Error> {
        let inner = Ext4::load(Box::new(Source(image))).map_err(|source| read(b"/", source))?;
        Ok(Self { inner })
    }

    /// The content of a file. Symbolic links are followed within the file system.
    pub fn read(&self, path: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
        let at = ext4_view::Path::try_from(path).map_err(|_| Error::Path(shown(path)))?;
        let length = self.inner.metadata(at).map_err(|source| read(path, source))?.len();
        if length > limit {
            return Err(Error::TooLong { path: shown(path), length, limit });
        }
        self.inner.read(at).map_err(|source| read(path, source))
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn read(path: &[u8], source: Ext4Error) -> Error {
    Error::Read { path: shown(path), source: Box::new(source) }
}
