//! A file tree as data: what a disk image will hold. Nothing of it ever touches a file system of the host, so a
//! hostile image cannot escape and no privilege is needed for owners, devices or capabilities.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A name in a directory or a target of a symbolic link: any bytes; names hold no `/` and no NUL and are 1–255 bytes.
pub type Bytes = Vec<u8>;

/// An inode of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub(crate) u32);

/// Source of stored content, as numbered by the creator of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// A point in time: seconds since 1970 (may be negative) and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// 0–999,999,999.
    pub nanoseconds: u32,
}

/// What every inode has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits with set-user-ID, set-group-ID and sticky: 0–0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content.
    pub modified: Time,
    /// Extended attributes by full name, such as `security.capability`.
    pub xattrs: BTreeMap<Bytes, Bytes>,
}

/// Where bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Memory(Arc<[u8]>),
    /// In a source, from this offset on.
    Source {
        source: SourceId,
        /// First byte there.
        offset: u64,
    },
}

/// A run of bytes of a file that is not a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub at: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
    /// Where they are.
    pub origin: Origin,
}

/// Content of a regular file: pieces in ascending order without overlap; between them are holes, which read as zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Size of the file in bytes.
    pub length: u64,
    /// What is not a hole.
    pub pieces: Vec<Piece>,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Names, sorted by bytes.
    Directory(BTreeMap<Bytes, InodeId>),
    File(Content),
    /// A symbolic link with its target.
    Symlink(Bytes),
    CharacterDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A Unix domain socket.
    Socket,
}

/// Metadata and content of a file, whatever its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Owner, permissions, times, attributes.
    pub metadata: Metadata,
    pub kind: Kind,
}

/// Reads what [`Origin::Source`] names.
pub trait Sources: Sync {
    /// Fills `into` with bytes of a source.
    ///
    /// # Errors
    /// If the source is unknown, ends early, or cannot be read.
    fn read_exact_at(&self, source: SourceId, offset: u64, into: &mut [u8]) -> std::io::Result<()>;
}

/// No sources: for trees with their content in memory.
#[derive(Clone, Copy, Debug)]
pub struct NoSources;

impl Sources for NoSources {
    fn read_exact_at(&self, source: SourceId, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        Err(std::io::Error::other(format!("unknown source {}", source.0)))
    }
}

/// A file tree. Hard links are names with the same inode. Inodes that no name leads to are not part of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    inodes: Vec<Inode>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty root directory, 0755, owned by root.
    #[must_use]
    pub fn new() -> Self {
        let metadata = Metadata { mode: 0o755, ..Metadata::default() };
        Self { inodes: vec![Inode { metadata, kind: Kind::Directory(BTreeMap::new()) }] }
    }

    #[must_use]
    pub fn root(&self) -> InodeId {
        InodeId(0)
    }

    /// Number of inodes, with those no name leads to.
    pub(crate) fn count(&self) -> usize {
        self.inodes.len()
    }

    /// An inode, if it is of this tree.
    #[must_use]
    pub fn get(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(usize::try_from(id.0).ok()?)
    }

    /// An inode to change, if it is of this tree.
    pub fn get_mut(&mut self, id: InodeId) -> Option<&mut Inode> {
        self.inodes.get_mut(usize::try_from(id.0).ok()?)
    }

    /// Adds an inode without a name. `None` after 2³² of them.
    pub fn add(&mut self, inode: Inode) -> Option<InodeId> {
        let id = InodeId(u32::try_from(self.inodes.len()).ok()?);
        self.inodes.push(inode);
        Some(id)
    }

    /// Gives an inode a name; what had the name loses it. Returns what had it. `None` also if `directory` is none.
    pub fn link(&mut self, directory: InodeId, name: &[u8], inode: InodeId) -> Option<InodeId> {
        match &mut self.get_mut(directory)?.kind {
            Kind::Directory(names) => names.insert(name.to_vec(), inode),
            _ => None,
        }
    }

    /// Takes a name away; returns what had it.
    pub fn unlink(&mut self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        match &mut self.get_mut(directory)?.kind {
            Kind::Directory(names) => names.remove(name),
            _ => None,
        }
    }

    #[must_use]
    pub fn names(&self, directory: InodeId) -> Option<&BTreeMap<Bytes, InodeId>> {
        match &self.get(directory)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    #[must_use]
    pub fn child(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        self.names(directory)?.get(name).copied()
    }
}
