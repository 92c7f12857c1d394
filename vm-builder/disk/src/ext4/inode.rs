//! Inodes and extent trees as bytes.

use super::attributes::Attributes;
use super::checksum::{crc, inode_seed};
use super::geometry::BLOCK;
use super::layout::{Layout, RESIZE, Region};
use super::survey::{FANOUT, FAST, Node, levels};
use crate::bytes::{high32, index, low16, low32, put, put16, put32, wide};
use crate::tree::{Inode, Kind, Time, Tree};

const EXTENTS: u32 = 0x80000;
/// Where the block map or extent tree is in an inode, and its length.
const MAP: usize = 40;
const MAP_LENGTH: usize = 60;
/// Least and greatest seconds: 34 bits from the least 32-bit number on.
const SECONDS: std::ops::RangeInclusive<i64> = -(1 << 31)..=(1 << 34) - (1 << 31) - 1;

/// Seconds as the low 32 bits, and two more with the nanoseconds.
fn time(time: Time) -> (u32, u32) {
    let clamped = time.seconds.clamp(*SECONDS.start(), *SECONDS.end());
    let bits = u64::from_le_bytes(clamped.to_le_bytes());
    let low = low32(bits);
    // How often 2³² goes into what is left above the low half taken as a signed number.
    let base = i64::from(i32::from_le_bytes(low.to_le_bytes()));
    let epoch = u64::from_le_bytes(((clamped - base) >> 32).to_le_bytes());
    let nanoseconds = if clamped == time.seconds { time.nanoseconds.min(999_999_999) } else { 0 };
    (low, (low32(epoch) & 3) | (nanoseconds << 2))
}

struct Fields {
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    links: u32,
    /// Blocks of 4 KiB with those of metadata.
    blocks: u64,
    flags: u32,
    attribute_block: u64,
    modified: Time,
    created: Time,
}

/// Fields as bytes, without map, attributes and sum.
fn encode(fields: &Fields) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let b = &mut bytes;
    let (seconds, extra) = time(fields.modified);
    let (created, created_extra) = time(fields.created);
    put16(b, 0x00, fields.mode);
    put16(b, 0x02, low16(u64::from(fields.uid)));
    put32(b, 0x04, low32(fields.size));
    put32(b, 0x08, seconds);
    put32(b, 0x0C, seconds);
    put32(b, 0x10, seconds);
    put16(b, 0x18, low16(u64::from(fields.gid)));
    put16(b, 0x1A, low16(u64::from(fields.links)));
    let sectors = fields.blocks * (BLOCK / 512);
    put32(b, 0x1C, low32(sectors));
    put32(b, 0x20, fields.flags);
    put32(b, 0x68, low32(fields.attribute_block));
    put32(b, 0x6C, high32(fields.size));
    put16(b, 0x74, low16(sectors >> 32));
    put16(b, 0x76, low16(fields.attribute_block >> 32));
    put16(b, 0x78, low16(u64::from(fields.uid >> 16)));
    put16(b, 0x7A, low16(u64::from(fields.gid >> 16)));
    put16(b, 0x80, 32);
    put32(b, 0x84, extra);
    put32(b, 0x88, extra);
    put32(b, 0x8C, extra);
    put32(b, 0x90, created);
    put32(b, 0x94, created_extra);
    bytes
}

/// Sets the sum of an inode.
fn seal(bytes: &mut [u8], ino: u32, seed: u32) {
    let sum = crc(inode_seed(seed, ino), bytes);
    put16(bytes, 0x7C, low16(u64::from(sum)));
    put16(bytes, 0x82, low16(u64::from(sum >> 16)));
}

/// Head of a node of an extent tree.
fn head(into: &mut [u8], entries: usize, most: u64, depth: usize) {
    put16(into, 0, 0xF30A);
    put16(into, 2, low16(wide(entries)));
    put16(into, 4, low16(most));
    put16(into, 6, low16(wide(depth)));
}

