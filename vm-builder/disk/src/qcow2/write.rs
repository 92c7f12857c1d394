//! The writer.

use std::io::{Seek, SeekFrom, Write};

use super::error::{Error, io};
use super::pack::{Batch, Packed};
use super::plan::{Compression, Options, Plan};
use crate::bytes::{index, low32, wide};
use crate::image::Image;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Size of the file in bytes.
    pub length: u64,
    /// Clusters stored as they are.
    pub plain: u64,
    /// Clusters stored compressed.
    pub compressed: u64,
}

/// Where the fields of an entry of a second-level table are.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// Bytes gathered before they are written.
const GATHER: usize = 1 << 20;

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
    let plan = Plan::new(image, options)?;
    let mut writer = Writer::new(out, &plan);
    let count = plan.batches();
    super::pack::in_order(&plan, image, options.threads, |number, batch| {
        writer.batch(number, &batch)?;
        (options.progress)(((number + 1) * plan.batch).min(image.length()));
        Ok(())
    })?;
    if count == 0 {
        (options.progress)(0);
    }
    writer.finish(options)
}

/// Puts clusters into the file.
struct Writer<'o, W> {
    out: &'o mut W,
    plan: Plan,
    /// Bytes not yet written, and where they go.
    gathered: Vec<u8>,
    gathered_at: u64,
    /// Position of `out`, if determined.
    position: Option<u64>,
    /// By cluster of the file; its length is the next free cluster.
    counts: Vec<u16>,
    /// Where the next compressed cluster may start, within a cluster that has room.
    open: Option<u64>,
    first: Vec<u64>,
    /// The second-level table being filled, and its number.
    second: Vec<u64>,
    number: u64,
    summary: Summary,
}

impl<'o, W: Write + Seek> Writer<'o, W> {
    fn new(out: &'o mut W, plan: &Plan) -> Self {
        let mut writer = Self {
            out,
            plan: *plan,
            gathered: Vec::with_capacity(GATHER),
            gathered_at: 0,
            position: None,
            counts: Vec::new(),
            open: None,
            first: vec![0; index(plan.tables())],
            second: Vec::new(),
            number: 0,
            summary: Summary::default(),
        };
        // The head, then the first-level table.
        writer.take(1 + (plan.tables() * 8).div_ceil(plan.cluster));
        writer
    }

    /// Takes free clusters; their offset.
    fn take(&mut self, count: u64) -> u64 {
        let at = wide(self.counts.len()) * self.plan.cluster;
        self.counts.resize(self.counts.len() + index(count), 1);
        at
    }

