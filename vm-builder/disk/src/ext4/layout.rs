//! Gives every inode its blocks, in the order of paths.

use super::error::Error;
use super::geometry::{Allocator, BLOCK, Geometry, journal_blocks};
use super::options::Options;
use super::survey::{Node, Survey, ino, runs, tree_blocks};
use crate::bytes::{index, low32, wide};
use crate::tree::{Kind, Tree};

pub(super) const JOURNAL: u32 = 8;
/// Inode of the room for growth.
pub(super) const RESIZE: u32 = 7;
const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Content,
    Tree,
    Attributes,
    Growth,
}

/// Blocks in a row that belong to an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    /// First block in the inode, or number in the extent tree.
    pub(super) logical: u32,
    pub(super) ino: u32,
    /// Number of blocks, at most 32768.
    pub(super) count: u16,
    pub(super) holds: Holds,
}

#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) geometry: Geometry,
    pub(super) survey: Survey<'a>,
    /// The journal, if there is one.
    pub(super) journal: Option<Node<'a>>,
    /// The block that lists the room for growth; 0 if there is none.
    pub(super) growth: u64,
    /// Ascending.
    pub(super) regions: Vec<Region>,
    /// All content lies before this block.
    pub(super) frontier: u64,
    /// Size of the image in bytes.
    pub(super) length: u64,
}

/// Number of inodes that a tree needs.
fn inodes(survey: &Survey<'_>) -> u64 {
    u64::from(ino(low32(wide(survey.nodes.len()))))
}

/// The least number of blocks, in steps of 1 MiB, with room for so many bytes more.
fn least(survey: &Survey<'_>, margin: u64) -> Result<u64, Error> {
    let step = MIB / BLOCK;
    let payload = survey.payload + margin.div_ceil(BLOCK) + 1;
    let mut blocks = payload.next_multiple_of(step);
    let needed = inodes(survey);
    loop {
        let more = match Geometry::new(blocks, needed) {
            Ok(Some(geometry)) => {
                let journal = journal_blocks(blocks);
                let want = payload + journal + tree_blocks(journal.div_ceil(1 << 15));
                if geometry.free() >= want {
                    return Ok(blocks);
                }
                want - geometry.free()
            }
            Ok(None) => blocks / 16,
            Err(Error::TooManyInodes { .. }) => blocks / 4,
            Err(error) => return Err(error),
        };
        blocks += more.max(1).next_multiple_of(step);
    }
}

impl<'a> Layout<'a> {
    /// Lays out what a survey found.
    pub(super) fn new(tree: &'a Tree, survey: Survey<'a>, options: &Options) -> Result<Self, Error> {
        if let Some(size) = options.size {
            let too_small = |needed| Error::DoesNotFit { size, needed };
            if !(MIB..=16 << 40).contains(&size) {
                return Err(Error::Size(size));
            }
            let blocks = (size / BLOCK).min(u64::from(u32::MAX));
            let Some(geometry) = Geometry::new(blocks, inodes(&survey))? else {
                return Err(too_small(least(&survey, 0)? * BLOCK));
            };
            let mut survey = Some(survey);
            return match Self::place(tree, geometry, &mut survey, size) {
                Some(layout) => Ok(layout),
                None => {
                    let survey = survey.as_ref().map(|survey| least(survey, 0));
                    let needed = survey.transpose()?.unwrap_or(0) * BLOCK;
                    // Content cut up by metadata may need a few blocks more than were counted.
                    Err(too_small(needed.max((size + 1).next_multiple_of(MIB))))
                }
            };
        }
        let mut blocks = least(&survey, options.margin)?;
        let mut survey = Some(survey);
        loop {
            let found = survey.as_ref().map(|survey| Geometry::new(blocks, inodes(survey)));
            if let Some(geometry) = found.transpose()?.flatten()
                && let Some(layout) = Self::place(tree, geometry, &mut survey, blocks * BLOCK)
            {
                return Ok(layout);
            }
            blocks += MIB / BLOCK;
        }
    }

