//! Superblock, group descriptors and bitmaps as bytes.

use super::checksum::crc;
use super::geometry::{BLOCK, DESCRIPTOR, FLEX_LOG, GROUP, Geometry, GroupMetadata, bitmap};
use super::layout::{JOURNAL, Layout};
use super::options::Options;
use super::survey::{FIRST, node};
use crate::bytes::{high32, index, low16, low32, put, put16, put32};
use crate::tree::Tree;

/// Bytes of the descriptors and of the primary superblock.
pub(super) type Tables = (Vec<u8>, Vec<u8>);

pub(super) fn used_inodes(layout: &Layout<'_>, group: u64) -> u64 {
    let per_group = layout.geometry.inodes_per_group;
    layout.used_inodes().saturating_sub(group * per_group).min(per_group)
}

/// The inode bitmap of a group: inodes in use, and what is beyond the last inode.
pub(super) fn inode_bitmap(layout: &Layout<'_>, group: u64) -> Vec<u8> {
    let used = used_inodes(layout, group);
    bitmap(0, [0..used, layout.geometry.inodes_per_group..BLOCK * 8].into_iter())
}

/// The block bitmap of a group: metadata, content, and what is beyond the last block.
pub(super) fn block_bitmap(layout: &Layout<'_>, group: u64) -> Vec<u8> {
    let blocks = layout.geometry.group_blocks(group);
    let content = blocks.start..layout.frontier.clamp(blocks.start, blocks.end);
    let beyond = blocks.end..(group + 1) * GROUP;
    let reserved = layout.geometry.reserved_within(&blocks);
    bitmap(blocks.start, reserved.chain([content, beyond]))
}

fn zeros(bits: &[u8]) -> u64 {
    bits.iter().map(|byte| u64::from(byte.count_zeros())).sum()
}

/// Makes descriptors and superblock.
pub(super) fn tables(layout: &Layout<'_>, tree: &Tree, options: &Options, seed: u32) -> Tables {
    let geometry = &layout.geometry;
    let mut directories = vec![0u64; index(geometry.groups)];
    for number in 0..layout.used_inodes() + 1 {
        let found = layout.node(low32(number)).filter(|_| node(low32(number)).is_some());
        let Some(found) = found else { continue };
        let inode = found.id.and_then(|id| tree.get(id));
        let is = inode.is_none_or(|inode| matches!(inode.kind, crate::tree::Kind::Directory(_)));
        let group = number.saturating_sub(1) / geometry.inodes_per_group;
        if let Some(count) = directories.get_mut(index(group)).filter(|_| is) {
            *count += 1;
        }
    }
    let mut all = vec![0; index(geometry.descriptor_blocks * BLOCK)];
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for (number, place) in (0u64..).zip(&geometry.places) {
        let blocks = block_bitmap(layout, number);
        let free = zeros(&blocks);
        let unused = geometry.inodes_per_group - used_inodes(layout, number);
        let dirs = directories.get(index(number)).copied().unwrap_or(0);
        free_blocks += free;
        free_inodes += unused;
        let group = Group { number, place, free, unused, dirs };
        let descriptor = group.encode(layout, &blocks, seed);
        put(&mut all, index(number * DESCRIPTOR), &descriptor);
    }
    let superblock = superblock(layout, options, free_blocks, free_inodes);
    (all, superblock)
}

struct Group<'p> {
    number: u64,
    place: &'p GroupMetadata,
    free: u64,
    unused: u64,
    dirs: u64,
}

impl Group<'_> {
    fn encode(&self, layout: &Layout<'_>, blocks: &[u8], seed: u32) -> Vec<u8> {
        let mut bytes = vec![0; index(DESCRIPTOR)];
        let b = &mut bytes;
        let used = layout.geometry.inodes_per_group - self.unused;
        let places = [self.place.block_bitmap, self.place.inode_bitmap, self.place.table];
        for (number, place) in places.into_iter().enumerate() {
            put32(b, number * 4, low32(place));
            put32(b, 0x20 + number * 4, high32(place));
        }
        put16(b, 0x0C, low16(self.free));
        put16(b, 0x0E, low16(self.unused));
        put16(b, 0x10, low16(self.dirs));
        // The table is zeroed; a bitmap of a group without inodes need not be read.
        put16(b, 0x12, if used == 0 { 0x5 } else { 0x4 });
        put16(b, 0x1C, low16(self.unused));
        let sum = crc(seed, blocks);
        put16(b, 0x18, low16(u64::from(sum)));
        put16(b, 0x38, low16(u64::from(sum >> 16)));
        if used > 0 {
            let inodes = inode_bitmap(layout, self.number);
            let count = index(layout.geometry.inodes_per_group / 8);
            let sum = crc(seed, inodes.get(..count).unwrap_or_default());
            put16(b, 0x1A, low16(u64::from(sum)));
            put16(b, 0x3A, low16(u64::from(sum >> 16)));
        }
        let sum = crc(crc(seed, &low32(self.number).to_le_bytes()), b);
        put16(b, 0x1E, low16(u64::from(sum)));
        bytes
    }
}

