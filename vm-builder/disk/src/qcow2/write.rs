//! Writes a version 3 file with clusters of 64 KiB, compressed with zstd, which QEMU reads since 5.1.

use std::io::{Seek, SeekFrom, Write};

use super::error::{Error, io};
use crate::bytes::{index, low32, wide};
use crate::image::Image;
use crate::raw::is_zero;

/// Bytes of a cluster.
const CLUSTER: u64 = 1 << BITS;
const BITS: u32 = 16;
/// Entries of a second-level table.
const ENTRIES: u64 = CLUSTER / 8;
/// Greatest number of entries of the first-level table QEMU takes.
const MOST_TABLES: u64 = (32 << 20) / 8;
/// Bytes of the disk that a thread reads and compresses at a time.
const PIECE: u64 = 4 << 20;
const LEVEL: i32 = 3;
/// Where the fields of an entry of a second-level table are.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;

/// Stores an image as a qcow2 file from the start of `out` on, which should be empty. A size that is not a multiple
/// of 512 is rounded up with zeros. Small pieces are written: `out` should gather them. `progress` is called with the number of
/// bytes of the disk done so far.
pub fn write(image: &dyn Image, out: impl Write + Seek, progress: &dyn Fn(u64)) -> Result<(), Error> {
    let length = image.length().checked_next_multiple_of(512).unwrap_or(u64::MAX);
    let tables = length.div_ceil(CLUSTER * ENTRIES);
    if tables > MOST_TABLES {
        return Err(Error::Unsupported(format!("a disk of {length} bytes")));
    }
    let mut writer = Writer::new(out, tables);
    let end = |start: u64| image.length().min(start + PIECE);
    let pieces = (0..image.length()).step_by(index(PIECE));
    let pieces: Vec<u64> = pieces.filter(|start| !image.is_hole(*start, end(*start) - start)).collect();
    for round in pieces.chunks(std::thread::available_parallelism().map_or(1, usize::from)) {
        let packed: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                round.iter().map(|start| scope.spawn(move || pack(image, *start))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|packed| packed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        for (start, clusters) in round.iter().zip(packed) {
            for (number, bytes) in clusters? {
                let plain = wide(bytes.len()) == CLUSTER;
                let entry = if plain { writer.plain(&bytes) } else { writer.compressed(&bytes) };
                writer.enter(number, entry?)?;
            }
            progress(end(*start));
        }
    }
    progress(image.length());
    writer.finish(length)
}

/// The clusters from `start` on that are not all zeros, with their numbers; those that get smaller are compressed.
fn pack(image: &dyn Image, start: u64) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let count = PIECE.min(image.length() - start);
    let mut input = vec![0; index(count.next_multiple_of(CLUSTER))];
    image.read_at(start, input.get_mut(..index(count)).unwrap_or_default()).map_err(io("image"))?;
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(io("zstd"))?;
    let clusters = (start / CLUSTER..).zip(input.chunks_exact(index(CLUSTER)));
    let used = clusters.filter(|(_, cluster)| !is_zero(cluster));
    let packed = used.map(|(number, cluster)| {
        let smaller = compressor.compress(cluster).ok().filter(|bytes| bytes.len() < cluster.len());
        (number, smaller.unwrap_or_else(|| cluster.to_vec()))
    });
    Ok(packed.collect())
}

/// Puts clusters into the file.
struct Writer<W> {
    out: W,
    /// Position of `out`.
    position: u64,
    /// By cluster of the file; its length is the next free cluster.
    counts: Vec<u16>,
    /// Where the next compressed cluster may start, within a cluster that has room.
    open: Option<u64>,
    first: Vec<u64>,
    /// The second-level table being filled, and its number.
    second: Vec<u64>,
    number: u64,
}

impl<W: Write + Seek> Writer<W> {
    fn new(out: W, tables: u64) -> Self {
        let mut writer = Self {
            out,
            position: 0,
            counts: Vec::new(),
            open: None,
            first: vec![0; index(tables)],
            second: Vec::new(),
            number: 0,
        };
        // The head, then the first-level table.
        writer.take(1 + (tables * 8).div_ceil(CLUSTER));
        writer
    }

    /// Takes free clusters; their offset.
    fn take(&mut self, count: u64) -> u64 {
        let at = wide(self.counts.len()) * CLUSTER;
        self.counts.resize(self.counts.len() + index(count), 1);
        at
    }

