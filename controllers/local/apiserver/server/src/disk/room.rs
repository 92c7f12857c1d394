//! Room on the disk. Writes are taken as long as the reserve is whole; the first write that finds the disk full gets a piece of the
//! reserve and begins a time in which the server refuses what does not free room.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use neonvm_kit::reserve::{PIECE, Reserve};

/// Bytes of a commit beside its records: pages of the tree that are rewritten.
const OVERHEAD: u64 = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk of {directory} is full: {served} until there is room")]
pub struct Full {
    pub directory: String,
    /// Whether what frees room can still be written.
    pub has_reserve: bool,
    served: &'static str,
}

#[derive(Debug)]
pub(super) struct Room {
    pub(super) reserve: Reserve,
    is_full: AtomicBool,
    is_pretended: AtomicBool,
}

impl Room {
    pub(super) fn from_directory(directory: &Path) -> Self {
        Self {
            reserve: Reserve::from_directory(directory),
            is_full: AtomicBool::new(false),
            is_pretended: AtomicBool::new(false),
        }
    }

    /// Takes the reserve at start. Without it the disk counts as full.
    pub(super) fn prepare(&self) {
        match self.reserve.fill() {
            Ok(true) => {}
            Ok(false) => self.begin(),
            Err(error) => tracing::warn!(%error, "no room can be kept back for a full disk"),
        }
    }

    fn begin(&self) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::error!(
                directory = %self.reserve.directory().display(),
                "the disk is full: reads and deletes are served, other writes are refused"
            );
        }
    }

    /// Gives a piece of the reserve up for a write; false if there is none.
    pub(super) fn lend(&self, bytes: u64) -> bool {
        self.begin();
        self.reserve.give(bytes.saturating_mul(2).saturating_add(OVERHEAD))
    }

    pub(super) fn full(&self) -> Option<Full> {
        if !self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let has_reserve = self.reserve.left() > 0 || self.reserve.free() >= PIECE;
        let served = if has_reserve {
            "only reads, deletes and what ends objects are served"
        } else {
            "its reserve is used up, and only reads are served"
        };
        Some(Full { directory: self.reserve.directory().display().to_string(), has_reserve, served })
    }

    /// Looks whether there is room again: for the whole reserve, and some beside it.
    pub(super) fn look(&self) {
        if self.is_full.load(Ordering::Relaxed)
            && !self.is_pretended.load(Ordering::Relaxed)
            && self.reserve.fill().unwrap_or(false)
        {
            self.is_full.store(false, Ordering::Relaxed);
            tracing::info!(directory = %self.reserve.directory().display(), "the disk has room again");
        }
    }

    pub(super) fn pretend(&self, is_full: bool) {
        self.is_pretended.store(is_full, Ordering::Relaxed);
    }

    pub(super) fn pretended(&self) -> Result<(), redb::Error> {
        if self.is_pretended.load(Ordering::Relaxed) {
            return Err(redb::Error::Io(std::io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}
