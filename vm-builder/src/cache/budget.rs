//! What the load of one image may write: its layers come from strangers, and a few megabytes can be made to expand to a full disk.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::{Error, Limits};

/// The ratio of expansion counts from here: less is harmless, and headers and holes of small layers compress well.
const RATIO_FROM: u64 = 1 << 30;
/// Bytes that are written between two looks at the free space.
const LOOK: u64 = 64 << 20;

/// What the load of one image may still write.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    directory: PathBuf,
    written: AtomicU64,
}

impl Budget {
    /// The whole of it; `directory` is where the cache is.
    pub fn new(limits: Limits, directory: &Path) -> Self {
        Self { limits, directory: directory.to_owned(), written: AtomicU64::new(0) }
    }

    /// Begins a load that fetches so many compressed bytes.
    pub(crate) fn announce(&self, what: &str, stored: u64) -> Result<(), Error> {
        self.within(what, stored)?;
        self.room(stored)
    }

    /// Counts bytes that are about to be written of a layer that has now expanded from `stored` to `unpacked` bytes.
    pub(super) fn charge(&self, what: &str, bytes: u64, stored: u64, unpacked: u64) -> Result<(), Error> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        self.within(what, before.saturating_add(bytes))?;
        if unpacked > RATIO_FROM && unpacked / self.limits.ratio.max(1) > stored {
            return Err(Error::Limit {
                what: format!("{what}: expansion"),
                limit: self.limits.ratio,
                unit: "times its compressed size",
                flag: Some("--max-ratio"),
            });
        }
        if before / LOOK == before.saturating_add(bytes) / LOOK { Ok(()) } else { self.room(0) }
    }

    fn within(&self, what: &str, bytes: u64) -> Result<(), Error> {
        let limit = self.limits.bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::Limit {
            what: what.to_owned(),
            limit,
            unit: "bytes in all layers",
            flag: Some("--max-bytes"),
        })
    }

    /// Whether what must stay free does so after so many more bytes.
    fn room(&self, more: u64) -> Result<(), Error> {
        let least = self.limits.free;
        // A file system that does not report it has no limit of ours.
        let Ok(system) = rustix::fs::statvfs(&self.directory) else { return Ok(()) };
        if system.f_bavail.saturating_mul(system.f_frsize) >= least.saturating_add(more) {
            return Ok(());
        }
        Err(Error::LowSpace { directory: self.directory.clone(), least })
    }
}

pub(super) struct Counting<'a, R> {
    pub(super) reader: R,
    pub(super) count: &'a std::cell::Cell<u64>,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limits: Limits) -> Budget {
        Budget::new(limits, &std::env::temp_dir())
    }

    fn flag(result: Result<(), Error>) -> Option<&'static str> {
        match result.unwrap_err() {
            Error::Limit { flag, .. } => flag,
            Error::LowSpace { .. } => Some("--min-free"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn each_limit_ends_a_load_and_names_its_flag() {
        let limits = Limits { bytes: 10 << 30, free: 0, ..Limits::default() };
        let all = budget(limits);
        // Of all layers together.
        all.charge("one", 6 << 30, 6 << 30, 6 << 30).unwrap();
        assert_eq!(flag(all.charge("two", 5 << 30, 5 << 30, 5 << 30)), Some("--max-bytes"));
        assert_eq!(flag(budget(limits).announce("stored", 11 << 30)), Some("--max-bytes"));
        let one = || budget(limits);
        one().charge("small", 1 << 30, 1, 1 << 30).unwrap();
        one().charge("large", 1 << 20, 20 << 20, 2000 << 20).unwrap();
        assert_eq!(flag(one().charge("bomb", 1 << 20, 20 << 20, 2022 << 20)), Some("--max-ratio"));
        let full = budget(Limits { free: u64::MAX, ..limits });
        assert_eq!(flag(full.announce("x", 1)), Some("--min-free"));
        full.charge("x", 1, 1, 1).unwrap();
        assert_eq!(flag(full.charge("x", LOOK, LOOK, LOOK)), Some("--min-free"));
    }
}
