//! Applies archives to a tree, one after another, as overlaid file systems show them.
//!
//! The rules: a later entry of the same name wins; a directory over a directory keeps its children; an entry below a
//! symbolic link goes to the link's target in the tree; missing parents are made; a whiteout hides what lower layers
//! have, wherever it is in its layer.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Metadata, Origin, Piece, SourceId, Tree};

use super::archive::{Archive, Entry, EntryKind};
use super::hide::Layer;
use super::path::{Found, directory, implied_directory, normalised};
use crate::source::{Error, Limits, printable};

/// Largest file: what a file system with blocks of 4 KiB can hold.
const FILE_LIMIT: u64 = 1 << 44;

/// Whether names with `.wh.` mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    Apply,
    /// They are names as others are: for archives that are no layers.
    Literal,
}

/// A tree that layers are applied to, with what they may still cost.
#[derive(Debug)]
pub struct Applier {
    tree: Tree,
    limits: Limits,
    entries: u64,
    bytes: u64,
    metadata: u64,
}

impl Applier {
    /// An empty tree.
    pub fn new(limits: Limits) -> Self {
        Self { tree: Tree::new(), limits, entries: 0, bytes: 0, metadata: 0 }
    }

    pub fn into_tree(self) -> Tree {
        self.tree
    }

    /// Applies an archive; its contents will be read from `source`.
    ///
    /// # Errors
    /// If the archive is malformed, an entry cannot be applied, or a limit is exceeded. The tree is then of no use.
    pub fn apply<R: Read + Seek>(
        &mut self,
        archive: &mut Archive<R>,
        source: SourceId,
        whiteouts: Whiteouts,
    ) -> Result<(), Error> {
        let mut layer = Layer::default();
        while let Some(entry) = archive.next_entry()? {
            self.charge(archive.name(), &entry)?;
            let result = self.apply_entry(&mut layer, &entry, source, whiteouts);
            result.map_err(|problem| Error::Entry {
                layer: archive.name().into(),
                entry: entry.path,
                problem,
            })?;
        }
        Ok(())
    }

