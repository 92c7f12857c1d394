//! Reads and compresses clusters in several threads and gives them back in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{Error, io};
use super::plan::{Compression, Plan};
use crate::bytes::{index, wide};
use crate::image::Image;
use crate::raw::is_zero;

/// Greatest number of threads: more only cost memory.
const MOST: usize = 256;
/// Bytes of the window of the decompressors.
const WINDOW: usize = 4096;

/// How a cluster is to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packed {
    /// Not at all: it is zeros.
    Hole,
    /// As it is, so many bytes.
    Plain(usize),
    /// Compressed, so many bytes.
    Compressed(usize),
}

/// Clusters in a row.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// How each is to be stored.
    pub(super) clusters: Vec<Packed>,
    /// The bytes of all.
    pub(super) bytes: Vec<u8>,
}

enum Engine {
    None,
    Zstd(zstd::bulk::Compressor<'static>),
    Zlib(flate2::Compress),
}

/// A thread's tools.
struct Packer {
    engine: Engine,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Packer {
    fn new(plan: &Plan) -> Result<Self, Error> {
        let engine = match plan.compression {
            Compression::None => Engine::None,
            Compression::Zstd { level } => {
                Engine::Zstd(zstd::bulk::Compressor::new(level).map_err(io("zstd"))?)
            }
            Compression::Zlib { level } => {
                Engine::Zlib(flate2::Compress::new(flate2::Compression::new(level), false))
            }
        };
        let input = vec![0; index(plan.batch)];
        // Room for what gets longer, so that running out of it is not an everyday matter.
        let output = vec![0; 2 * index(plan.cluster) + 1024];
        Ok(Self { engine, input, output })
    }

    /// Reads and compresses a batch.
    fn batch(&mut self, plan: &Plan, image: &dyn Image, number: u64) -> Result<Batch, Error> {
        let start = number * plan.batch;
        let count = plan.batch.min(image.length().saturating_sub(start));
        let mut batch = Batch::default();
        if count == 0 || image.is_hole(start, count) {
            return Ok(batch);
        }
        let stored = index(count);
        let (content, rest) = self.input.split_at_mut_checked(stored).unwrap_or_default();
        image.read_at(start, content).map_err(io("image"))?;
        rest.fill(0);
        let clusters = index(count.div_ceil(plan.cluster));
        for cluster in self.input.chunks_exact(index(plan.cluster)).take(clusters) {
            if is_zero(cluster) {
                batch.clusters.push(Packed::Hole);
                continue;
            }
            match compress(&mut self.engine, cluster, &mut self.output) {
                Some(length) => {
                    batch.bytes.extend_from_slice(self.output.get(..length).unwrap_or_default());
                    batch.clusters.push(Packed::Compressed(length));
                }
                None => {
                    batch.bytes.extend_from_slice(cluster);
                    batch.clusters.push(Packed::Plain(cluster.len()));
                }
            }
        }
        Ok(batch)
    }
}

/// Compresses a cluster; the length, which is less than that of the cluster, or `None` if it does not get smaller.
fn compress(engine: &mut Engine, cluster: &[u8], into: &mut [u8]) -> Option<usize> {
    let length = match engine {
        Engine::None => None,
        Engine::Zstd(zstd) => zstd.compress_to_buffer(cluster, into).ok(),
        Engine::Zlib(zlib) => deflate(zlib, cluster, into),
    };
    length.filter(|length| *length < cluster.len())
}

/// Deflates a cluster. QEMU inflates with a window of 4 KiB: matches never reach further back, because nothing
/// before a full flush is used again.
fn deflate(zlib: &mut flate2::Compress, cluster: &[u8], into: &mut [u8]) -> Option<usize> {
    zlib.reset();
    let mut parts = cluster.chunks(WINDOW).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let flush = if last { flate2::FlushCompress::Finish } else { flate2::FlushCompress::Full };
        let before = zlib.total_in();
        let room = into.get_mut(index(zlib.total_out())..)?;
        let status = zlib.compress(part, room, flush).ok()?;
        let whole = zlib.total_in() - before == wide(part.len());
        if !whole || (last && status != flate2::Status::StreamEnd) {
            return None;
        }
    }
    Some(index(zlib.total_out()))
}

#[derive(Default)]
struct Shared {
    /// The next batch that no thread has taken.
    next: u64,
    /// The next batch that is written.
    written: u64,
    ready: BTreeMap<u64, Result<Batch, Error>>,
    /// Threads end early.
    stop: bool,
}

/// A queue with a window: batches are not made further ahead than that.
struct Queue {
    shared: Mutex<Shared>,
    changed: Condvar,
    window: u64,
    count: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'l>(&self, guard: MutexGuard<'l, Shared>) -> MutexGuard<'l, Shared> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch to make; `None` if there is no more to do.
    fn next(&self) -> Option<u64> {
        let mut shared = self.lock();
        loop {
            if shared.stop || shared.next >= self.count {
                return None;
            }
            if shared.next < shared.written + self.window {
                shared.next += 1;
                return Some(shared.next - 1);
            }
            shared = self.wait(shared);
        }
    }

    /// Hands a batch to the writer.
    fn put(&self, number: u64, batch: Result<Batch, Error>) {
        self.lock().ready.insert(number, batch);
        self.changed.notify_all();
    }

    /// The next batch to write; `None` if a thread ended without making it.
    fn take(&self, number: u64) -> Option<Result<Batch, Error>> {
        let mut shared = self.lock();
        loop {
            if let Some(batch) = shared.ready.remove(&number) {
                shared.written = number + 1;
                drop(shared);
                self.changed.notify_all();
                return Some(batch);
            }
            if shared.stop {
                return None;
            }
            shared = self.wait(shared);
        }
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }
}

/// Ends all threads when one of them ends with work left, a panic in an image included, so that no thread
/// waits for a result that never comes.
struct Guard<'q>(&'q Queue, bool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.stop();
        }
    }
}

/// Makes all batches and calls `write` with each in order.
pub(super) fn in_order(
    plan: &Plan,
    image: &dyn Image,
    threads: usize,
    mut write: impl FnMut(u64, Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    let count = plan.batches();
    let threads = threads.clamp(1, MOST).min(index(count));
    if threads <= 1 {
        let mut packer = Packer::new(plan)?;
        for number in 0..count {
            write(number, packer.batch(plan, image, number)?)?;
        }
        return Ok(());
    }
    let packers = (0..threads).map(|_| Packer::new(plan)).collect::<Result<Vec<_>, _>>()?;
    let queue = Queue { shared: Mutex::default(), changed: Condvar::new(), window: 2 * wide(threads), count };
    std::thread::scope(|scope| {
        // Whatever way this ends, the threads end too.
        let _end = Guard(&queue, false);
        for mut packer in packers {
            let queue = &queue;
            scope.spawn(move || {
                let mut guard = Guard(queue, false);
                while let Some(number) = queue.next() {
                    let batch = packer.batch(plan, image, number);
                    queue.put(number, batch);
                }
                guard.1 = true;
            });
        }
        for number in 0..count {
            let lost = || Error::Io { what: "image", source: std::io::Error::other("a thread ended early") };
            write(number, queue.take(number).ok_or_else(lost)??)?;
        }
        Ok(())
    })
}
