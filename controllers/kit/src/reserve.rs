//! Room that is kept back for a full disk: a file that gives its blocks up, piece by piece, to a component that must write.
//!
//! Pieces are small, so that another program that fills the disk gets little of what is released for ours. A file
//! system that shares or compresses blocks may keep back less than the file's length.

use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::private;

/// Name of the file in the directory of a cluster.
pub const NAME: &str = "state.reserve";
/// Bytes that are kept back.
pub const SIZE: u64 = 16 << 20;
/// Bytes that are released at once, at least.
pub const PIECE: u64 = 1 << 20;
/// Bytes that stay free beside the reserve: it is not filled with the last room of the disk.
const MARGIN: u64 = 4 << 20;

/// The reserve of a directory. Several processes may hold it; each shortens the same file.
#[derive(Clone, Debug)]
pub struct Reserve {
    path: PathBuf,
    size: u64,
}

impl Reserve {
    /// The reserve of the file system of a directory. Nothing is written before [`Reserve::fill`].
    #[must_use]
    pub fn from_directory(directory: &Path) -> Self {
        Self::sized(directory, SIZE)
    }

    /// As [`Reserve::from_directory`], with another size in bytes.
    #[must_use]
    pub fn sized(directory: &Path, size: u64) -> Self {
        Self { path: directory.join(NAME), size }
    }

    /// The directory whose disk it keeps room on.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Bytes that can still be released.
    #[must_use]
    pub fn left(&self) -> u64 {
        std::fs::symlink_metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// Whether nothing of it was released.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.left() >= self.size
    }

    /// Bytes that this user may still use of the disk; 0 if that cannot be found out.
    #[must_use]
    pub fn free(&self) -> u64 {
        statvfs(self.directory()).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Takes what is missing, piece by piece, as long as the disk keeps some room beside it. Returns whether it is whole.
    ///
    /// # Errors
    /// If the file cannot be made. A disk without room is no error.
    pub fn fill(&self) -> io::Result<bool> {
        if self.is_whole() {
            return Ok(true);
        }
        let file = match private::options().write(true).create(true).truncate(false).open(&self.path) {
            Err(error) if is_full(&error) => return Ok(false),
            file => file?,
        };
        while !self.is_whole() {
            let missing = self.size.saturating_sub(self.left()).min(PIECE);
            if self.free() < missing + MARGIN {
                return Ok(false);
            }
            match extend(&file, self.left(), missing) {
                Err(error) if is_full(&error) => return Ok(false),
                extended => extended?,
            }
        }
        Ok(true)
    }

    /// Releases at least so many bytes, or all that is left. Returns whether there was anything.
    #[must_use]
    pub fn give(&self, bytes: u64) -> bool {
        let left = self.left();
        let wanted = bytes.div_ceil(PIECE).max(1).saturating_mul(PIECE);
        let shorten =
            || private::options().write(true).open(&self.path)?.set_len(left.saturating_sub(wanted));
        left > 0 && shorten().is_ok()
    }

    /// Does something that needs room; gives a piece up and tries again as long as the disk is full.
    ///
    /// # Errors
    /// Those of the work.
    pub fn lend<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match work() {
                Err(error) if is_full(&error) && self.give(PIECE) => {}
                done => return done,
            }
        }
    }
}

/// Whether an error means that there is no room on the disk, or none for this user.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Makes a file longer, with blocks behind it.
fn extend(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), from, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let mut file = file;
            file.seek(SeekFrom::Start(from))?;
            file.write_all(&vec![0xA5; usize::try_from(bytes).unwrap_or(0)])
        }
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_in_pieces_and_filled_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::sized(directory.path(), 3 * PIECE);
        assert!(!reserve.is_whole() && !reserve.give(1), "there is nothing to give before it is filled");
        assert!(reserve.fill().unwrap());
        assert!(reserve.give(1));
        assert_eq!(reserve.left(), 2 * PIECE);
        assert!(reserve.give(PIECE + 1));
        assert!(!reserve.give(1));
        assert!(reserve.fill().unwrap() && reserve.is_whole());
    }

    #[test]
    fn work_is_tried_again_until_there_is_room_or_no_reserve() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::sized(directory.path(), 3 * PIECE);
        reserve.fill().unwrap();
        let no_room = || io::Error::from(ErrorKind::StorageFull);
        let mut attempts = 0;
        let done = reserve.lend(|| {
            attempts += 1;
            if attempts < 3 { Err(no_room()) } else { Ok(attempts) }
        });
        assert_eq!((done.unwrap(), reserve.left()), (3, PIECE));
        assert!(is_full(&reserve.lend(|| Err::<(), _>(no_room())).unwrap_err()));
        assert_eq!(reserve.left(), 0);
        assert!(reserve.lend(|| Err::<(), _>(io::Error::other("broken"))).is_err());
    }
}
