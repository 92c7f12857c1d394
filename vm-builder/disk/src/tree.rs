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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits with set-user-ID, set-group-ID and sticky: 0–0o7777.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
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

/// What an inode is; the names of a directory are sorted by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory(BTreeMap<Bytes, InodeId>),
    File(Content),
    Symlink(Bytes),
    CharacterDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
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
    pub fn new() -> Self {
        let metadata = Metadata { mode: 0o755, ..Metadata::default() };
        Self { inodes: vec![Inode { metadata, kind: Kind::Directory(BTreeMap::new()) }] }
    }

    pub fn root(&self) -> InodeId {
        InodeId(0)
    }

    /// Number of inodes, with those no name leads to.
    pub(crate) fn count(&self) -> usize {
        self.inodes.len()
    }

    /// An inode, if it is of this tree.
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

    pub fn names(&self, directory: InodeId) -> Option<&BTreeMap<Bytes, InodeId>> {
        match &self.get(directory)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    pub fn child(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        self.names(directory)?.get(name).copied()
    }

    /// What a path leads to. Empty parts and `.` are skipped, symbolic links and `..` are not followed.
    pub fn lookup(&self, path: &[u8]) -> Option<InodeId> {
        parts(path).try_fold(self.root(), |at, name| self.child(at, name))
    }

    /// Makes the directories of a path that are not there yet, each with `metadata`, and returns the last one.
    /// `None` if something on the way is not a directory, a part is no name (`..`, over 255 bytes, NUL), or there is
    /// no number left.
    pub fn make_directories(&mut self, path: &[u8], metadata: &Metadata) -> Option<InodeId> {
        let mut at = self.root();
        for name in parts(path) {
            if name == b".." || name.len() > 255 || name.contains(&0) {
                return None;
            }
            at = match self.child(at, name) {
                Some(child) => child,
                None => {
                    let kind = Kind::Directory(BTreeMap::new());
                    let made = self.add(Inode { metadata: metadata.clone(), kind })?;
                    self.names(at)?;
                    self.link(at, name, made);
                    made
                }
            };
        }
        self.names(at).map(|_| at)
    }

    /// Adds an inode under a path in an existing directory; an inode that had the name loses it. `None` if there is no
    /// such directory or the path has no last part.
    pub fn insert(&mut self, path: &[u8], inode: Inode) -> Option<InodeId> {
        let names: Vec<&[u8]> = parts(path).collect();
        let (last, before) = names.split_last()?;
        let directory = before.iter().try_fold(self.root(), |at, name| self.child(at, name))?;
        self.names(directory)?;
        let id = self.add(inode)?;
        self.link(directory, last, id);
        Some(id)
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}
