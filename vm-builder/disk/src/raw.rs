//! Disks stored as they are: byte for byte, with holes where the file system of the host can have them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::{index, wide};
use crate::image::{Image, within};

/// Bytes read at once.
const PIECE: u64 = 1 << 20;
/// Unit in which zeros are left out.
const GRAIN: usize = 4096;

/// Stores an image in a file: its size is set, zeros are left out in units of 4 KiB. `progress` is called with the
/// number of bytes of the disk done so far.
pub fn write(image: &dyn Image, file: &File, progress: &dyn Fn(u64)) -> io::Result<()> {
    let length = image.length();
    file.set_len(0)?;
    file.set_len(length)?;
    let mut buffer = vec![0; index(PIECE)];
    let mut at = 0;
    while at < length {
        let count = PIECE.min(length - at);
        if !image.is_hole(at, count) {
            let piece = buffer.get_mut(..index(count)).unwrap_or_default();
            image.read_at(at, piece)?;
            write_parts(file, at, piece)?;
        }
        at += count;
        progress(at);
    }
    Ok(())
}

/// Writes what is not zero, neighbours together.
fn write_parts(file: &File, at: u64, piece: &[u8]) -> io::Result<()> {
    let mut start = 0;
    let mut end = 0;
    for grain in piece.chunks(GRAIN) {
        let next = end + grain.len();
        if is_zero(grain) {
            file.write_all_at(piece.get(start..end).unwrap_or_default(), at + wide(start))?;
            start = next;
        }
        end = next;
    }
    file.write_all_at(piece.get(start..end).unwrap_or_default(), at + wide(start))
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // In blocks, so that the compiler compares many bytes at once while a difference ends it early.
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().all(|block| block.iter().fold(0, |any, byte| any | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

#[derive(Debug)]
pub struct Reader {
    file: File,
    length: u64,
}

impl Reader {
    /// Takes a file, or a block device, as a disk.
    pub fn open(file: File) -> io::Result<Self> {
        let length = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        Ok(Self { file, length })
    }
}

impl Image for Reader {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        within(self.length, offset, into.len())?;
        self.file.read_exact_at(into, offset)
    }
}
