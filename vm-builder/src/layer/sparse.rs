//! Sparse files in archives: a map lists which runs of the file are stored, one after another.

use super::fields::{BLOCK, size};
use super::pax::decimal;

/// Most runs of one file. GNU tar has no limit; this many are 24 MiB of memory.
const RUN_LIMIT: usize = 1 << 20;

/// Adds the runs of a GNU header or its extension blocks: pairs of 12-byte numbers; an empty one ends them.
pub(super) fn read_gnu(field: &[u8], map: &mut Vec<u64>) -> Result<(), &'static str> {
    for pair in field.chunks_exact(24) {
        if pair.first() == Some(&0) {
            break;
        }
        let (offset, length) = pair.split_at(12);
        map.push(size(offset)?);
        map.push(size(length)?);
        check(map.len() / 2)?;
    }
    Ok(())
}

fn check(runs: usize) -> Result<(), &'static str> {
    if runs > RUN_LIMIT { Err("sparse file has too many runs") } else { Ok(()) }
}

/// Reads the map that version 1.0 stores before the content: lines of decimal numbers, padded to a block.
/// `read` gives the next block. Returns the map and the bytes it took.
pub(super) fn read_stored<E>(
    mut read: impl FnMut(&mut [u8; BLOCK]) -> Result<(), E>,
    wrong: impl Fn(&'static str) -> E,
) -> Result<(Vec<u64>, u64), E> {
    let mut block = [0; BLOCK];
    let (mut taken, mut position) = (0_u64, BLOCK);
    let mut line = || -> Result<u64, E> {
        let mut digits = Vec::new();
        loop {
            if position == BLOCK {
                read(&mut block)?;
                taken += BLOCK as u64;
                position = 0;
            }
            let byte = block.get(position).copied().unwrap_or_default();
            position += 1;
            match byte {
                b'\n' => return decimal(&digits).map_err(&wrong),
                b'0'..=b'9' if digits.len() < 19 => digits.push(byte),
                _ => return Err(wrong("map of the sparse file is malformed")),
            }
        }
    };
    let runs = usize::try_from(line()?).unwrap_or(usize::MAX);
    check(runs).map_err(&wrong)?;
    let mut map = Vec::new();
    for _ in 0..runs * 2 {
        map.push(line()?);
    }
    Ok((map, taken))
}

/// Converts a map into runs of a file of `real_size` bytes; its content is stored from `offset` on in `stored` bytes.
pub(super) fn runs(map: &[u64], real_size: u64, offset: u64, stored: u64) -> Result<Vec<Run>, &'static str> {
    check(map.len() / 2)?;
    if !map.len().is_multiple_of(2) {
        return Err("map of the sparse file is incomplete");
    }
    let (mut runs, mut used, mut end) = (Vec::new(), 0_u64, 0_u64);
    for pair in map.chunks_exact(2) {
        let (Some(&at), Some(&length)) = (pair.first(), pair.get(1)) else { continue };
        let next = at.checked_add(length).ok_or("map of the sparse file is out of range")?;
        if at < end || next > real_size {
            return Err("map of the sparse file overlaps or exceeds the file");
        }
        if length > stored - used {
            return Err("map of the sparse file exceeds what is stored");
        }
        end = next;
        if length > 0 {
            runs.push(Run { at, length, offset: offset + used });
        }
        used += length;
    }
    Ok(runs)
}

/// A stored run of a file: the rest is holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file.
    pub at: u64,
    /// Bytes, at least 1.
    pub length: u64,
    /// First byte in the archive.
    pub offset: u64,
}
