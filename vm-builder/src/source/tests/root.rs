//! Directories and tars that are the root of a file system.

use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

use neonvm_disk::tree::{Kind, Tree};

use super::*;
use crate::source::{Owner, tree_digest};

fn find(tree: &Tree, path: &str) -> neonvm_disk::tree::InodeId {
    path.split('/').fold(tree.root(), |at, name| tree.child(at, name.as_bytes()).unwrap())
}

fn make(root: &Path) {
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/name"), b"hello").unwrap();
    std::fs::hard_link(root.join("etc/name"), root.join("etc/again")).unwrap();
    std::os::unix::fs::symlink("../../outside", root.join("link")).unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::set_permissions(root.join("empty"), std::fs::Permissions::from_mode(0o4711)).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 1 << 20).unwrap();
    sparse.set_len(8 << 20).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
}

#[test]
fn a_directory_is_read_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    make(&root);
    let options = sample::options(&directory.path().join("cache"));
    let found = loaded(&Source::RootTree(root.clone()), &options).unwrap();
    let tree = &found.tree;
    assert_eq!(find(tree, "etc/name"), find(tree, "etc/again"));
    assert_eq!(tree.get(find(tree, "link")).unwrap().kind, Kind::Symlink(b"../../outside".to_vec()));
    assert_eq!(tree.get(find(tree, "socket")).unwrap().kind, Kind::Socket);
    let empty = &tree.get(find(tree, "empty")).unwrap().metadata;
    let host = std::fs::metadata(root.join("empty")).unwrap();
    assert_eq!((empty.mode, empty.uid, empty.modified.seconds), (0o4711, host.uid(), host.mtime()));
    assert_eq!(i64::from(empty.modified.nanoseconds), host.mtime_nsec());
    let Kind::File(content) = &tree.get(find(tree, "sparse")).unwrap().kind else { panic!("no file") };
    assert_eq!(content.length, 8 << 20);
    let stored: u64 = content.pieces.iter().map(|piece| piece.length).sum();
    assert!(stored < 1 << 20, "holes are kept: {stored}");
    assert!(sample::listed(&found).contains(&"/etc/name hello".to_owned()));
    assert_eq!((found.settings.architecture.as_str(), found.layers.len()), ("amd64", 0));
}

#[test]
fn the_digest_is_that_of_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    make(&root);
    let mut options = sample::options(&directory.path().join("cache"));
    let source = Source::RootTree(root.clone());
    let first = loaded(&source, &options).unwrap();
    assert_eq!(loaded(&source, &options).unwrap().digest, first.digest);
    options.owner = Owner::Root;
    let squashed = loaded(&source, &options).unwrap();
    assert!((0..2).all(|_| squashed.tree.get(find(&squashed.tree, "etc/name")).unwrap().metadata.uid == 0));
    // The same length and time, another byte.
    let time = std::fs::metadata(root.join("etc/name")).unwrap().modified().unwrap();
    std::fs::write(root.join("etc/name"), b"hellO").unwrap();
    std::fs::File::options().write(true).open(root.join("etc/name")).unwrap().set_modified(time).unwrap();
    assert_ne!(loaded(&source, &options).unwrap().digest, squashed.digest);
}

#[test]
fn holes_do_not_change_the_digest() {
    use neonvm_disk::tree::{Content, Inode, Metadata, NoSources, Origin, Piece};
    let tree = |pieces: &[(u64, &[u8])]| {
        let pieces = pieces
            .iter()
            .map(|(at, bytes)| Piece {
                at: *at,
                length: bytes.len() as u64,
                origin: Origin::Memory((*bytes).into()),
            })
            .collect();
        let mut tree = Tree::new();
        let kind = Kind::File(Content { length: 300_000, pieces });
        let file = tree.add(Inode { metadata: Metadata::default(), kind }).unwrap();
        tree.link(tree.root(), b"a", file);
        tree_digest(&tree, &NoSources).unwrap()
    };
    let mut whole = vec![0; 200_000];
    whole[150_000] = 1;
    assert_eq!(tree(&[(0, &whole)]), tree(&[(150_000, &[1])]));
    assert_eq!(tree(&[(0, &whole)]), tree(&[(10, &[0; 50]), (150_000, &[1, 0]), (250_000, &[0])]));
    assert_ne!(tree(&[(0, &whole)]), tree(&[(150_001, &[1])]));
}

#[test]
fn a_file_that_changes_or_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    make(&root);
    let options = sample::options(&directory.path().join("cache"));
    let found = loaded(&Source::RootTree(root.clone()), &options).unwrap();
    std::fs::write(root.join("etc/name"), b"longer than it was").unwrap();
    // It may still be open from the digest; the size read before is what counts.
    let Kind::File(content) = &found.tree.get(find(&found.tree, "etc/name")).unwrap().kind else { panic!() };
    assert_eq!(content.length, 5);
    std::fs::remove_file(root.join("etc/again")).unwrap();
    let error = loaded(&Source::RootTree(root.join("nothing")), &options).unwrap_err();
    assert!(error.to_string().contains("root/nothing"), "{error}");
    let file =
        crate::layer::HostFile::new(root.join("gone"), &std::fs::metadata(root.join("empty")).unwrap());
    let sources = crate::layer::LayerSources::of_files(vec![file]);
    let error =
        neonvm_disk::tree::Sources::read_exact_at(&sources, neonvm_disk::tree::SourceId(0), 0, &mut [0]);
    assert!(error.unwrap_err().to_string().contains("root/gone"));
}

#[test]
fn tars_of_roots_are_read_plain_and_compressed() {
    let directory = tempfile::tempdir().unwrap();
    let tar = crate::layer::writer::Writer::default().file("./etc/name", b"x").file(".wh.kept", b"y").end();
    let options = sample::options(&directory.path().join("cache"));
    let mut digests = Vec::new();
    for form in Form::ALL {
        let path = directory.path().join(format!("{form:?}"));
        std::fs::write(&path, sample::compressed(form, &tar)).unwrap();
        let found = loaded(&Source::RootTar(path), &options).unwrap();
        assert_eq!(sample::listed(&found), ["/.wh.kept y", "/etc/name x"]);
        digests.push(found.digest);
    }
    assert!(digests.iter().all(|digest| *digest == crate::reference::Digest::from_bytes(&tar)));
}
