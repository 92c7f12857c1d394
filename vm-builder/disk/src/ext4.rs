//! Makes an ext4 file system out of a [`Tree`], as an [`Image`](crate::image::Image): what is read is made when it
//! is read, so that only metadata is in memory. Format: the kernel's `Documentation/filesystems/ext4`, defaults as
//! `mke2fs -t ext4`.

mod attributes;
mod checksum;
mod content;
mod directory;
mod error;
mod geometry;
mod inode;
mod layout;
mod options;
mod storable;
mod superblock;
mod survey;

pub use error::Error;
pub use options::{Journal, Options};
pub use storable::{Dropped, drop_unstorable};

use crate::tree::{NoSources, Sources, Time, Tree};
use layout::Layout;
use superblock::Fixed;

/// An ext4 file system made from a tree.
pub struct FileSystem<'a> {
    tree: &'a Tree,
    sources: &'a dyn Sources,
    layout: Layout<'a>,
    fixed: Vec<Fixed>,
    descriptors: Vec<u8>,
    superblock: Vec<u8>,
    /// What sums start from.
    seed: u32,
    created: Time,
}

impl std::fmt::Debug for FileSystem<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FileSystem").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl<'a> FileSystem<'a> {
    /// Lays a tree out.
    ///
    /// # Errors
    /// If something in the tree is beyond what ext4 can hold or it does not fit into the requested size.
    pub fn plan(tree: &'a Tree, sources: &'a dyn Sources, options: &Options) -> Result<Self, Error> {
        check(options)?;
        let survey = survey::Survey::new(tree)?;
        let layout = Layout::new(tree, survey, options)?;
        let seed = checksum::crc(u32::MAX, &options.uuid);
        let (descriptors, superblock) = superblock::tables(&layout, tree, options, seed);
        let fixed = superblock::fixed(&layout);
        Ok(Self { tree, sources, layout, fixed, descriptors, superblock, seed, created: options.created })
    }

    /// Number of inodes that hold something of the tree.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        crate::bytes::wide(self.layout.survey.nodes.len())
    }

    /// Bytes of blocks in use, with those of metadata.
    #[must_use]
    pub fn used(&self) -> u64 {
        let blocks: u64 = self.layout.regions.iter().map(|region| u64::from(region.count)).sum();
        (self.layout.geometry.blocks - self.layout.geometry.free() + blocks) * geometry::BLOCK
    }
}

/// Refuses options that are not valid.
fn check(options: &Options) -> Result<(), Error> {
    if options.label.len() > 16 {
        return Err(Error::Option(format!("the label `{}` is longer than 16 bytes", options.label)));
    }
    if options.inode_ratio < 1024 {
        return Err(Error::Option(format!("{} bytes per inode: at least 1024", options.inode_ratio)));
    }
    if let Journal::Blocks(count) = options.journal
        && !(1024..=10_240_000).contains(&count)
    {
        return Err(Error::Option(format!("a journal of {count} blocks: 1024 to 10240000")));
    }
    Ok(())
}

/// An empty file system.
///
/// # Errors
/// If the size is out of range or an option is not valid.
pub fn empty(options: &Options) -> Result<FileSystem<'static>, Error> {
    static EMPTY: std::sync::OnceLock<Tree> = std::sync::OnceLock::new();
    FileSystem::plan(EMPTY.get_or_init(Tree::new), &NoSources, options)
}
