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
pub use options::Options;
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
    pub fn plan(tree: &'a Tree, sources: &'a dyn Sources, options: &Options) -> Result<Self, Error> {
        if options.label.len() > 16 {
            return Err(Error::Option(format!("the label `{}` is longer than 16 bytes", options.label)));
        }
        let survey = survey::Survey::new(tree)?;
        let layout = Layout::new(tree, survey, options)?;
        let seed = checksum::crc(u32::MAX, &options.uuid);
        let (descriptors, superblock) = superblock::tables(&layout, tree, options, seed);
        let fixed = superblock::fixed(&layout);
        Ok(Self { tree, sources, layout, fixed, descriptors, superblock, seed, created: options.created })
    }
}

/// An empty file system.
pub fn empty(options: &Options) -> Result<FileSystem<'static>, Error> {
    static EMPTY: std::sync::OnceLock<Tree> = std::sync::OnceLock::new();
    FileSystem::plan(EMPTY.get_or_init(Tree::new), &NoSources, options)
}
