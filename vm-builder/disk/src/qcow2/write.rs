//! The writer.

use std::io::{Seek, Write};

use super::error::Error;
use crate::image::Image;

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// With zstd at a level of 1–22; QEMU reads it since 5.1.
    Zstd {
        /// 1–22.
        level: i32,
    },
    /// With deflate at a level of 1–9; every QEMU reads it.
    Zlib {
        /// 1–9.
        level: u32,
    },
}

/// What can be chosen of a qcow2 file.
pub struct Options<'a> {
    /// Size of a cluster in bytes, a power of two of 512–2,097,152.
    pub cluster_size: u32,
    /// How clusters are compressed.
    pub compression: Compression,
    /// Number of threads that read and compress, at least 1; the file is the same for every number.
    pub threads: usize,
    /// Whether QEMU may leave reference counts behind while it runs, which makes writes faster.
    pub lazy_refcounts: bool,
    /// Called with the number of bytes of the disk done so far, ascending.
    pub progress: &'a dyn Fn(u64),
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Options")
            .field("cluster_size", &self.cluster_size)
            .field("compression", &self.compression)
            .field("threads", &self.threads)
            .field("lazy_refcounts", &self.lazy_refcounts)
            .finish_non_exhaustive()
    }
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            cluster_size: 65536,
            compression: Compression::Zstd { level: 3 },
            threads: 1,
            lazy_refcounts: false,
            progress: &|_| {},
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Size of the file in bytes.
    pub length: u64,
    /// Clusters stored as they are.
    pub plain: u64,
    /// Clusters stored compressed.
    pub compressed: u64,
}

/// Stores an image as a qcow2 file from the start of `out` on, which should be empty. A size that is not a multiple
/// of 512 is rounded up with zeros.
///
/// # Errors
/// If an option is not valid, the image cannot be read, or `out` cannot be written.
pub fn write(
    image: &dyn Image,
    out: &mut (impl Write + Seek),
    options: &Options<'_>,
) -> Result<Summary, Error> {
    let _ = (image, out, options);
    Err(Error::Unsupported("writing".to_owned()))
}
