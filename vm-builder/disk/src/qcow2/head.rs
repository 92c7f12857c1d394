//! The head of a file.

use super::error::{Error, io};
use crate::bytes::{index, take};
use crate::image::Image;

/// Greatest size of the first-level table, and of the table of reference counts: QEMU's limits.
const MOST_FIRST: u64 = 32 << 20;
const MOST_COUNTS: u64 = 8 << 20;

/// The fields of the header, checked.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) version: u32,
    pub(super) bits: u32,
    pub(super) virtual_size: u64,
    pub(super) first_at: u64,
    pub(super) first_entries: u64,
    pub(super) counts_at: u64,
    pub(super) counts_clusters: u64,
    /// Bits of a reference count as a power of two.
    pub(super) count_order: u32,
    pub(super) zstd: bool,
    pub(super) snapshots: u32,
    pub(super) backing: Option<Vec<u8>>,
}

impl Head {
    /// Bytes of a cluster.
    pub(super) fn cluster(&self) -> u64 {
        1 << self.bits
    }

    /// Entries of a second-level table.
    pub(super) fn entries(&self) -> u64 {
        self.cluster() / 8
    }

    pub(super) fn read(source: &dyn Image) -> Result<Self, Error> {
        let length = source.length();
        let mut bytes = vec![0; index(length.min(112))];
        source.read_at(0, &mut bytes).map_err(io("head"))?;
        if bytes.get(..4) != Some(b"QFI\xfb") {
            return Err(Error::NotQcow2);
        }
        let number = |at| u32::from_be_bytes(take(&bytes, at));
        let long = |at| u64::from_be_bytes(take(&bytes, at));
        let version = number(4);
        if !(2..=3).contains(&version) {
            return Err(Error::Unsupported(format!("qcow2 version {version}")));
        }
        let least = if version == 2 { 72 } else { 104 };
        if bytes.len() < least {
            return Err(Error::corrupt("head", "the file ends within it"));
        }
        let (count_order, zstd) = if version == 2 { (4, false) } else { features(&bytes)? };
        let head = Self {
            version,
            bits: number(20),
            virtual_size: long(24),
            first_at: long(40),
            first_entries: u64::from(number(36)),
            counts_at: long(48),
            counts_clusters: u64::from(number(56)),
            count_order,
            zstd,
            snapshots: number(60),
            backing: backing(source, long(8), number(16))?,
        };
        if number(32) != 0 {
            return Err(Error::Unsupported("encryption".to_owned()));
        }
        head.check(length)?;
        Ok(head)
    }

    /// Refuses numbers that are not possible.
    fn check(&self, length: u64) -> Result<(), Error> {
        if !(9..=21).contains(&self.bits) {
            return Err(Error::corrupt("head", format!("clusters of 2^{} bytes", self.bits)));
        }
        if self.virtual_size > u64::MAX / 4 {
            return Err(Error::corrupt("head", format!("a disk of {} bytes", self.virtual_size)));
        }
        let size = self.cluster();
        if self.first_entries * 8 > MOST_FIRST {
            return Err(Error::corrupt("first-level table", format!("{} entries", self.first_entries)));
        }
        let needed = self.virtual_size.div_ceil(size).div_ceil(self.entries());
        if self.first_entries < needed {
            let text = format!("{} entries, and the disk needs {needed}", self.first_entries);
            return Err(Error::corrupt("first-level table", text));
        }
        if self.counts_clusters * size > MOST_COUNTS {
            let text = format!("{} clusters", self.counts_clusters);
            return Err(Error::corrupt("table of reference counts", text));
        }
        for (structure, at, bytes) in [
            ("first-level table", self.first_at, self.first_entries * 8),
            ("table of reference counts", self.counts_at, self.counts_clusters * size),
        ] {
            let end = at.checked_add(bytes);
            if at % size != 0 || (bytes > 0 && at == 0) || end.is_none_or(|end| end > length) {
                let text = format!("at byte {at}, in a file of {length} bytes");
                return Err(Error::corrupt(structure, text));
            }
        }
        Ok(())
    }
}

/// Reference count order and whether zstd is used, of version 3.
fn features(bytes: &[u8]) -> Result<(u32, bool), Error> {
    let incompatible = u64::from_be_bytes(take(bytes, 72));
    let refused = [(1, "a file marked as corrupt"), (2, "an external data file"), (4, "extended L2 entries")];
    for (bit, what) in refused {
        if incompatible & (1 << bit) != 0 {
            return Err(Error::Unsupported(what.to_owned()));
        }
    }
    if incompatible >> 5 != 0 {
        return Err(Error::Unsupported(format!("incompatible feature bits {:#x}", incompatible & !0x1F)));
    }
    let order = u32::from_be_bytes(take(bytes, 96));
    let length = u32::from_be_bytes(take(bytes, 100));
    if order > 6 {
        return Err(Error::corrupt("head", format!("reference counts of 2^{order} bits")));
    }
    if length < 104 || !length.is_multiple_of(8) {
        return Err(Error::corrupt("head", format!("length {length}")));
    }
    let kind = if length > 104 { take::<1>(bytes, 104) } else { [0] };
    match (incompatible & (1 << 3) != 0, kind) {
        (false, [0]) => Ok((order, false)),
        (true, [1]) => Ok((order, true)),
        (_, [kind]) => Err(Error::Unsupported(format!("compression type {kind}"))),
    }
}

fn backing(source: &dyn Image, at: u64, length: u32) -> Result<Option<Vec<u8>>, Error> {
    if at == 0 {
        return Ok(None);
    }
    let mut name = vec![0; index(u64::from(length.min(1024)))];
    let end = at.checked_add(u64::from(length));
    if length > 1023 || end.is_none_or(|end| end > source.length()) {
        return Err(Error::corrupt("name of the backing file", format!("{length} bytes at byte {at}")));
    }
    source.read_at(at, &mut name).map_err(io("name of the backing file"))?;
    Ok(Some(name))
}