    fn charge(&mut self, name: &str, entry: &Entry) -> Result<(), Error> {
        let (stored, runs) = match &entry.kind {
            EntryKind::File { runs, .. } => (runs.iter().map(|run| run.length).sum(), runs.len()),
            _ => (0_u64, 0),
        };
        let attributes: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        let metadata = entry.path.len() + entry.link.len() + attributes + runs * 48;
        let over = |part: &str, limit, unit, flag| Error::Limit {
            what: format!("{name}: {part}"),
            limit,
            unit,
            flag: Some(flag),
        };
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(over("number of entries", self.limits.entries, "entries", "--max-entries"));
        }
        self.bytes = self.bytes.saturating_add(stored);
        if self.bytes > self.limits.bytes {
            return Err(over("content", self.limits.bytes, "bytes", "--max-bytes"));
        }
        self.metadata = self.metadata.saturating_add(metadata as u64);
        if self.metadata > self.limits.metadata {
            return Err(over("names and attributes", self.limits.metadata, "bytes", "--max-entries"));
        }
        Ok(())
    }

    fn apply_entry(
        &mut self,
        layer: &mut Layer,
        entry: &Entry,
        source: SourceId,
        whiteouts: Whiteouts,
    ) -> Result<(), String> {
        let components = normalised(&entry.path, self.limits.path)?;
        let Some((name, parents)) = components.split_last() else {
            return match entry.kind {
                EntryKind::Directory => {
                    self.update(layer, self.tree.root(), entry);
                    Ok(())
                }
                _ => Err("the root must be a directory".into()),
            };
        };
        if whiteouts == Whiteouts::Apply
            && let Some(hidden) = name.strip_prefix(b".wh.")
        {
            return self.whiteout(layer, parents, hidden);
        }
        let mut make = |tree: &mut Tree| {
            let made = tree.add(implied_directory())?;
            layer.made(made);
            Some(made)
        };
        let Found::Directory(parent) = directory(&mut self.tree, parents, Some(&mut make))? else {
            return Err("its directory cannot be made".into());
        };
        match &entry.kind {
            EntryKind::HardLink => self.hard_link(layer, parent, name, entry),
            EntryKind::Directory => {
                match self.tree.child(parent, name) {
                    Some(child) if self.tree.names(child).is_some() => self.update(layer, child, entry),
                    _ => self.add(layer, parent, name, entry, Kind::Directory(BTreeMap::new()))?,
                }
                Ok(())
            }
            kind => {
                let kind = leaf(kind, entry, source)?;
                self.add(layer, parent, name, entry, kind)
            }
        }
    }

    fn update(&mut self, layer: &mut Layer, directory: InodeId, entry: &Entry) {
        layer.touched(directory);
        if let Some(inode) = self.tree.get_mut(directory) {
            inode.metadata = metadata(entry);
        }
    }

    fn add(
        &mut self,
        layer: &mut Layer,
        parent: InodeId,
        name: &[u8],
        entry: &Entry,
        kind: Kind,
    ) -> Result<(), String> {
        let inode = Inode { metadata: metadata(entry), kind };
        let id = self.tree.add(inode).ok_or("too many inodes")?;
        layer.made(id);
        layer.replaced(parent, name);
        self.tree.link(parent, name, id);
        Ok(())
    }

    fn hard_link(
        &mut self,
        layer: &mut Layer,
        parent: InodeId,
        name: &[u8],
        entry: &Entry,
    ) -> Result<(), String> {
        let target = || printable(&entry.link);
        let components = normalised(&entry.link, self.limits.path)
            .map_err(|problem| format!("target {} of the hard link: {problem}", target()))?;
        let Some((last, parents)) = components.split_last() else {
            return Err("hard link to the root".into());
        };
        let found = match directory(&mut self.tree, parents, None)? {
            Found::Directory(directory) => self.tree.child(directory, last),
            Found::Nothing => None,
        };
        let inode = found.ok_or_else(|| format!("hard link to {}, which does not exist", target()))?;
        if self.tree.names(inode).is_some() {
            return Err(format!("hard link to the directory {}", target()));
        }
        layer.linked(parent, name, inode);
        self.tree.link(parent, name, inode);
        Ok(())
    }

    fn whiteout(&mut self, layer: &mut Layer, parents: &[&[u8]], hidden: &[u8]) -> Result<(), String> {
        if matches!(hidden, b"" | b"." | b"..") {
            return Err("whiteout without a name".into());
        }
        let Found::Directory(parent) = directory(&mut self.tree, parents, None)? else {
            return Ok(());
        };
        match hidden {
            b".wh..opq" => layer.hide_children(&mut self.tree, parent),
            // Notes of the aufs file system to itself.
            _ if hidden.starts_with(b".wh.") => {}
            _ => layer.hide(&mut self.tree, parent, hidden),
        }
        Ok(())
    }
}

fn metadata(entry: &Entry) -> Metadata {
    Metadata {
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        modified: entry.modified,
        xattrs: entry.xattrs.clone(),
    }
}

fn leaf(kind: &EntryKind, entry: &Entry, source: SourceId) -> Result<Kind, String> {
    Ok(match kind {
        EntryKind::File { length, runs } => {
            if *length > FILE_LIMIT {
                return Err("file is larger than 16 TiB".into());
            }
            let piece = |run: &super::Run| Piece {
                at: run.at,
                length: run.length,
                origin: Origin::Source { source, offset: run.offset },
            };
            Kind::File(Content { length: *length, pieces: runs.iter().map(piece).collect() })
        }
        EntryKind::Symlink if entry.link.is_empty() => return Err("symbolic link to nothing".into()),
        EntryKind::Symlink if entry.link.len() > 4095 => {
            return Err("target of the symbolic link is longer than 4095 bytes".into());
        }
        EntryKind::Symlink => Kind::Symlink(entry.link.clone()),
        EntryKind::CharacterDevice(major, minor) => Kind::CharacterDevice { major: *major, minor: *minor },
        EntryKind::BlockDevice(major, minor) => Kind::BlockDevice { major: *major, minor: *minor },
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::Directory | EntryKind::HardLink => return Err("not a leaf".into()),
    })
}
