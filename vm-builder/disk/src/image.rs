//! A disk as something that can be read anywhere: the meeting point of file systems (which make one), of disk
//! formats (which store one), and of readers.

use std::io;

/// The bytes of a disk.
pub trait Image: Sync {
    /// Size in bytes.
    fn length(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If the range is not within the disk, or what is behind it cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Whether it is known, without reading content, that the range holds zeros only. False is always allowed.
    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        false
    }
}
