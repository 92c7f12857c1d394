//! Blocks of directories: names in the order of their bytes, one after another.

use std::collections::BTreeMap;

use super::checksum::crc;
use crate::bytes::{low16, put, put16, put32, wide};
use crate::tree::{Bytes, InodeId, Kind, Tree};

/// Bytes of a block for entries: the sum is behind them.
const ROOM: usize = 4084;

/// Bytes of an entry.
fn size(name: &[u8]) -> usize {
    (8 + name.len()).next_multiple_of(4)
}

/// The names that blocks after the first one start with; `added` is a name in the first block before all others.
pub(super) fn starts<'a>(names: &'a BTreeMap<Bytes, InodeId>, added: Option<&[u8]>) -> Vec<&'a [u8]> {
    let mut used = size(b".") + size(b"..") + added.map_or(0, size);
    let mut starts = Vec::new();
    for name in names.keys() {
        let more = size(name);
        if used + more > ROOM {
            starts.push(name.as_slice());
            used = 0;
        }
        used += more;
    }
    starts
}

/// Type in an entry of what an inode is.
pub(super) fn type_of(kind: &Kind) -> u8 {
    match kind {
        Kind::File(_) => 1,
        Kind::Directory(_) => 2,
        Kind::CharacterDevice { .. } => 3,
        Kind::BlockDevice { .. } => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink(_) => 7,
    }
}

#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    at: usize,
    last: usize,
}

impl Block {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; 4096], at: 0, last: 0 }
    }

    /// Adds an entry. False if there is no room.
    pub(super) fn push(&mut self, ino: u32, kind: u8, name: &[u8]) -> bool {
        let more = size(name);
        if self.at + more > ROOM {
            return false;
        }
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        put32(&mut self.bytes, self.at, ino);
        put16(&mut self.bytes, self.at + 4, low16(wide(more)));
        put(&mut self.bytes, self.at + 6, &[length, kind]);
        put(&mut self.bytes, self.at + 8, name);
        self.last = self.at;
        self.at += more;
        true
    }

    /// The bytes: the last entry goes to the end, then comes the sum.
    pub(super) fn finish(mut self, inode_seed: u32) -> Vec<u8> {
        put16(&mut self.bytes, self.last + 4, low16(wide(ROOM - self.last)));
        let sum = crc(inode_seed, self.bytes.get(..ROOM).unwrap_or_default());
        put16(&mut self.bytes, ROOM + 4, 12);
        put(&mut self.bytes, ROOM + 7, &[0xDE]);
        put32(&mut self.bytes, ROOM + 8, sum);
        self.bytes
    }
}

/// Fills a block with the names from `first` on.
pub(super) fn fill(
    block: &mut Block,
    tree: &Tree,
    names: &BTreeMap<Bytes, InodeId>,
    first: &[u8],
    ino_of: &dyn Fn(InodeId) -> u32,
) {
    let from = (std::ops::Bound::Included(first), std::ops::Bound::Unbounded);
    for (name, id) in names.range::<[u8], _>(from) {
        let kind = tree.get(*id).map_or(0, |inode| type_of(&inode.kind));
        if !block.push(ino_of(*id), kind, name) {
            break;
        }
    }
}
