//! The walk over a tree that numbers inodes in the order of paths, checks every limit, and counts blocks.

use std::collections::BTreeMap;

use super::attributes::Attributes;
use super::directory;
use super::error::Error;
use super::geometry::BLOCK;
use crate::bytes::{index, wide};
use crate::tree::{Content, Inode, InodeId, Kind, Tree};

/// First inode that is not reserved; the root is 2.
pub(super) const FIRST: u32 = 11;
/// Name of the directory that repairs put files into.
const LOST: &[u8] = b"lost+found";
/// Blocks of an empty `lost+found`, so that a repair has room without allocating.
pub(super) const LOST_BLOCKS: u64 = 4;
/// Longest symbolic link that fits into an inode.
pub(super) const FAST: usize = 59;
/// Extents of a block of an extent tree.
pub(super) const FANOUT: u64 = 340;
/// Greatest number of hard links.
const LINKS: u32 = 65000;

#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    /// What of the tree; `None` for what we add.
    pub(super) id: Option<InodeId>,
    /// Number of the directory above in the list of nodes.
    pub(super) parent: u32,
    pub(super) name: &'a [u8],
    pub(super) links: u32,
    pub(super) attributes: bool,
    pub(super) blocks: u64,
    pub(super) first: u32,
    pub(super) extents: u32,
    /// Regions of blocks of the extent tree, behind those of content.
    pub(super) trees: u32,
    pub(super) attribute_block: u64,
}