    /// Writes bytes, together with those just before them.
    fn emit(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        if at != self.gathered_at + wide(self.gathered.len()) || self.gathered.len() + bytes.len() > GATHER {
            self.flush()?;
            self.gathered_at = at;
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.gathered.is_empty() {
            if self.position != Some(self.gathered_at) {
                self.out.seek(SeekFrom::Start(self.gathered_at)).map_err(io("output"))?;
            }
            self.out.write_all(&self.gathered).map_err(io("output"))?;
            self.position = Some(self.gathered_at + wide(self.gathered.len()));
            self.gathered.clear();
        }
        Ok(())
    }

    /// Takes in the clusters of a batch.
    fn batch(&mut self, number: u64, batch: &Batch) -> Result<(), Error> {
        let mut at = 0;
        let first = number * (self.plan.batch / self.plan.cluster);
        for (cluster, packed) in (first..).zip(&batch.clusters) {
            let entry = match *packed {
                Packed::Hole => continue,
                Packed::Plain(length) => {
                    let bytes = batch.bytes.get(at..at + length).unwrap_or_default();
                    at += length;
                    self.plain(bytes)?
                }
                Packed::Compressed(length) => {
                    let bytes = batch.bytes.get(at..at + length).unwrap_or_default();
                    at += length;
                    self.compressed(bytes)?
                }
            };
            self.enter(cluster, entry)?;
        }
        Ok(())
    }

    /// Stores a cluster as it is; its entry.
    fn plain(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let at = self.take(1);
        self.emit(at, bytes)?;
        self.summary.plain += 1;
        Ok(at | COPIED)
    }

    /// Stores a compressed cluster behind the last one; its entry.
    fn compressed(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let (size, length) = (self.plan.cluster, wide(bytes.len()));
        let next = wide(self.counts.len()) * size;
        // Room is what is left of the open cluster, and the next free one if it comes right behind.
        let fits = |at: &u64| {
            let end = at.next_multiple_of(size);
            let shared = self.counts.get(index(at / size)).is_some_and(|count| *count < u16::MAX);
            shared && (end == next || at + length <= end)
        };
        let at = match self.open.filter(fits) {
            Some(at) => at,
            None => next,
        };
        let end = at + length;
        let last = (end - 1) / size;
        while wide(self.counts.len()) <= last {
            self.counts.push(0);
        }
        for count in self.counts.iter_mut().skip(index(at / size)).take(index(last - at / size + 1)) {
            *count += 1;
        }
        self.open = Some(end).filter(|end| end % size != 0);
        self.emit(at, bytes)?;
        self.summary.compressed += 1;
        let sectors = (end - 1) / 512 - at / 512;
        Ok(COMPRESSED | (sectors << (70 - self.plan.bits)) | at)
    }

    /// Notes where a cluster of the disk is.
    fn enter(&mut self, cluster: u64, entry: u64) -> Result<(), Error> {
        let entries = self.plan.cluster / 8;
        if cluster / entries != self.number {
            self.close()?;
            self.number = cluster / entries;
        }
        if self.second.is_empty() {
            self.second.resize(index(entries), 0);
        }
        if let Some(place) = self.second.get_mut(index(cluster % entries)) {
            *place = entry;
        }
        Ok(())
    }

    /// Writes the second-level table.
    fn close(&mut self) -> Result<(), Error> {
        if self.second.is_empty() {
            return Ok(());
        }
        let at = self.take(1);
        let bytes = big_endian(&self.second);
        self.emit(at, &bytes)?;
        self.second.clear();
        if let Some(place) = self.first.get_mut(index(self.number)) {
            *place = at | COPIED;
        }
        Ok(())
    }

    /// Writes the tables and the head.
    fn finish(mut self, options: &Options<'_>) -> Result<Summary, Error> {
        self.close()?;
        let size = self.plan.cluster;
        let per_block = size / 2;
        let used = wide(self.counts.len());
        let (mut blocks, mut table) = (1, 1);
        while blocks * per_block < used + blocks + table {
            blocks = (used + blocks + table).div_ceil(per_block);
            table = (blocks * 8).div_ceil(size);
        }
        let blocks_at = self.take(blocks);
        let table_at = self.take(table);
        let counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        self.emit(blocks_at, &counts)?;
        let pad = index(blocks * size).saturating_sub(counts.len());
        self.emit(blocks_at + wide(counts.len()), &vec![0; pad])?;
        let offsets: Vec<u64> = (0..blocks).map(|number| blocks_at + number * size).collect();
        let mut bytes = big_endian(&offsets);
        bytes.resize(index(table * size), 0);
        self.emit(table_at, &bytes)?;
        let first = big_endian(&self.first);
        let mut head = self.head(options, table_at, table);
        head.resize(index(size), 0);
        self.emit(0, &head)?;
        self.emit(size, &first)?;
        self.flush()?;
        self.out.flush().map_err(io("output"))?;
        self.summary.length = table_at + table * size;
        Ok(self.summary)
    }

    fn head(&self, options: &Options<'_>, table_at: u64, table: u64) -> Vec<u8> {
        let zstd = matches!(self.plan.compression, Compression::Zstd { .. });
        let mut head = Vec::with_capacity(512);
        head.extend(b"QFI\xfb");
        head.extend(3u32.to_be_bytes());
        // No backing file.
        head.extend([0; 12]);
        head.extend(self.plan.bits.to_be_bytes());
        head.extend(self.plan.length.to_be_bytes());
        // No encryption.
        head.extend([0; 4]);
        head.extend(low32(self.plan.tables()).to_be_bytes());
        head.extend(self.plan.cluster.to_be_bytes());
        head.extend(table_at.to_be_bytes());
        head.extend(low32(table).to_be_bytes());
        // No snapshots.
        head.extend([0; 12]);
        head.extend((u64::from(zstd) << 3).to_be_bytes());
        head.extend(u64::from(options.lazy_refcounts).to_be_bytes());
        head.extend([0; 8]);
        // Counts of 1 << 4 bits; this head is 112 bytes; the compression; no extensions.
        head.extend(4u32.to_be_bytes());
        head.extend(112u32.to_be_bytes());
        head.extend([u8::from(zstd), 0, 0, 0, 0, 0, 0, 0]);
        head.extend([0; 8]);
        head
    }
}

/// Numbers as bytes.
fn big_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}
