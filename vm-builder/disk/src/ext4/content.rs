//! Reading: finds what a block holds and makes it.

use std::io;

use super::FileSystem;
use super::attributes::Attributes;
use super::checksum::inode_seed;
use super::directory::{self, Block};
use super::geometry::{BLOCK, GROUP, PER_BLOCK};
use super::layout::{Holds, JOURNAL, Region};
use super::superblock::{Fixed, Metadata, block_bitmap, inode_bitmap, superblock_of};
use super::survey::{self, ino};
use crate::bytes::{index, low32, put, put32, wide};
use crate::image::{Image, within};
use crate::tree::{Content, InodeId, Kind, Origin};

/// What begins at or after a block, and how far it goes.
#[derive(Clone, Copy, Debug)]
enum Found {
    Hole(u64),
    Region(Region),
    Fixed(Fixed),
}

impl FileSystem<'_> {
    fn find(&self, block: u64) -> Found {
        let regions = &self.layout.regions;
        let after = regions.partition_point(|region| region.start <= block);
        if let Some(region) = after.checked_sub(1).and_then(|at| regions.get(at)) {
            // Of the journal only the first block is not zero.
            let journal = region.ino == JOURNAL && region.holds == Holds::Content;
            let written = match (journal, region.logical) {
                (true, 0) => 1,
                (true, _) => 0,
                (false, _) => u64::from(region.count),
            };
            if block < region.start + written {
                return Found::Region(*region);
            }
        }
        let next = self.fixed.partition_point(|fixed| fixed.start <= block);
        if let Some(fixed) = next.checked_sub(1).and_then(|at| self.fixed.get(at))
            && block < fixed.start + fixed.count
        {
            return Found::Fixed(*fixed);
        }
        let region = regions.get(after).map_or(u64::MAX, |region| region.start);
        Found::Hole(self.fixed.get(next).map_or(u64::MAX, |fixed| fixed.start).min(region))
    }

    fn fixed_block(&self, fixed: &Fixed, block: u64) -> Vec<u8> {
        let layout = &self.layout;
        let number = block - fixed.start;
        match fixed.holds {
            Metadata::Superblock => {
                let mut bytes = vec![0; 4096];
                let at = if fixed.group == 0 { 1024 } else { 0 };
                put(&mut bytes, at, &superblock_of(&self.superblock, fixed.group));
                bytes
            }
            Metadata::Descriptors => {
                let start = index(number * BLOCK);
                self.descriptors.get(start..start + 4096).unwrap_or_default().to_vec()
            }
            Metadata::Growth => {
                let mut bytes = vec![0; 4096];
                for (at, group) in layout.geometry.copies().enumerate() {
                    put32(&mut bytes, at * 4, low32(group * GROUP + block));
                }
                bytes
            }
            Metadata::BlockBitmap => block_bitmap(layout, fixed.group),
            Metadata::InodeBitmap => inode_bitmap(layout, fixed.group),
            Metadata::InodeTable => {
                let first = fixed.group * layout.geometry.inodes_per_group + number * PER_BLOCK + 1;
                let numbers = first..first + PER_BLOCK;
                numbers.flat_map(|ino| layout.inode(self.tree, self.created, self.seed, low32(ino))).collect()
            }
        }
    }

    /// A block of a region that is not content of a file.
    fn region_block(&self, region: &Region, block: u64) -> Vec<u8> {
        let number = block - region.start + u64::from(region.logical);
        if region.holds == Holds::Growth {
            return self.growth_block();
        }
        let Some(node) = self.layout.node(region.ino) else { return vec![0; 4096] };
        let inode = node.id.and_then(|id| self.tree.get(id));
        match region.holds {
            Holds::Tree => self.layout.extent_block(node, region.ino, number, self.seed),
            Holds::Attributes => {
                let attributes =
                    inode.and_then(|inode| Attributes::new(&inode.metadata.xattrs, &String::new).ok());
                attributes.map_or_else(Vec::new, |attributes| attributes.block(block, self.seed))
            }
            Holds::Content if region.ino == JOURNAL => journal(node.blocks),
            _ => match inode.map(|inode| &inode.kind) {
                Some(Kind::Symlink(target)) => target.clone(),
                _ => self.directory_block(region.ino, number),
            },
        }
    }

    /// The block that lists the room for growth: at the place each would have among the descriptors.
    fn growth_block(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let geometry = &self.layout.geometry;
        let pointers = BLOCK / 4;
        for number in 0..geometry.spare {
            let at = (geometry.descriptor_blocks + number) % pointers;
            put32(&mut bytes, index(at * 4), low32(1 + geometry.descriptor_blocks + number));
        }
        bytes
    }

    fn directory_block(&self, number: u32, logical: u64) -> Vec<u8> {
        let mut block = Block::new();
        let seed = inode_seed(self.seed, number);
        let survey = &self.layout.survey;
        let (Some(node), Some(at)) = (self.layout.node(number), survey::node(number)) else {
            return block.finish(seed);
        };
        let first: &[u8] = match logical.checked_sub(1) {
            None => {
                block.push(number, 2, b".");
                block.push(ino(node.parent), 2, b"..");
                b""
            }
            Some(before) => {
                let start = survey.starts.get(&at).and_then(|starts| starts.get(index(before)));
                match start {
                    Some(start) => start,
                    None => return block.finish(seed),
                }
            }
        };
        // What we add to the root comes first; the walk gave it the first number.
        if number == 2
            && logical == 0
            && let Some(lost) = survey.nodes.get(1).filter(|node| node.id.is_none())
        {
            block.push(ino(1), 2, lost.name);
        }
        if let Some(names) = node.id.and_then(|id| self.tree.names(id)) {
            let ino_of = |id: InodeId| survey.numbers.get(index(u64::from(id.0))).copied().unwrap_or(0);
            directory::fill(&mut block, self.tree, names, first, &ino_of);
        }
        block.finish(seed)
    }

    fn file(&self, content: &Content, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset + wide(into.len());
        let first = content.pieces.partition_point(|piece| piece.at + piece.length <= offset);
        let mut done = offset;
        for piece in content.pieces.iter().skip(first).take_while(|piece| piece.at < end) {
            let start = piece.at.max(offset);
            let stop = (piece.at + piece.length).min(end);
            let (Some(gap), Some(part)) = (
                into.get_mut(index(done - offset)..index(start - offset)).map(|gap| gap.fill(0)),
                into.get_mut(index(start - offset)..index(stop - offset)),
            ) else {
                break;
            };
            let () = gap;
            match &piece.origin {
                Origin::Memory(bytes) => {
                    let from = index(start - piece.at);
                    let bytes = bytes.get(from..).and_then(|rest| rest.get(..part.len()));
                    let bytes = bytes.ok_or(io::ErrorKind::UnexpectedEof)?;
                    part.copy_from_slice(bytes);
                }
                Origin::Source { source, offset } => {
                    self.sources.read_exact_at(*source, offset + (start - piece.at), part)?;
                }
            }
            done = stop;
        }
        if let Some(rest) = into.get_mut(index(done - offset)..) {
            rest.fill(0);
        }
        Ok(())
    }

    /// Reads from a region on, as far as it goes; the number of bytes.
    fn region(&self, region: &Region, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let node = self.layout.node(region.ino);
        let inode = node.and_then(|node| node.id).and_then(|id| self.tree.get(id));
        if region.holds == Holds::Content
            && let Some(Kind::File(content)) = inode.map(|inode| &inode.kind)
        {
            let end = (region.start + u64::from(region.count)) * BLOCK;
            let count = index((end - offset).min(wide(into.len())));
            let at = u64::from(region.logical) * BLOCK + (offset - region.start * BLOCK);
            let part = into.get_mut(..count).unwrap_or_default();
            self.file(content, at, part).map_err(|error| {
                let path = survey::path(&self.layout.survey.nodes, survey::node(region.ino).unwrap_or(0));
                io::Error::new(error.kind(), format!("{path}: {error}"))
            })?;
            return Ok(count);
        }
        Ok(copy(&self.region_block(region, offset / BLOCK), offset, into))
    }
}

