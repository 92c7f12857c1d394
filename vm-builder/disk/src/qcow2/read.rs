//! The reader.

use std::io;

use super::error::Error;
use super::write::Compression;
use crate::image::Image;

/// What is known of a qcow2 file without reading content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Size of a cluster in bytes.
    pub cluster_size: u64,
    /// What compressed clusters are compressed with; the level is not known and 0.
    pub compression: Compression,
    /// Bytes of the disk that are allocated (not holes).
    pub allocated: u64,
    /// Size of the file in bytes.
    pub file_size: u64,
}

/// What [`Reader::check`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Clusters of the disk stored as they are.
    pub plain: u64,
    /// Clusters of the disk stored compressed.
    pub compressed: u64,
    /// Clusters of the disk marked as zeros.
    pub zero: u64,
    /// Clusters of the file that are counted as used but nothing uses.
    pub leaked: u64,
}

/// A qcow2 file as a disk.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
}

impl<S: Image> Reader<S> {
    /// Takes the bytes of a file, such as a [`crate::raw::Reader`], as qcow2. A backing file is refused.
    ///
    /// # Errors
    /// If it is no qcow2 file, is corrupt, or uses what is not supported.
    pub fn open(source: S) -> Result<Self, Error> {
        Self::open_with(source, |name| {
            Err(Error::Unsupported(format!("a backing file ({})", String::from_utf8_lossy(name))))
        })
    }

    /// As [`Reader::open`]; `backing` opens a backing file by the name that the file has for it.
    ///
    /// # Errors
    /// As [`Reader::open`], and those of `backing`.
    pub fn open_with(
        source: S,
        backing: impl FnOnce(&[u8]) -> Result<Box<dyn Image>, Error>,
    ) -> Result<Self, Error> {
        let _ = backing;
        Ok(Self { source })
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// If a table cannot be read or is corrupt.
    pub fn info(&self) -> Result<Info, Error> {
        Err(Error::Unsupported("reading".to_owned()))
    }

    /// Walks all tables: every offset is within the file, no two things share a cluster, and every reference count
    /// is right. Leaked clusters are counted, all else is an error.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<Check, Error> {
        Err(Error::Unsupported("reading".to_owned()))
    }
}

impl<S: Image> Image for Reader<S> {
    fn length(&self) -> u64 {
        self.source.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let _ = (offset, into);
        Err(io::ErrorKind::Unsupported.into())
    }
}
