//! The reader.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{Error, io as reading};
use super::head::Head;
use crate::bytes::{index, wide};
use crate::image::{Image, within};

/// What [`Reader::check`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Clusters of the disk stored as they are.
    pub plain: u64,
    pub compressed: u64,
    /// Clusters of the disk marked as zeros.
    pub zero: u64,
    /// Clusters of the file that are counted as used but nothing uses.
    pub leaked: u64,
}

/// Clusters kept decompressed, so that small reads do not decompress again and again.
const KEPT: usize = 8;
/// Where the offset is in an entry of a table.
const OFFSET: u64 = 0x00FF_FFFF_FFFF_FE00;
const COMPRESSED: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    None,
    /// Zeros; a place in the file may be kept for it.
    Zero(Option<u64>),
    Plain(u64),
    /// Compressed, at an offset, at most so many bytes.
    Compressed(u64, u64),
}

/// A qcow2 file as a disk.
pub struct Reader<S> {
    pub(super) source: S,
    pub(super) head: Head,
    pub(super) first: Vec<u64>,
    backing: Option<Box<dyn Image>>,
    kept: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
}

impl<S> std::fmt::Debug for Reader<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reader").field("head", &self.head).finish_non_exhaustive()
    }
}

impl<S: Image> Reader<S> {
    /// Takes the bytes of a file, such as a [`crate::raw::Reader`], as qcow2. A backing file is refused.
    pub fn open(source: S) -> Result<Self, Error> {
        Self::open_with(source, |name| {
            Err(Error::Unsupported(format!("a backing file ({})", String::from_utf8_lossy(name))))
        })
    }

    /// As [`Reader::open`]; `backing` opens a backing file by the name that the file has for it.
    pub fn open_with(
        source: S,
        backing: impl FnOnce(&[u8]) -> Result<Box<dyn Image>, Error>,
    ) -> Result<Self, Error> {
        let head = Head::read(&source)?;
        let backing = head.backing.as_deref().map(backing).transpose()?;
        let first = numbers(&source, head.first_at, head.first_entries, "first-level table")?;
        Ok(Self { source, head, first, backing, kept: Mutex::default() })
    }

    /// Version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.head.version
    }

    /// Size of a cluster in bytes.
    pub fn cluster_size(&self) -> u64 {
        self.head.cluster()
    }

    /// The table an entry of the first-level table leads to.
    pub(super) fn second_at(&self, entry: u64) -> Result<Option<u64>, Error> {
        let at = entry & OFFSET;
        if at == 0 {
            return Ok(None);
        }
        let size = self.head.cluster();
        if !at.is_multiple_of(size) || at.checked_add(size).is_none_or(|end| end > self.source.length()) {
            return Err(Error::corrupt("first-level table", format!("a table at byte {at}")));
        }
        Ok(Some(at))
    }

    /// The mapping that an entry of a second-level table describes.
    pub(super) fn mapping(&self, entry: u64) -> Result<Mapping, Error> {
        let length = self.source.length();
        if entry & COMPRESSED != 0 {
            let shift = 70 - self.head.bits;
            let at = entry & ((1 << shift) - 1);
            let sectors = ((entry & (COMPRESSED - 1)) >> shift) + 1;
            if at >= length {
                return Err(Error::corrupt("second-level table", format!("compressed cluster at byte {at}")));
            }
            // The last sector of a file may be cut off.
            let count = (sectors * 512 - at % 512).min(length - at);
            return Ok(Mapping::Compressed(at, count));
        }
        let at = entry & OFFSET;
        if !at.is_multiple_of(self.head.cluster()) || at >= length.max(1) {
            return Err(Error::corrupt("second-level table", format!("cluster at byte {at}")));
        }
        let zero = self.head.version >= 3 && entry & 1 != 0;
        Ok(match (zero, at) {
            (true, 0) => Mapping::Zero(None),
            (true, at) => Mapping::Zero(Some(at)),
            (false, 0) => Mapping::None,
            (false, at) => Mapping::Plain(at),
        })
    }

    fn find(&self, cluster: u64) -> Result<Mapping, Error> {
        let entries = self.head.entries();
        let Some(entry) = self.first.get(index(cluster / entries)) else { return Ok(Mapping::None) };
        let Some(at) = self.second_at(*entry)? else { return Ok(Mapping::None) };
        let mut bytes = [0; 8];
        let at = at + cluster % entries * 8;
        self.source.read_at(at, &mut bytes).map_err(reading("second-level table"))?;
        self.mapping(u64::from_be_bytes(bytes))
    }

    /// Fills `into` with bytes of one cluster, from `skip` on.
    fn part(&self, cluster: u64, skip: u64, into: &mut [u8]) -> Result<(), Error> {
        match self.find(cluster)? {
            Mapping::Zero(_) => into.fill(0),
            Mapping::None => match &self.backing {
                Some(backing) => {
                    let at = cluster * self.head.cluster() + skip;
                    clipped(backing, at, into).map_err(reading("backing file"))?;
                }
                None => into.fill(0),
            },
            Mapping::Plain(at) => clipped(&self.source, at + skip, into).map_err(reading("cluster"))?,
            Mapping::Compressed(at, count) => {
                let whole = self.unpacked(cluster, at, count)?;
                let from = whole.get(index(skip)..).unwrap_or_default();
                into.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    /// A compressed cluster as it was.
    fn unpacked(&self, cluster: u64, at: u64, count: u64) -> Result<Arc<[u8]>, Error> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, whole)) = kept().iter().find(|(number, _)| *number == cluster) {
            return Ok(Arc::clone(whole));
        }
        let mut packed = vec![0; index(count)];
        self.source.read_at(at, &mut packed).map_err(reading("compressed cluster"))?;
        let mut whole = vec![0; index(self.head.cluster())];
        unpack(self.head.zstd, &packed, &mut whole).ok_or_else(|| {
            Error::corrupt("compressed cluster", format!("at byte {at}: cannot be decompressed"))
        })?;
        let whole: Arc<[u8]> = whole.into();
        let mut kept = kept();
        kept.truncate(KEPT - 1);
        kept.push_front((cluster, Arc::clone(&whole)));
        Ok(whole)
    }

    /// Decompresses a cluster for nothing but to see that it can be.
    pub(super) fn try_unpack(&self, at: u64, count: u64) -> Result<(), Error> {
        // No cluster of a disk has this number.
        self.unpacked(u64::MAX - at, at, count).map(|_| ())
    }
}