fn leaf(into: &mut [u8], at: usize, extent: &Region) {
    put32(into, at, extent.logical);
    put16(into, at + 4, extent.count);
    put16(into, at + 6, low16(extent.start >> 32));
    put32(into, at + 8, low32(extent.start));
}

/// An entry that leads to a block.
fn branch(into: &mut [u8], at: usize, logical: u32, block: u64) {
    put32(into, at, logical);
    put32(into, at + 4, low32(block));
    put16(into, at + 8, low16(block >> 32));
}

impl Layout<'_> {
    /// An inode as 256 bytes; zeros if it is not used.
    pub(super) fn inode(&self, tree: &Tree, created: Time, seed: u32, ino: u32) -> Vec<u8> {
        if ino == RESIZE && self.growth > 0 {
            return self.resize_inode(created, seed);
        }
        let Some(node) = self.node(ino) else { return vec![0; 256] };
        let inode = node.id.and_then(|id| tree.get(id));
        let Some(inode) = inode else {
            let (mode, links) = if node.name.is_empty() { (0o100_600, 1) } else { (0o040_700, node.links) };
            let mut bytes = encode(&Fields {
                mode,
                uid: 0,
                gid: 0,
                size: node.blocks * BLOCK,
                links,
                blocks: self.all_blocks(node),
                flags: EXTENTS,
                attribute_block: 0,
                modified: created,
                created,
            });
            put(&mut bytes, MAP, &self.map(node));
            seal(&mut bytes, ino, seed);
            return bytes;
        };
        let mut bytes = encode(&self.fields(node, inode, created));
        match &inode.kind {
            Kind::Symlink(target) if target.len() <= FAST => put(&mut bytes, MAP, target),
            Kind::Directory(_) | Kind::File(_) | Kind::Symlink(_) => put(&mut bytes, MAP, &self.map(node)),
            Kind::CharacterDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                let (old, new) = device(*major, *minor);
                put32(&mut bytes, MAP, old);
                put32(&mut bytes, MAP + 4, new);
            }
            Kind::Fifo | Kind::Socket => {}
        }
        if let Ok(attributes) = Attributes::new(&inode.metadata.xattrs, &String::new) {
            put(&mut bytes, 160, &attributes.inline());
        }
        seal(&mut bytes, ino, seed);
        bytes
    }

    fn all_blocks(&self, node: &Node<'_>) -> u64 {
        let trees: u64 = self.trees(node).iter().map(|region| u64::from(region.count)).sum();
        node.blocks + trees + u64::from(node.attributes)
    }

    /// What the fields of an inode of the tree are made of.
    fn fields(&self, node: &Node<'_>, inode: &Inode, created: Time) -> Fields {
        let (kind, size, flags) = match &inode.kind {
            Kind::Directory(_) => (0o040_000, node.blocks * BLOCK, EXTENTS),
            Kind::File(content) => (0o100_000, content.length, EXTENTS),
            Kind::Symlink(target) => {
                let flags = if target.len() > FAST { EXTENTS } else { 0 };
                (0o120_000, wide(target.len()), flags)
            }
            Kind::CharacterDevice { .. } => (0o020_000, 0, 0),
            Kind::BlockDevice { .. } => (0o060_000, 0, 0),
            Kind::Fifo => (0o010_000, 0, 0),
            Kind::Socket => (0o140_000, 0, 0),
        };
        let metadata = &inode.metadata;
        Fields {
            mode: kind | (metadata.mode & 0o7777),
            uid: metadata.uid,
            gid: metadata.gid,
            size,
            // A directory with more subdirectories than can be counted has 1 (`dir_nlink`).
            links: if node.links > 65000 { 1 } else { node.links },
            blocks: self.all_blocks(node),
            flags,
            attribute_block: node.attribute_block,
            modified: metadata.modified,
            created,
        }
    }

    /// The inode that owns the room behind the descriptors: a file of one doubly indirect block.
    fn resize_inode(&self, created: Time, seed: u32) -> Vec<u8> {
        let pointers = BLOCK / 4;
        let copies = wide(self.geometry.copies().count());
        let mut bytes = encode(&Fields {
            mode: 0o100_600,
            uid: 0,
            gid: 0,
            size: (pointers * pointers + pointers + 12) * BLOCK,
            links: 1,
            blocks: 1 + self.geometry.spare * (1 + copies),
            flags: 0,
            attribute_block: 0,
            modified: created,
            created,
        });
        put32(&mut bytes, MAP + 13 * 4, low32(self.growth));
        seal(&mut bytes, RESIZE, seed);
        bytes
    }

    /// The extent tree's root, as it is in the inode.
    pub(super) fn map(&self, node: &Node<'_>) -> Vec<u8> {
        let mut map = vec![0; MAP_LENGTH];
        let extents = self.extents(node);
        let levels = levels(wide(extents.len()));
        let Some(top) = levels.last() else {
            head(&mut map, extents.len(), 4, 0);
            for (number, extent) in extents.iter().enumerate() {
                leaf(&mut map, 12 + 12 * number, extent);
            }
            return map;
        };
        head(&mut map, index(*top), 4, levels.len());
        self.branches(&mut map, node, &levels, levels.len(), 0);
        map
    }

    /// Entries that lead to the blocks of the level below `depth`, from `first` on.
    fn branches(&self, into: &mut [u8], node: &Node<'_>, levels: &[u64], depth: usize, first: u64) {
        let extents = self.extents(node);
        let below = depth.saturating_sub(1);
        let before: u64 = levels.iter().take(below).sum();
        let count = levels.get(below).copied().unwrap_or(0);
        let reach = FANOUT.saturating_pow(low32(wide(depth)));
        for (number, child) in (first..count.min(first + FANOUT)).enumerate() {
            let logical = extents.get(index(child * reach)).map_or(0, |extent| extent.logical);
            branch(into, 12 + 12 * number, logical, self.tree_block(node, before + child));
        }
    }

    /// Where a block of an extent tree is, by its number from the leaves up.
    fn tree_block(&self, node: &Node<'_>, number: u64) -> u64 {
        let within = |region: &&Region| number < u64::from(region.logical) + u64::from(region.count);
        let region = self.trees(node).iter().find(within);
        region.map_or(0, |region| region.start + number - u64::from(region.logical))
    }

    /// A block of an extent tree, by its number from the leaves up.
    pub(super) fn extent_block(&self, node: &Node<'_>, ino: u32, number: u64, seed: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        let extents = self.extents(node);
        let levels = levels(wide(extents.len()));
        let (mut depth, mut at) = (0, number);
        while let Some(count) = levels.get(depth).filter(|count| at >= **count) {
            at -= count;
            depth += 1;
        }
        let first = at * FANOUT;
        if depth == 0 {
            let some = extents.iter().skip(index(first)).take(index(FANOUT));
            let mut entries = 0;
            for (number, extent) in some.enumerate() {
                leaf(&mut block, 12 + 12 * number, extent);
                entries = number + 1;
            }
            head(&mut block, entries, FANOUT, 0);
        } else {
            let below = levels.get(depth - 1).copied().unwrap_or(0);
            let entries = below.saturating_sub(first).min(FANOUT);
            head(&mut block, index(entries), FANOUT, depth);
            self.branches(&mut block, node, &levels, depth, first);
        }
        let sum = crc(inode_seed(seed, ino), block.get(..4092).unwrap_or_default());
        put32(&mut block, 4092, sum);
        block
    }
}

/// Numbers of a device: in one byte each where they fit, otherwise as 12 and 20 bits.
fn device(major: u32, minor: u32) -> (u32, u32) {
    if major < 256 && minor < 256 {
        return ((major << 8) | minor, 0);
    }
    (0, (minor & 0xFF) | (major << 8) | ((minor & !0xFF) << 12))
}
