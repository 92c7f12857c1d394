//! Paths of entries: made relative to the root by their text alone, then resolved in the tree.

use std::borrow::Cow;

use neonvm_disk::tree::{Inode, InodeId, Kind, Metadata, Tree};

/// Most symbolic links on one path, as Linux has it.
const LINK_LIMIT: usize = 40;
/// Longest name in a directory, in bytes.
const NAME_LIMIT: usize = 255;

/// The components of a path below the root, without `.`, `..` and empty ones.
pub(super) fn normalised(path: &[u8], limit: usize) -> Result<Vec<&[u8]>, String> {
    if path.len() > limit {
        return Err(format!("path is longer than {limit} bytes"));
    }
    if path.contains(&0) {
        return Err("path with a NUL".into());
    }
    let mut components = Vec::new();
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                components.pop().ok_or("path leads out of the root")?;
            }
            _ if component.len() > NAME_LIMIT => {
                return Err(format!("name is longer than {NAME_LIMIT} bytes"));
            }
            _ => components.push(component),
        }
    }
    Ok(components)
}

/// What a path of directories leads to.
pub(super) enum Found {
    Directory(InodeId),
    /// Nothing: some component does not exist.
    Nothing,
}

/// Adds a directory to a tree and reports it.
pub(super) type Make<'a> = &'a mut dyn FnMut(&mut Tree) -> Option<InodeId>;

/// Follows components to a directory. Symbolic links are resolved with the tree's root as `/`. With `make`, what is
/// missing is made with it, and called for each directory.
pub(super) fn directory(
    tree: &mut Tree,
    components: &[&[u8]],
    mut make: Option<Make<'_>>,
) -> Result<Found, String> {
    let mut trail = vec![tree.root()];
    let mut links = 0;
    let mut ahead: Vec<Cow<'_, [u8]>> = components.iter().rev().map(|part| Cow::Borrowed(*part)).collect();
    while let Some(name) = ahead.pop() {
        let here = trail.last().copied().unwrap_or(tree.root());
        match name.as_ref() {
            b"" | b"." => continue,
            b".." => {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            _ => {}
        }
        let Some(child) = tree.child(here, &name) else {
            let Some(make) = make.as_deref_mut() else {
                return Ok(Found::Nothing);
            };
            if name.len() > NAME_LIMIT {
                return Err(format!("name is longer than {NAME_LIMIT} bytes"));
            }
            let made = make(tree).ok_or("too many inodes")?;
            tree.link(here, &name, made);
            trail.push(made);
            continue;
        };
        match tree.get(child).map(|inode| &inode.kind) {
            Some(Kind::Directory(_)) => trail.push(child),
            Some(Kind::Symlink(target)) => {
                links += 1;
                if links > LINK_LIMIT {
                    return Err("too many symbolic links on the path (a loop?)".into());
                }
                if target.starts_with(b"/") {
                    trail.truncate(1);
                }
                let parts: Vec<_> =
                    target.split(|byte| *byte == b'/').rev().map(|part| Cow::Owned(part.to_vec())).collect();
                ahead.extend(parts);
            }
            _ => {
                let name = crate::source::printable(&name);
                return Err(format!("{name} on its path is not a directory"));
            }
        }
    }
    Ok(Found::Directory(trail.last().copied().unwrap_or(tree.root())))
}

/// A directory without an entry in the archive.
pub(super) fn implied_directory() -> Inode {
    let metadata = Metadata { mode: 0o755, ..Metadata::default() };
    Inode { metadata, kind: Kind::Directory(std::collections::BTreeMap::new()) }
}