    /// Gives blocks to all nodes; `None`, and the survey stays, if there are not enough.
    fn place(
        tree: &'a Tree,
        geometry: Geometry,
        survey: &mut Option<Survey<'a>>,
        length: u64,
    ) -> Option<Self> {
        let mut nodes = survey.as_ref()?.nodes.clone();
        let mut regions = Vec::with_capacity(nodes.len());
        let mut allocator = Allocator::new(&geometry);
        let mut placer = Placer { allocator: &mut allocator, regions: &mut regions };
        let mut growth = 0;
        if geometry.spare > 0 {
            growth = placer.one(RESIZE, Holds::Growth)?;
        }
        let mut journal = None;
        let count = journal_blocks(geometry.blocks);
        if count > 0 {
            let mut node = Node::new(None, 0, b"");
            node.blocks = count;
            placer.node(&mut node, JOURNAL, std::iter::once((0, count)))?;
            journal = Some(node);
        }
        for (number, node) in nodes.iter_mut().enumerate() {
            let ino = ino(low32(wide(number)));
            let content = node.id.and_then(|id| tree.get(id)).map(|inode| &inode.kind);
            match content {
                Some(Kind::File(content)) => placer.node(node, ino, runs(content))?,
                _ => {
                    let blocks = node.blocks;
                    let run = (blocks > 0).then_some((0, blocks));
                    placer.node(node, ino, run.into_iter())?;
                }
            }
        }
        let frontier = allocator.next;
        let mut survey = survey.take()?;
        survey.nodes = nodes;
        regions.shrink_to_fit();
        Some(Self { geometry, survey, journal, growth, regions, frontier, length })
    }
}

struct Placer<'p, 'g> {
    allocator: &'p mut Allocator<'g>,
    regions: &'p mut Vec<Region>,
}

impl Placer<'_, '_> {
    /// A single block.
    fn one(&mut self, ino: u32, holds: Holds) -> Option<u64> {
        let (start, count) = self.allocator.take(1)?;
        self.regions.push(Region { start, logical: 0, ino, count, holds });
        Some(start)
    }

    /// Blocks in a row where possible; the number of regions.
    fn many(&mut self, ino: u32, holds: Holds, first: u64, count: u64) -> Option<u32> {
        let (mut logical, mut left, mut regions) = (first, count, 0);
        while left > 0 {
            let (start, got) = self.allocator.take(left)?;
            self.regions.push(Region { start, logical: low32(logical), ino, count: got, holds });
            logical += u64::from(got);
            left -= u64::from(got);
            regions += 1;
        }
        Some(regions)
    }

    /// All blocks of an inode.
    fn node(&mut self, node: &mut Node<'_>, ino: u32, runs: impl Iterator<Item = (u64, u64)>) -> Option<()> {
        node.first = u32::try_from(self.regions.len()).ok()?;
        node.extents = 0;
        for (first, count) in runs {
            node.extents += self.many(ino, Holds::Content, first, count)?;
        }
        node.trees = self.many(ino, Holds::Tree, 0, tree_blocks(u64::from(node.extents)))?;
        if node.attributes {
            node.attribute_block = self.one(ino, Holds::Attributes)?;
        }
        Some(())
    }
}

impl Layout<'_> {
    /// The node of an inode, if it has blocks or an entry.
    pub(super) fn node(&self, ino: u32) -> Option<&Node<'_>> {
        if ino == JOURNAL {
            return self.journal.as_ref();
        }
        self.survey.nodes.get(index(u64::from(super::survey::node(ino)?)))
    }

    pub(super) fn extents(&self, node: &Node<'_>) -> &[Region] {
        let first = index(u64::from(node.first));
        let count = index(u64::from(node.extents));
        self.regions.get(first..).and_then(|rest| rest.get(..count)).unwrap_or_default()
    }

    pub(super) fn trees(&self, node: &Node<'_>) -> &[Region] {
        let first = index(u64::from(node.first) + u64::from(node.extents));
        let count = index(u64::from(node.trees));
        self.regions.get(first..).and_then(|rest| rest.get(..count)).unwrap_or_default()
    }

    /// Number of inodes in use, which are the first ones.
    pub(super) fn used_inodes(&self) -> u64 {
        // `ino` of the number of nodes is one more than the last.
        inodes(&self.survey) - 1
    }
}
