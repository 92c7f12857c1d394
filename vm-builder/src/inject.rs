//! What every disk gets besides the image: the guest program under the names that others call it by, its settings,
//! and the directories that a boot needs.

use std::sync::Arc;

use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Metadata, Origin, Piece, Time, Tree};
use neonvm_types::guest::{GUEST_PROGRAM_PATH, IMAGE_CONFIG_PATH, ImageConfig, toolbox};

/// Directories that a boot mounts something on, with their permissions. Those of the image stay as they are.
const DIRECTORIES: [(&str, u16); 10] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("mnt", 0o755),
    ("mnt/ssh", 0o755),
    ("neonvm/runtime", 0o755),
    ("proc", 0o555),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
];

/// A name on the way to something injected is already taken by something else.
#[derive(Debug, thiserror::Error)]
#[error("the image has {path:?}, which is not a directory, where the guest's files must be")]
pub struct Taken {
    pub path: String,
}

/// Adds the guest to a tree.
pub fn inject(tree: &mut Tree, guest: &Arc<[u8]>, config: &ImageConfig, time: Time) -> Result<(), Taken> {
    for (path, mode) in DIRECTORIES {
        directory(tree, path, mode, time)?;
    }
    // A former guest in the image (a disk image made of a disk image) goes away whole.
    let neonvm = directory(tree, "neonvm", 0o755, time)?;
    tree.unlink(neonvm, b"bin");
    let bin = directory(tree, "neonvm/bin", 0o755, time)?;
    let name = GUEST_PROGRAM_PATH.rsplit('/').next().unwrap_or_default();
    add(tree, bin, name, 0o755, time, file(guest));
    // What kernels, older runners and workloads call.
    for link in toolbox::tools() {
        add(tree, bin, link, 0o777, time, Kind::Symlink(name.as_bytes().to_vec()));
    }
    let text = serde_json::to_vec_pretty(config).unwrap_or_default();
    put(tree, IMAGE_CONFIG_PATH, 0o644, time, &text.into())
}

/// Puts a file at a path, with the directories on the way.
pub fn put(tree: &mut Tree, path: &str, mode: u16, time: Time, bytes: &Arc<[u8]>) -> Result<(), Taken> {
    let path = path.trim_start_matches('/');
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = directory(tree, parent, 0o755, time)?;
    add(tree, parent, name, mode, time, file(bytes));
    Ok(())
}

pub fn file(bytes: &Arc<[u8]>) -> Kind {
    let length = bytes.len() as u64;
    let piece = Piece { at: 0, length, origin: Origin::Memory(Arc::clone(bytes)) };
    Kind::File(Content { length, pieces: if length == 0 { vec![] } else { vec![piece] } })
}

/// Adds a file of root's to a directory.
pub fn add(
    tree: &mut Tree,
    directory: InodeId,
    name: &str,
    mode: u16,
    time: Time,
    kind: Kind,
) -> Option<InodeId> {
    let metadata = Metadata { mode, modified: time, ..Metadata::default() };
    let inode = tree.add(Inode { metadata, kind })?;
    tree.link(directory, name.as_bytes(), inode);
    Some(inode)
}

/// The directory at a path, made where it is missing; links to directories of the image are followed.
pub(crate) fn directory(tree: &mut Tree, path: &str, mode: u16, time: Time) -> Result<InodeId, Taken> {
    let taken = || Taken { path: format!("/{path}") };
    let mut here = tree.root();
    let mut walked = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        walked = format!("{walked}/{part}");
        here = match tree.child(here, part.as_bytes()) {
            None => {
                add(tree, here, part, mode, time, Kind::Directory(Default::default())).ok_or_else(taken)?
            }
            Some(_) => crate::content::find(tree, walked.as_bytes())
                .filter(|found| tree.names(*found).is_some())
                .ok_or_else(taken)?,
        };
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use neonvm_disk::tree::NoSources;

    use super::*;
    use crate::content::{find, read};

    #[test]
    fn the_guest_is_there_under_all_its_names() {
        let mut tree = Tree::new();
        let guest: Arc<[u8]> = b"program".as_slice().into();
        let config = ImageConfig { source: Some("x".into()), ..ImageConfig::default() };
        // Twice: a disk made of a disk has one guest.
        for _ in 0..2 {
            inject(&mut tree, &guest, &config, Time::default()).unwrap();
        }
        for name in toolbox::tools() {
            let path = format!("/neonvm/bin/{name}");
            assert_eq!(read(&tree, &NoSources, path.as_bytes(), 100).as_deref(), Some(b"program".as_slice()));
        }
        let text = read(&tree, &NoSources, IMAGE_CONFIG_PATH.as_bytes(), 1000).unwrap();
        assert_eq!(serde_json::from_slice::<ImageConfig>(&text).unwrap(), config);
        assert_eq!(tree.get(find(&tree, b"/tmp").unwrap()).unwrap().metadata.mode, 0o1777);
    }

    #[test]
    fn directories_of_the_image_stay_and_links_are_followed() {
        let mut tree = Tree::new();
        let root = tree.root();
        let private =
            add(&mut tree, root, "private", 0o700, Time::default(), Kind::Directory(Default::default()))
                .unwrap();
        add(&mut tree, root, "var", 0o777, Time::default(), Kind::Symlink(b"private".to_vec()));
        inject(&mut tree, &b"p".as_slice().into(), &ImageConfig::default(), Time::default()).unwrap();
        assert_eq!(tree.get(private).unwrap().metadata.mode, 0o700);
        add(&mut tree, root, "neonvm", 0o644, Time::default(), file(&b"x".as_slice().into()));
        let error =
            inject(&mut tree, &b"p".as_slice().into(), &ImageConfig::default(), Time::default()).unwrap_err();
        assert!(error.to_string().contains("\"/neonvm"), "{error}");
    }
}
