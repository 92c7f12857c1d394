//! Where the metadata of groups lies: as `mke2fs -t ext4` does it, with the bitmaps and inode tables of 16 groups
//! together at the first of them (`flex_bg`) and copies of the superblock in groups 0, 1 and powers of 3, 5 and 7.

use std::ops::Range;

use super::error::Error;
use crate::bytes::{low32, wide};

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Blocks of a group: as many as a bitmap of one block has bits.
pub(super) const GROUP: u64 = 32768;
/// Bytes of an inode.
pub(super) const INODE: u64 = 256;
pub(super) const PER_BLOCK: u64 = BLOCK / INODE;
/// Bytes of a group descriptor.
pub(super) const DESCRIPTOR: u64 = 64;
/// Groups whose metadata lies together, as a power of two.
pub(super) const FLEX_LOG: u8 = 4;
/// Fewest blocks of the last group beyond its own metadata.
const LAST: u64 = 50;
/// Greatest number of blocks: 32-bit block numbers keep the resize inode and old tools working.
const MOST: u64 = u32::MAX as u64;

#[derive(Clone, Copy, Debug)]
pub(super) struct GroupMetadata {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) table: u64,
}

/// Sizes and places that do not depend on content.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) blocks: u64,
    pub(super) groups: u64,
    pub(super) inodes_per_group: u64,
    pub(super) descriptor_blocks: u64,
    /// Blocks kept free behind each copy of the descriptors, for growth.
    pub(super) spare: u64,
    pub(super) places: Vec<GroupMetadata>,
    /// Blocks that hold metadata of groups: sorted, without overlap.
    pub(super) reserved: Vec<Range<u64>>,
}

impl Geometry {
    /// For a size in blocks and at least so many inodes. `None` if the metadata alone does not fit.
    pub(super) fn new(blocks: u64, inodes: u64) -> Result<Option<Self>, Error> {
        let mut blocks = blocks;
        loop {
            if blocks == 0 || blocks > MOST {
                return if blocks == 0 { Ok(None) } else { Err(Error::Size(blocks.saturating_mul(BLOCK))) };
            }
            let mut geometry = Self::sizes(blocks, inodes)?;
            let last = blocks - (geometry.groups - 1) * GROUP;
            let enough = last >= geometry.head(geometry.groups - 1) + LAST;
            if enough && geometry.place().is_some() {
                return Ok(Some(geometry));
            }
            // The last group, if it is not a whole one, is too short for what it must hold: it is left out.
            if last == GROUP || geometry.groups == 1 {
                return Ok(None);
            }
            blocks -= last;
        }
    }

    /// Numbers without places.
    fn sizes(blocks: u64, inodes: u64) -> Result<Self, Error> {
        let groups = blocks.div_ceil(GROUP);
        // One for 16 KiB, as mke2fs.
        let wanted = (blocks * BLOCK / 16384).max(inodes).max(16);
        let inodes_per_group = wanted.div_ceil(groups).next_multiple_of(PER_BLOCK);
        if inodes_per_group > GROUP {
            let limit = groups * GROUP;
            return Err(Error::TooManyInodes { needed: wanted, limit, size: blocks * BLOCK });
        }
        let per_block = BLOCK / DESCRIPTOR;
        let descriptor_blocks = groups.div_ceil(per_block);
        // Room to grow to 1024 times the size, as mke2fs.
        let future = (blocks * 1024).min(MOST).div_ceil(GROUP).div_ceil(per_block);
        let spare = future.saturating_sub(descriptor_blocks).min(BLOCK / 4);
        Ok(Self {
            blocks,
            groups,
            inodes_per_group,
            descriptor_blocks,
            spare,
            places: Vec::new(),
            reserved: Vec::new(),
        })
    }