/// The primary superblock, 1024 bytes.
fn superblock(layout: &Layout<'_>, options: &Options, free_blocks: u64, free_inodes: u64) -> Vec<u8> {
    let geometry = &layout.geometry;
    let mut bytes = vec![0; 1024];
    let b = &mut bytes;
    let created = u64::from_le_bytes(options.created.seconds.max(0).to_le_bytes());
    put32(b, 0x00, low32(geometry.inodes()));
    put32(b, 0x04, low32(geometry.blocks));
    put32(b, 0x0C, low32(free_blocks));
    put32(b, 0x10, low32(free_inodes));
    // Blocks of 1024 << 2, and as many clusters.
    put32(b, 0x18, 2);
    put32(b, 0x1C, 2);
    put32(b, 0x20, low32(GROUP));
    put32(b, 0x24, low32(GROUP));
    put32(b, 0x28, low32(geometry.inodes_per_group));
    put32(b, 0x30, low32(created));
    put16(b, 0x36, u16::MAX);
    put16(b, 0x38, 0xEF53);
    // Clean; continue after errors.
    put16(b, 0x3A, 1);
    put16(b, 0x3C, 1);
    put32(b, 0x40, low32(created));
    put32(b, 0x4C, 1);
    put32(b, 0x54, FIRST);
    put16(b, 0x58, 256);
    features(b, layout);
    put(b, 0x68, &options.uuid);
    put(b, 0x78, options.label.as_bytes());
    put16(b, 0xCE, low16(geometry.spare));
    if let Some(journal) = &layout.journal {
        put32(b, 0xE0, JOURNAL);
        let size = journal.blocks * BLOCK;
        put(b, 0x10C, &layout.map(journal));
        put32(b, 0x10C + 60, high32(size));
        put32(b, 0x10C + 64, low32(size));
        put(b, 0xFD, &[1]);
    }
    put(b, 0xEC, &options.hash_seed);
    // Directories are hashed with half MD4, bytes taken as unsigned.
    put(b, 0xFC, &[1]);
    put16(b, 0xFE, low16(DESCRIPTOR));
    // user_xattr and acl.
    put32(b, 0x100, 0xC);
    put32(b, 0x108, low32(created));
    put16(b, 0x15C, 32);
    put16(b, 0x15E, 32);
    put32(b, 0x160, 2);
    put(b, 0x174, &[FLEX_LOG, 1]);
    put(b, 0x30, &low32(created).to_le_bytes());
    put(b, 0x274, &time_high(created, [0; 4]));
    bytes
}

/// Bits above 32 of the times of change, creation and check.
fn time_high(created: u64, mut into: [u8; 4]) -> [u8; 4] {
    let [_, _, _, _, high, ..] = created.to_le_bytes();
    put(&mut into, 0, &[high, 0, high, high]);
    into
}

fn features(b: &mut [u8], layout: &Layout<'_>) {
    const EXT_ATTR: u32 = 0x8;
    const DIR_INDEX: u32 = 0x20;
    const JOURNAL: u32 = 0x4;
    const RESIZE: u32 = 0x10;
    let journal = if layout.journal.is_some() { JOURNAL } else { 0 };
    let resize = if layout.growth > 0 { RESIZE } else { 0 };
    put32(b, 0x5C, EXT_ATTR | DIR_INDEX | journal | resize);
    // filetype, extents, 64bit, flex_bg.
    put32(b, 0x60, 0x2 | 0x40 | 0x80 | 0x200);
    // sparse_super, large_file, huge_file, dir_nlink, extra_isize, metadata_csum.
    put32(b, 0x64, 0x1 | 0x2 | 0x8 | 0x20 | 0x40 | 0x400);
}

pub(super) fn superblock_of(primary: &[u8], group: u64) -> Vec<u8> {
    let mut bytes = primary.to_vec();
    put16(&mut bytes, 0x5A, low16(group));
    let sum = crc(u32::MAX, bytes.get(..0x3FC).unwrap_or_default());
    put32(&mut bytes, 0x3FC, sum);
    bytes
}

/// What of a geometry is metadata that is not all zeros, in the order of blocks.
pub(super) fn fixed(layout: &Layout<'_>) -> Vec<Fixed> {
    let geometry: &Geometry = &layout.geometry;
    let mut all = Vec::new();
    let mut add = |start, count, holds, group| {
        if count > 0 {
            all.push(Fixed { start, count, holds, group });
        }
    };
    for group in std::iter::once(0).chain(geometry.copies()) {
        let start = group * GROUP;
        add(start, 1, Metadata::Superblock, group);
        add(start + 1, geometry.descriptor_blocks, Metadata::Descriptors, group);
    }
    if geometry.copies().next().is_some() {
        add(1 + geometry.descriptor_blocks, geometry.spare, Metadata::Growth, 0);
    }
    for (group, place) in (0u64..).zip(&geometry.places) {
        let used = used_inodes(layout, group);
        let blocks = geometry.group_blocks(group);
        let reserved = geometry.reserved_within(&blocks).next().is_some();
        let whole = blocks.end - blocks.start == GROUP;
        if reserved || !whole || layout.frontier > blocks.start {
            add(place.block_bitmap, 1, Metadata::BlockBitmap, group);
        }
        if used > 0 {
            add(place.inode_bitmap, 1, Metadata::InodeBitmap, group);
        }
        add(place.table, used.div_ceil(16), Metadata::InodeTable, group);
    }
    all.sort_by_key(|fixed| fixed.start);
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metadata {
    Superblock,
    Descriptors,
    Growth,
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

/// Blocks of metadata in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    pub(super) start: u64,
    pub(super) count: u64,
    pub(super) holds: Metadata,
    pub(super) group: u64,
}