impl<'a> Node<'a> {
    /// Without content.
    pub(super) fn new(id: Option<InodeId>, parent: u32, name: &'a [u8]) -> Self {
        Self {
            id,
            parent,
            name,
            links: 1,
            attributes: false,
            blocks: 0,
            first: 0,
            extents: 0,
            trees: 0,
            attribute_block: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Survey<'a> {
    /// The root, then inodes from [`FIRST`] on.
    pub(super) nodes: Vec<Node<'a>>,
    /// Inode numbers by [`InodeId`]; 0 if it is not part of the image.
    pub(super) numbers: Vec<u32>,
    /// By node: the names that blocks of long directories, after the first one, start with.
    pub(super) starts: BTreeMap<u32, Vec<&'a [u8]>>,
    /// Blocks needed for content, attributes and extent trees.
    pub(super) payload: u64,
}

pub(super) fn path(nodes: &[Node<'_>], node: u32) -> String {
    let mut names = Vec::new();
    let mut at = node;
    while at != 0 {
        let Some(found) = nodes.get(index(u64::from(at))) else { break };
        names.push(String::from_utf8_lossy(found.name));
        at = found.parent;
    }
    let mut path = String::new();
    for name in names.iter().rev() {
        path.push('/');
        path.push_str(name);
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

pub(super) fn ino(node: u32) -> u32 {
    if node == 0 { 2 } else { node + (FIRST - 1) }
}

pub(super) fn node(ino: u32) -> Option<u32> {
    if ino == 2 { Some(0) } else { ino.checked_sub(FIRST - 1).filter(|node| *node > 0) }
}

impl<'a> Survey<'a> {
    pub(super) fn new(tree: &'a Tree) -> Result<Self, Error> {
        let mut survey =
            Self { nodes: Vec::new(), numbers: vec![0; tree.count()], starts: BTreeMap::new(), payload: 0 };
        survey.enter(tree, tree.root(), 0, b"")?;
        match tree.child(tree.root(), LOST).and_then(|id| tree.get(id)) {
            None => survey.add_lost_and_found(),
            Some(Inode { kind: Kind::Directory(_), .. }) => {}
            Some(_) => return Err(Error::LostAndFound),
        }
        let mut stack = Vec::new();
        if let Some(names) = tree.names(tree.root()) {
            stack.push((0, names.iter()));
        }
        while let Some((above, names)) = stack.last_mut() {
            let above = *above;
            let Some((name, id)) = names.next() else {
                stack.pop();
                continue;
            };
            let number = survey.enter(tree, *id, above, name)?;
            if let (Some(number), Some(names)) = (number, tree.names(*id)) {
                survey.links(above, 1);
                stack.push((number, names.iter()));
            }
        }
        Ok(survey)
    }

    /// A directory for repairs, if the tree has none.
    fn add_lost_and_found(&mut self) {
        let mut node = Node::new(None, 0, LOST);
        node.links = 2;
        node.blocks = LOST_BLOCKS;
        self.payload += LOST_BLOCKS;
        self.nodes.push(node);
        self.links(0, 1);
    }

    fn links(&mut self, node: u32, more: u32) -> u32 {
        self.nodes.get_mut(index(u64::from(node))).map_or(0, |node| {
            node.links = node.links.saturating_add(more);
            node.links
        })
    }

    /// Takes in a name. The node if the inode is new.
    fn enter(
        &mut self,
        tree: &'a Tree,
        id: InodeId,
        above: u32,
        name: &'a [u8],
    ) -> Result<Option<u32>, Error> {
        let shown = |nodes: &[Node<'_>]| {
            let before = path(nodes, above);
            let name = String::from_utf8_lossy(name);
            if before == "/" { format!("/{name}") } else { format!("{before}/{name}") }
        };
        let bad = name.is_empty() || name.len() > 255 || name == b"." || name == b"..";
        if !self.nodes.is_empty() && (bad || name.contains(&b'/') || name.contains(&0)) {
            return Err(Error::Name { path: shown(&self.nodes), length: name.len() });
        }
        let Some(inode) = tree.get(id) else { return Err(Error::NoInode(shown(&self.nodes))) };
        let number = self.numbers.get_mut(index(u64::from(id.0)));
        let Some(number) = number else { return Err(Error::NoInode(shown(&self.nodes))) };
        if let Some(first) = node(*number) {
            if matches!(inode.kind, Kind::Directory(_)) {
                return Err(Error::DirectoryLinked(shown(&self.nodes)));
            }
            if self.links(first, 1) > LINKS {
                return Err(Error::TooManyLinks(shown(&self.nodes)));
            }
            return Ok(None);
        }
        // Fewer inodes than a tree can have: room for the numbers of those reserved.
        let new = u32::try_from(self.nodes.len()).ok().filter(|new| *new < u32::MAX - FIRST);
        let Some(new) = new else {
            let needed = wide(self.nodes.len());
            return Err(Error::TooManyInodes { needed, limit: u64::from(u32::MAX - FIRST), size: 0 });
        };
        *number = ino(new);
        let mut entry = Node::new(Some(id), above, name);
        let path = || shown(&self.nodes);
        let path: &dyn Fn() -> String = &path;
        let attributes = Attributes::new(&inode.metadata.xattrs, path)?;
        entry.attributes = attributes.has_block();
        let trees = measure(inode, &mut entry, path)?;
        if let Kind::Directory(names) = &inode.kind {
            let lost = new == 0 && !names.contains_key(LOST);
            let starts = directory::starts(names, lost.then_some(LOST));
            entry.blocks = 1 + wide(starts.len());
            if entry.blocks > (1 << 31) / BLOCK {
                return Err(Error::DirectoryTooLong(path()));
            }
            if !starts.is_empty() {
                self.starts.insert(new, starts);
            }
        }
        self.payload += entry.blocks + trees + u64::from(entry.attributes);
        self.nodes.push(entry);
        Ok(Some(new))
    }
}

/// Counts and checks what is not a directory; returns blocks of the extent tree.
fn measure(inode: &Inode, entry: &mut Node<'_>, path: &dyn Fn() -> String) -> Result<u64, Error> {
    match &inode.kind {
        Kind::Directory(_) => entry.links = 2,
        Kind::File(content) => {
            check(content, path)?;
            let mut extents = 0;
            for (_, count) in runs(content) {
                entry.blocks += count;
                extents += count.div_ceil(1 << 15);
            }
            return Ok(tree_blocks(extents));
        }
        Kind::Symlink(target) => {
            if target.is_empty() || target.len() > 4095 || target.contains(&0) {
                return Err(Error::Target { path: path(), length: target.len() });
            }
            entry.blocks = u64::from(target.len() > FAST);
        }
        Kind::CharacterDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            if *major >= 1 << 12 || *minor >= 1 << 20 {
                return Err(Error::Device { path: path(), major: *major, minor: *minor });
            }
        }
        Kind::Fifo | Kind::Socket => {}
    }
    Ok(0)
}

/// Refuses content that is not possible.
fn check(content: &Content, path: &dyn Fn() -> String) -> Result<(), Error> {
    // Block numbers are 32 bits, and the last one is not used.
    if content.length > u64::from(u32::MAX) * BLOCK {
        return Err(Error::FileTooLong { path: path(), length: content.length });
    }
    let mut end = 0;
    for piece in &content.pieces {
        let next = piece.at.checked_add(piece.length).filter(|next| *next <= content.length);
        match next {
            Some(next) if piece.at >= end && piece.length > 0 => end = next,
            _ => return Err(Error::Pieces { path: path(), at: piece.at }),
        }
    }
    Ok(())
}

/// Runs of blocks of a file that hold something: first block and number.
pub(super) fn runs(content: &Content) -> impl Iterator<Item = (u64, u64)> {
    let mut pieces = content.pieces.iter().peekable();
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        let start = first.at / BLOCK;
        let mut end = (first.at + first.length).div_ceil(BLOCK);
        while let Some(next) = pieces.next_if(|next| next.at / BLOCK <= end) {
            end = (next.at + next.length).div_ceil(BLOCK);
        }
        Some((start, end - start))
    })
}

/// Blocks of an extent tree: none if all extents fit into the inode.
pub(super) fn tree_blocks(extents: u64) -> u64 {
    levels(extents).iter().sum()
}

/// Blocks of each level of an extent tree, from the leaves up; the inode has at most four entries.
pub(super) fn levels(extents: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut entries = extents;
    while entries > 4 {
        entries = entries.div_ceil(FANOUT);
        levels.push(entries);
    }
    levels
}