    /// Writes bytes; most come right behind those before them.
    fn emit(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        if at != self.position {
            self.out.seek(SeekFrom::Start(at)).map_err(io("output"))?;
        }
        self.out.write_all(bytes).map_err(io("output"))?;
        self.position = at + wide(bytes.len());
        Ok(())
    }

    /// Stores a cluster as it is; its entry.
    fn plain(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let at = self.take(1);
        self.emit(at, bytes)?;
        Ok(at | COPIED)
    }

    /// Stores a compressed cluster behind the last one; its entry.
    fn compressed(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let length = wide(bytes.len());
        let next = wide(self.counts.len()) * CLUSTER;
        // Room is what is left of the open cluster, and the next free one if it comes right behind.
        let fits = |at: &u64| {
            let end = at.next_multiple_of(CLUSTER);
            let shared = self.counts.get(index(at / CLUSTER)).is_some_and(|count| *count < u16::MAX);
            shared && (end == next || at + length <= end)
        };
        let at = match self.open.filter(fits) {
            Some(at) => at,
            None => next,
        };
        let end = at + length;
        let last = (end - 1) / CLUSTER;
        while wide(self.counts.len()) <= last {
            self.counts.push(0);
        }
        for count in self.counts.iter_mut().skip(index(at / CLUSTER)).take(index(last - at / CLUSTER + 1)) {
            *count += 1;
        }
        self.open = Some(end).filter(|end| end % CLUSTER != 0);
        self.emit(at, bytes)?;
        let sectors = (end - 1) / 512 - at / 512;
        Ok(COMPRESSED | (sectors << (70 - BITS)) | at)
    }

    fn enter(&mut self, cluster: u64, entry: u64) -> Result<(), Error> {
        if cluster / ENTRIES != self.number {
            self.close()?;
            self.number = cluster / ENTRIES;
        }
        if self.second.is_empty() {
            self.second.resize(index(ENTRIES), 0);
        }
        if let Some(place) = self.second.get_mut(index(cluster % ENTRIES)) {
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
    fn finish(mut self, length: u64) -> Result<(), Error> {
        self.close()?;
        let per_block = CLUSTER / 2;
        let used = wide(self.counts.len());
        let (mut blocks, mut table) = (1, 1);
        while blocks * per_block < used + blocks + table {
            blocks = (used + blocks + table).div_ceil(per_block);
            table = (blocks * 8).div_ceil(CLUSTER);
        }
        let blocks_at = self.take(blocks);
        let table_at = self.take(table);
        let counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        self.emit(blocks_at, &counts)?;
        let pad = index(blocks * CLUSTER).saturating_sub(counts.len());
        self.emit(blocks_at + wide(counts.len()), &vec![0; pad])?;
        let offsets: Vec<u64> = (0..blocks).map(|number| blocks_at + number * CLUSTER).collect();
        let mut bytes = big_endian(&offsets);
        bytes.resize(index(table * CLUSTER), 0);
        self.emit(table_at, &bytes)?;
        let first = big_endian(&self.first);
        let mut head = self.head(length, table_at, table);
        head.resize(index(CLUSTER), 0);
        self.emit(0, &head)?;
        self.emit(CLUSTER, &first)?;
        self.out.flush().map_err(io("output"))
    }

    fn head(&self, length: u64, table_at: u64, table: u64) -> Vec<u8> {
        let mut head = Vec::with_capacity(512);
        head.extend(b"QFI\xfb");
        head.extend(3u32.to_be_bytes());
        // No backing file.
        head.extend([0; 12]);
        head.extend(BITS.to_be_bytes());
        head.extend(length.to_be_bytes());
        // No encryption.
        head.extend([0; 4]);
        head.extend(low32(wide(self.first.len())).to_be_bytes());
        head.extend(CLUSTER.to_be_bytes());
        head.extend(table_at.to_be_bytes());
        head.extend(low32(table).to_be_bytes());
        // No snapshots.
        head.extend([0; 12]);
        // Only readers that know the type of compression can use it.
        head.extend((1u64 << 3).to_be_bytes());
        head.extend([0; 16]);
        // Counts of 1 << 4 bits; this head is 112 bytes; the compression; no extensions.
        head.extend(4u32.to_be_bytes());
        head.extend(112u32.to_be_bytes());
        head.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        head.extend([0; 8]);
        head
    }
}

/// Numbers as bytes.
fn big_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}
