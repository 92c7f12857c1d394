//! Extended attributes: those that fit lie behind the inode, the others in one block.

use std::collections::BTreeMap;

use super::checksum::crc;
use super::error::Error;
use crate::bytes::{low16, low32, put, put16, put32, wide};
use crate::tree::Bytes;

/// Bytes behind an inode of 256 bytes with 32 bytes of extra fields.
pub(super) const INLINE: usize = 96;
const MAGIC: u32 = 0xEA02_0000;
/// Bytes of an entry without its name.
const ENTRY: usize = 16;
/// Bytes of the head of a block.
const HEAD: usize = 32;
const BLOCK: usize = 4096;

#[derive(Debug)]
struct Stored<'a> {
    index: u8,
    name: &'a [u8],
    value: std::borrow::Cow<'a, [u8]>,
}

impl Stored<'_> {
    fn entry(&self) -> usize {
        (ENTRY + self.name.len()).next_multiple_of(4)
    }

    fn size(&self) -> usize {
        self.entry() + self.value.len().next_multiple_of(4)
    }

    /// The hash that blocks have, so that equal blocks can be found.
    fn hash(&self) -> u32 {
        let name = self.name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(4).fold(name, |hash, chunk| {
            let mut word = [0; 4];
            put(&mut word, 0, chunk);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

#[derive(Debug)]
pub(super) struct Attributes<'a> {
    inline: Vec<Stored<'a>>,
    block: Vec<Stored<'a>>,
}

/// Why one attribute cannot be stored.
#[derive(Debug)]
enum Problem {
    Name,
    List,
}

impl<'a> Attributes<'a> {
    /// Divides attributes. `path` is only called if there is an error.
    pub(super) fn new(xattrs: &'a BTreeMap<Bytes, Bytes>, path: &dyn Fn() -> String) -> Result<Self, Error> {
        let mut all = Vec::new();
        for (name, value) in xattrs {
            let shown = || String::from_utf8_lossy(name).into_owned();
            let stored = stored(name, value).map_err(|problem| match problem {
                Problem::Name => Error::AttributeName { path: path(), name: shown() },
                Problem::List => Error::AccessControlList { path: path(), name: shown() },
            })?;
            all.push((stored, name));
        }
        // Linux looks names up in a block in this order.
        all.sort_by(|(a, _), (b, _)| (a.index, a.name.len(), a.name).cmp(&(b.index, b.name.len(), b.name)));
        // Each area ends with four zero bytes.
        let (mut inline_room, mut block_room) = (INLINE - 8, BLOCK - HEAD - 4);
        let (mut inline, mut block) = (Vec::new(), Vec::new());
        for (stored, name) in all {
            let size = stored.size();
            if let Some(left) = inline_room.checked_sub(size) {
                inline_room = left;
                inline.push(stored);
            } else if let Some(left) = block_room.checked_sub(size) {
                block_room = left;
                block.push(stored);
            } else {
                let name = String::from_utf8_lossy(name).into_owned();
                return Err(Error::AttributesDoNotFit { path: path(), name, length: stored.value.len() });
            }
        }
        Ok(Self { inline, block })
    }

    /// Whether a block is needed.
    pub(super) fn has_block(&self) -> bool {
        !self.block.is_empty()
    }

    /// The area behind the inode; empty if there is nothing.
    pub(super) fn inline(&self) -> Vec<u8> {
        if self.inline.is_empty() {
            return Vec::new();
        }
        let mut area = vec![0; INLINE];
        put32(&mut area, 0, MAGIC);
        // Values are counted from the first entry there.
        if let Some(entries) = area.get_mut(4..) {
            fill(entries, 0, &self.inline, false);
        }
        area
    }

    pub(super) fn block(&self, number: u64, seed: u32) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        put32(&mut block, 0, MAGIC);
        put32(&mut block, 4, 1);
        put32(&mut block, 8, 1);
        fill(&mut block, HEAD, &self.block, true);
        let mut hashes = self.block.iter().map(Stored::hash);
        let whole = hashes.try_fold(0u32, |whole, hash| (hash != 0).then(|| whole.rotate_left(16) ^ hash));
        put32(&mut block, 12, whole.unwrap_or(0));
        let sum = crc(crc(seed, &number.to_le_bytes()), &block);
        put32(&mut block, 16, sum);
        block
    }
}

/// Entries from `at` on, values from the end on.
fn fill(area: &mut [u8], at: usize, attributes: &[Stored<'_>], hashed: bool) {
    let mut at = at;
    let mut end = area.len();
    for attribute in attributes {
        let length = attribute.value.len();
        end = end.saturating_sub(length.next_multiple_of(4));
        let name_length = u8::try_from(attribute.name.len()).unwrap_or(u8::MAX);
        put(area, at, &[name_length, attribute.index]);
        put16(area, at + 2, if length == 0 { 0 } else { low16(wide(end)) });
        put32(area, at + 8, low32(wide(length)));
        put32(area, at + 12, if hashed { attribute.hash() } else { 0 });
        put(area, at + ENTRY, attribute.name);
        put(area, end, &attribute.value);
        at += attribute.entry();
    }
}

/// Whether ext4 can store an attribute, if there is room for it.
pub(super) fn is_storable(name: &[u8], value: &[u8]) -> bool {
    stored(name, value).is_ok()
}

/// The number of a prefix, the rest of the name, and the value as ext4 has it.
fn stored<'a>(name: &'a [u8], value: &'a [u8]) -> Result<Stored<'a>, Problem> {
    // The kernel shows no attribute of another prefix: number 7, `system.`, is for data inside inodes.
    const PREFIXES: [(u8, &[u8]); 3] = [(1, b"user."), (4, b"trusted."), (6, b"security.")];
    let list = match name {
        b"system.posix_acl_access" => Some(2),
        b"system.posix_acl_default" => Some(3),
        _ => None,
    };
    if let Some(index) = list {
        let value = access_list(value).ok_or(Problem::List)?.into();
        return Ok(Stored { index, name: b"", value });
    }
    let found = PREFIXES.iter().find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)));
    let (index, rest) = found.ok_or(Problem::Name)?;
    if rest.is_empty() || rest.len() > 255 || rest.contains(&0) {
        return Err(Problem::Name);
    }
    Ok(Stored { index, name: rest, value: value.into() })
}

/// An access control list of version 2 as system calls have it, in ext4's version 1, which leaves out unused ids.
fn access_list(value: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != 2 || !rest.is_empty() {
        return None;
    }
    let mut list = 1u32.to_le_bytes().to_vec();
    for [t0, t1, p0, p1, id @ ..] in entries {
        list.extend([*t0, *t1, *p0, *p1]);
        match u16::from_le_bytes([*t0, *t1]) {
            // A user or a group by id.
            0x02 | 0x08 => list.extend(id),
            // Owner, owning group, mask, others.
            0x01 | 0x04 | 0x10 | 0x20 => {}
            _ => return None,
        }
    }
    Some(list)
}
