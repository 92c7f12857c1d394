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

    /// Whether it is certain, without reading content, that the range holds zeros only. False is always allowed.
    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        false
    }
}

impl<I: Image + ?Sized> Image for &I {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        (**self).is_hole(offset, length)
    }
}

impl<I: Image + ?Sized> Image for Box<I> {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        (**self).is_hole(offset, length)
    }
}

/// A disk in memory, with zeros after the bytes it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// First bytes of the disk.
    pub bytes: Vec<u8>,
    /// Size in bytes; what `bytes` holds beyond it is not part of the disk.
    pub length: u64,
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        let length = crate::bytes::wide(bytes.len());
        Self { bytes, length }
    }
}

impl Image for Memory {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        within(self.length, offset, into.len())?;
        into.fill(0);
        let start = crate::bytes::index(offset);
        let stored = self.bytes.get(start..).unwrap_or_default();
        for (to, from) in into.iter_mut().zip(stored) {
            *to = *from;
        }
        Ok(())
    }

    fn is_hole(&self, offset: u64, _length: u64) -> bool {
        offset >= crate::bytes::wide(self.bytes.len())
    }
}

/// Refuses a range that is not within a disk of `length` bytes.
///
/// # Errors
/// Of kind `UnexpectedEof` if so.
pub fn within(length: u64, offset: u64, count: usize) -> io::Result<()> {
    let end = offset.checked_add(crate::bytes::wide(count));
    if end.is_some_and(|end| end <= length) {
        return Ok(());
    }
    let text = format!("read of {count} bytes at {offset} of a disk of {length} bytes");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
}