/// Copies what is in a block from an offset on; the number of bytes.
fn copy(block: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let within = index(offset % BLOCK);
    let count = into.len().min(4096 - within);
    let from = block.get(within..).unwrap_or_default();
    if let Some(part) = into.get_mut(..count) {
        part.fill(0);
        part.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
    count
}

/// The first block of an empty journal: all numbers are big-endian.
fn journal(blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let fields = [(0, 0xC03B_3998), (4, 4), (12, 4096), (16, low32(blocks)), (20, 1), (24, 1), (64, 1)];
    for (at, value) in fields {
        put(&mut bytes, at, &u32::to_be_bytes(value));
    }
    bytes
}

impl Image for FileSystem<'_> {
    fn length(&self) -> u64 {
        self.layout.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        within(self.length(), offset, into.len())?;
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let count = match self.find(at / BLOCK) {
                Found::Hole(end) => {
                    let count = index(end.saturating_mul(BLOCK) - at).min(rest.len());
                    rest.get_mut(..count).unwrap_or_default().fill(0);
                    count
                }
                Found::Region(region) => self.region(&region, at, rest)?,
                Found::Fixed(fixed) => copy(&self.fixed_block(&fixed, at / BLOCK), at, rest),
            };
            at += wide(count);
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        match self.find(offset / BLOCK) {
            Found::Hole(end) => end.saturating_mul(BLOCK) >= offset.saturating_add(length),
            Found::Region(_) | Found::Fixed(_) => false,
        }
    }
}