/// Decompresses until `into` is full. The rest of the last sector is ignored.
fn unpack(zstd: bool, packed: &[u8], into: &mut [u8]) -> Option<()> {
    if zstd {
        let length = zstd::zstd_safe::find_frame_compressed_size(packed).ok()?;
        let frame = packed.get(..length)?;
        let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
        let count = decompressor.decompress_to_buffer(frame, into).ok()?;
        return (count == into.len()).then_some(());
    }
    let mut inflate = flate2::Decompress::new(false);
    inflate.decompress(packed, into, flate2::FlushDecompress::Finish).ok()?;
    (inflate.total_out() == wide(into.len())).then_some(())
}

/// Reads what there is; zeros behind the end.
fn clipped(source: &dyn Image, at: u64, into: &mut [u8]) -> io::Result<()> {
    let there = index(source.length().saturating_sub(at)).min(into.len());
    let (bytes, rest) = into.split_at_mut_checked(there).unwrap_or_default();
    rest.fill(0);
    if bytes.is_empty() { Ok(()) } else { source.read_at(at, bytes) }
}

/// Big-endian numbers of a table with a checked place.
pub(super) fn numbers(
    source: &dyn Image,
    at: u64,
    count: u64,
    structure: &'static str,
) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; index(count * 8)];
    source.read_at(at, &mut bytes).map_err(reading(structure))?;
    let (numbers, _) = bytes.as_chunks::<8>();
    Ok(numbers.iter().map(|number| u64::from_be_bytes(*number)).collect())
}

impl<S: Image> Image for Reader<S> {
    fn length(&self) -> u64 {
        self.head.virtual_size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        within(self.length(), offset, into.len())?;
        let size = self.head.cluster();
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let skip = at % size;
            let count = index(size - skip).min(rest.len());
            let (part, next) = rest.split_at_mut_checked(count).unwrap_or_default();
            self.part(at / size, skip, part).map_err(io::Error::other)?;
            at += wide(count);
            rest = next;
        }
        Ok(())
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let size = self.head.cluster();
        let reach = size * self.head.entries();
        let end = offset.saturating_add(length).min(self.length());
        let mut at = offset;
        while at < end {
            match self.find(at / size) {
                Ok(Mapping::Zero(_)) => {}
                Ok(Mapping::None) if self.backing.is_none() => {
                    let first = self.first.get(index(at / reach)).copied().unwrap_or(0);
                    if first & OFFSET == 0 {
                        at = at / reach * reach + reach;
                        continue;
                    }
                }
                _ => return false,
            }
            at = at / size * size + size;
        }
        true
    }
}