    /// Finds a place for everything; `None` if there is not enough room.
    fn place(&mut self) -> Option<()> {
        let flex = 1u64 << FLEX_LOG;
        let mut ranges = Vec::new();
        for group in (0..self.groups).filter(|group| has_copy(*group)) {
            ranges.push(group * GROUP..group * GROUP + self.head(group));
        }
        for first in (0..self.groups).step_by(1 << FLEX_LOG) {
            let members = first..(first + flex).min(self.groups);
            let end = (members.end * GROUP).min(self.blocks);
            let mut at = first * GROUP;
            let mut put = |count: u64| {
                let start = self.room(at, count);
                at = start + count;
                ranges.push(start..at);
                (at <= end).then_some(start)
            };
            let count = members.end - members.start;
            let blocks: Vec<u64> = (0..count).map(|_| put(1)).collect::<Option<_>>()?;
            let inodes: Vec<u64> = (0..count).map(|_| put(1)).collect::<Option<_>>()?;
            let table = self.table_blocks();
            let tables: Vec<u64> = (0..count).map(|_| put(table)).collect::<Option<_>>()?;
            let bitmaps = blocks.into_iter().zip(inodes).zip(tables);
            self.places.extend(bitmaps.map(|((block_bitmap, inode_bitmap), table)| GroupMetadata {
                block_bitmap,
                inode_bitmap,
                table,
            }));
        }
        ranges.sort_by_key(|range| range.start);
        for range in ranges {
            match self.reserved.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.reserved.push(range),
            }
        }
        Some(())
    }

    /// The first block from `at` on where `count` blocks have no copy of a superblock between them.
    fn room(&self, at: u64, count: u64) -> u64 {
        let mut start = at;
        let mut group = start / GROUP;
        while group * GROUP < start + count {
            let copy_end = group * GROUP + self.head(group);
            if copy_end > start {
                start = copy_end;
            }
            group += 1;
        }
        start
    }

    /// Blocks of superblock, descriptors and room for growth at the start of a group.
    pub(super) fn head(&self, group: u64) -> u64 {
        if has_copy(group) { 1 + self.descriptor_blocks + self.spare } else { 0 }
    }

    pub(super) fn table_blocks(&self) -> u64 {
        self.inodes_per_group / PER_BLOCK
    }

    pub(super) fn inodes(&self) -> u64 {
        self.inodes_per_group * self.groups
    }

    /// Blocks for content.
    pub(super) fn free(&self) -> u64 {
        let used: u64 = self.reserved.iter().map(|range| range.end - range.start).sum();
        self.blocks.saturating_sub(used)
    }

    /// Blocks of a group: all but the last have the same number.
    pub(super) fn group_blocks(&self, group: u64) -> Range<u64> {
        group * GROUP..((group + 1) * GROUP).min(self.blocks)
    }

    /// The groups, apart from the first, with copies of the superblock.
    pub(super) fn copies(&self) -> impl Iterator<Item = u64> {
        (1..self.groups).filter(|group| has_copy(*group))
    }

    pub(super) fn reserved_within(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.reserved.partition_point(|range| range.end <= blocks.start);
        let (start, end) = (blocks.start, blocks.end);
        let rest = self.reserved.get(first..).unwrap_or_default().iter();
        rest.take_while(move |range| range.start < end)
            .map(move |range| range.start.max(start)..range.end.min(end))
    }
}

/// Whether a group has a copy of the superblock (`sparse_super`).
pub(super) fn has_copy(group: u64) -> bool {
    let power = |base: u64| {
        let mut value = base;
        while value < group {
            value *= base;
        }
        value == group
    };
    group <= 1 || power(3) || power(5) || power(7)
}

/// Blocks of the journal as mke2fs chooses them for a number of blocks.
pub(super) fn journal_blocks(blocks: u64) -> u64 {
    const TABLE: [(u64, u64); 8] = [
        (2048, 0),
        (32768, 1024),
        (262_144, 4096),
        (524_288, 8192),
        (4_194_304, 16384),
        (8_388_608, 32768),
        (16_777_216, 65536),
        (33_554_432, 131_072),
    ];
    TABLE.iter().find(|(limit, _)| blocks < *limit).map_or(262_144, |(_, size)| *size)
}

/// Takes blocks one after another, around those reserved.
#[derive(Debug)]
pub(super) struct Allocator<'g> {
    reserved: &'g [Range<u64>],
    /// The next block that may be free; all before it are used.
    pub(super) next: u64,
    end: u64,
}

impl<'g> Allocator<'g> {
    pub(super) fn new(geometry: &'g Geometry) -> Self {
        Self { reserved: &geometry.reserved, next: 0, end: geometry.blocks }
    }

    /// Up to `count` blocks in a row, at most 32768; `None` if there are no more.
    pub(super) fn take(&mut self, count: u64) -> Option<(u64, u16)> {
        while let Some((first, rest)) = self.reserved.split_first() {
            if first.start > self.next {
                break;
            }
            self.next = self.next.max(first.end);
            self.reserved = rest;
        }
        let limit = self.reserved.first().map_or(self.end, |range| range.start.min(self.end));
        let got = count.min(limit.saturating_sub(self.next)).min(GROUP);
        let start = self.next;
        self.next += got;
        (got > 0).then(|| (start, u16::try_from(got).unwrap_or(u16::MAX)))
    }
}

/// A bitmap of one block with the bits of ranges set, which are counted from `base`.
pub(super) fn bitmap(base: u64, ranges: impl Iterator<Item = Range<u64>>) -> Vec<u8> {
    let mut bits = vec![0u8; 4096];
    for range in ranges {
        let mut bit = range.start.saturating_sub(base);
        let end = range.end.saturating_sub(base).min(wide(bits.len()) * 8);
        while bit < end {
            let Some(byte) = bits.get_mut(crate::bytes::index(bit / 8)) else { break };
            if bit % 8 == 0 && end - bit >= 8 {
                *byte = 0xFF;
                bit += 8;
            } else {
                *byte |= 1 << low32(bit % 8);
                bit += 1;
            }
        }
    }
    bits
}
