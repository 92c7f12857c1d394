//! Ways through a [`Tree`] by path.

use crate::tree::{Inode, InodeId, Kind, Metadata, Tree};

impl Tree {
    /// What a path leads to. Empty parts and `.` are skipped, symbolic links and `..` are not followed.
    #[must_use]
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
                    let kind = Kind::Directory(std::collections::BTreeMap::new());
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
