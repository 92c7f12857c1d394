//! What can be chosen of a file that is written, and the sizes that follow.

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

/// Sizes that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Bytes of a cluster.
    pub(super) cluster: u64,
    /// The same as a power of two.
    pub(super) bits: u32,
    /// Size of the disk.
    pub(super) length: u64,
    /// Bytes of the disk that are read and compressed together.
    pub(super) batch: u64,
    pub(super) compression: Compression,
}

impl Plan {
    pub(super) fn new(image: &dyn Image, options: &Options<'_>) -> Result<Self, Error> {
        let size = options.cluster_size;
        if !size.is_power_of_two() || !(512..=2 << 20).contains(&size) {
            return Err(Error::Option(format!("cluster size {size}: a power of two of 512 to 2097152")));
        }
        match options.compression {
            Compression::Zstd { level } if !(1..=22).contains(&level) => {
                return Err(Error::Option(format!("zstd level {level}: 1 to 22")));
            }
            Compression::Zlib { level } if !(1..=9).contains(&level) => {
                return Err(Error::Option(format!("zlib level {level}: 1 to 9")));
            }
            _ => {}
        }
        let cluster = u64::from(size);
        let length = image.length().checked_next_multiple_of(512).unwrap_or(u64::MAX);
        let plan = Self {
            cluster,
            bits: size.trailing_zeros(),
            length,
            batch: cluster.max(1 << 20),
            compression: options.compression,
        };
        if plan.tables() > MOST_TABLES {
            let text = format!("a disk of {length} bytes is too large for clusters of {size} bytes");
            return Err(Error::Option(text));
        }
        Ok(plan)
    }

    /// Bytes of the disk that one second-level table covers.
    pub(super) fn reach(&self) -> u64 {
        self.cluster * (self.cluster / 8)
    }

    /// Entries of the first-level table.
    pub(super) fn tables(&self) -> u64 {
        self.length.div_ceil(self.reach())
    }

    /// Number of batches of the disk.
    pub(super) fn batches(&self) -> u64 {
        self.length.div_ceil(self.batch)
    }
}

/// Greatest number of entries of the first-level table QEMU takes.
const MOST_TABLES: u64 = (32 << 20) / 8;
