//! Reading single files of a tree: users, package lists, settings.

use neonvm_disk::tree::{InodeId, Kind, Origin, Sources, Tree};

/// Links followed on the way to a file, as Linux does.
const MOST_LINKS: usize = 40;

/// The inode at an absolute path, links followed inside the tree.
pub fn find(tree: &Tree, path: &[u8]) -> Option<InodeId> {
    let mut left: Vec<Vec<u8>> = parts(path);
    let mut trail: Vec<InodeId> = vec![tree.root()];
    let mut links = 0;
    while let Some(name) = left.pop() {
        let here = *trail.last()?;
        if name == b".." {
            // The root is its own parent.
            if trail.len() > 1 {
                trail.pop();
            }
            continue;
        }
        let child = tree.child(here, &name)?;
        match &tree.get(child)?.kind {
            Kind::Symlink(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                if target.starts_with(b"/") {
                    trail.truncate(1);
                }
                left.extend(parts(target));
            }
            _ => trail.push(child),
        }
    }
    trail.last().copied()
}

/// Parts of a path, last first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = path
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect();
    parts.reverse();
    parts
}

/// The bytes of a regular file of at most `limit` bytes; `None` if there is none or it is larger or unreadable.
pub fn read(tree: &Tree, sources: &dyn Sources, path: &[u8], limit: usize) -> Option<Vec<u8>> {
    let inode = find(tree, path)?;
    let Kind::File(content) = &tree.get(inode)?.kind else { return None };
    let length = usize::try_from(content.length).ok().filter(|length| *length <= limit)?;
    part(tree, sources, inode, 0, length)
}

/// Up to `length` bytes of a regular file from an offset on, fewer at its end; `None` if it is no file or unreadable.
pub fn part(
    tree: &Tree,
    sources: &dyn Sources,
    inode: InodeId,
    offset: u64,
    length: usize,
) -> Option<Vec<u8>> {
    let Kind::File(content) = &tree.get(inode)?.kind else { return None };
    let end = offset.saturating_add(u64::try_from(length).ok()?).min(content.length);
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset)).ok()?];
    for piece in &content.pieces {
        let (from, to) = (piece.at.max(offset), piece.at.checked_add(piece.length)?.min(end));
        if from >= to {
            continue;
        }
        let [start, stop, skip] = [from - offset, to - offset, from - piece.at].map(usize::try_from);
        let (skip, into) = (skip.ok()?, bytes.get_mut(start.ok()?..stop.ok()?)?);
        match &piece.origin {
            Origin::Memory(memory) => into.copy_from_slice(memory.get(skip..skip.checked_add(into.len())?)?),
            Origin::Source { source, offset } => {
                sources.read_exact_at(*source, offset.checked_add(from - piece.at)?, into).ok()?;
            }
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use neonvm_disk::tree::{Content, Inode, Metadata, NoSources, Piece};

    use super::*;

    fn add(tree: &mut Tree, directory: InodeId, name: &str, kind: Kind) -> InodeId {
        let inode = tree.add(Inode { metadata: Metadata::default(), kind }).unwrap();
        tree.link(directory, name.as_bytes(), inode);
        inode
    }

    #[test]
    fn links_are_followed_inside_the_tree() {
        let mut tree = Tree::new();
        let root = tree.root();
        let usr = add(&mut tree, root, "usr", Kind::Directory(Default::default()));
        let lib = add(&mut tree, usr, "lib", Kind::Directory(Default::default()));
        add(&mut tree, root, "lib", Kind::Symlink(b"/../../usr/lib".to_vec()));
        add(&mut tree, root, "loop", Kind::Symlink(b"loop".to_vec()));
        let piece = Piece { at: 1, length: 2, origin: Origin::Memory(b"ab".as_slice().into()) };
        add(&mut tree, lib, "file", Kind::File(Content { length: 4, pieces: vec![piece] }));
        assert_eq!(read(&tree, &NoSources, b"/lib/../lib/./file", 4), Some(b"\0ab\0".to_vec()));
        assert_eq!(read(&tree, &NoSources, b"/lib/file", 3), None);
        let inode = find(&tree, b"/lib/file").unwrap();
        for (offset, length, expected) in
            [(0, 2, &b"\0a"[..]), (2, 1, b"b"), (2, 9, b"b\0"), (3, 1, b"\0"), (4, 1, b""), (9, 9, b"")]
        {
            assert_eq!(
                part(&tree, &NoSources, inode, offset, length).unwrap(),
                expected,
                "{offset} {length}"
            );
        }
        assert_eq!(find(&tree, b"/loop/x"), None);
        assert_eq!(find(&tree, b"../.."), Some(root));
        assert_eq!(read(&tree, &NoSources, b"/lib", 100), None);
    }
}
