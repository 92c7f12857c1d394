//! ext4 file systems, judged by `e2fsck`, `debugfs` and an independent reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::any::tree as any_tree;
use crate::support::{bytes, directory, file, have, run, special, store, succeed};
use neonvm_disk::ext4::{self, Error, FileSystem, Options};
use neonvm_disk::image::Image;
use neonvm_disk::tree::{Content, Inode, Kind, NoSources, Origin, Piece, Time, Tree};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn options(size: Option<u64>) -> Options {
    Options { size, label: "vmroot".to_owned(), uuid: [0x5A; 16], hash_seed: [7; 16], ..Options::default() }
}

/// Stores a file system and runs `e2fsck` on it; the message contains its findings.
fn checked(image: &dyn Image) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = store(image, directory.path(), "disk");
    if have("e2fsck") {
        let output = run("e2fsck", &["-fn", &path]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    directory
}

#[test]
fn empty_file_systems_of_many_sizes() {
    for size in [1, 2, 7, 8, 64, 127, 128, 129, 130, 1000, 2048, 2049, 3000, 10000, 20480] {
        let made = ext4::empty(&options(Some(size * MIB)));
        if size < 2 {
            assert!(made.is_err() || made.unwrap().length() == size * MIB);
            continue;
        }
        let made = made.unwrap();
        assert_eq!(made.length(), size * MIB);
        checked(&made);
    }
}

/// A tree with everything that is hard.
fn nasty() -> Tree {
    let mut tree = Tree::new();
    let root = tree.root();
    let mut put = |path: &str, inode: Inode| tree.insert(path.as_bytes(), inode).unwrap();
    put("etc", directory());
    put("etc/hello", file(b"hello, world\n"));
    put("etc/empty", file(b""));
    put("fast", special(Kind::Symlink(vec![b'f'; 59])));
    put("slow", special(Kind::Symlink(vec![b's'; 60])));
    put("slowest", special(Kind::Symlink(vec![b's'; 4095])));
    put("null", special(Kind::CharacterDevice { major: 1, minor: 3 }));
    put("whiteout", special(Kind::CharacterDevice { major: 0, minor: 0 }));
    put("big", special(Kind::BlockDevice { major: 259, minor: 70000 }));
    put("fifo", special(Kind::Fifo));
    put("socket", special(Kind::Socket));
    put(&"n".repeat(255), file(b"long name"));
    let one = put("one", file(&vec![1; 10000]));
    // Every second block of many: a deep extent tree.
    let pieces = |count: u64| -> Vec<Piece> {
        let origin = Origin::Memory(Arc::from([9u8; 4096].as_slice()));
        (0..count).map(|n| Piece { at: n * 8192, length: 4096, origin: origin.clone() }).collect()
    };
    for count in [4, 5, 340, 341, 1360, 1361, 3000] {
        let content = Content { length: count * 8192 + 5, pieces: pieces(count) };
        put(&format!("extents{count}"), special(Kind::File(content)));
    }
    let origin = Origin::Memory(Arc::from(b"tail".as_slice()));
    let far = Content { length: (5 << 30) + 4, pieces: vec![Piece { at: 5 << 30, length: 4, origin }] };
    put("sparse", special(Kind::File(far)));
    put("hole", special(Kind::File(Content { length: 1 << 40, pieces: vec![] })));
    put("many", directory());
    for number in 0..5000 {
        put(&format!("many/entry-with-some-name-{number}"), file(b"x"));
    }
    for (name, seconds, nanoseconds) in [
        ("t1901", -(1i64 << 31), 1),
        ("t1969", -1, 999_999_999),
        ("t2038", 1 << 31, 2),
        ("t2400", 13_569_465_600, 3),
    ] {
        let mut inode = file(b"time");
        inode.metadata.modified = Time { seconds, nanoseconds };
        inode.metadata.uid = 3_000_000_000;
        inode.metadata.gid = 70_000;
        put(name, inode);
    }
    put("attributes", with_attributes(&[("security.capability", 20)]));
    put(
        "attributes2",
        with_attributes(&[("security.capability", 20), ("user.big", 3000), ("trusted.overlay.opaque", 1)]),
    );
    put(
        "attributes3",
        with_attributes(&[("user.a", 0), ("user.bb", 80), ("user.c", 81), ("trusted.data", 3)]),
    );
    tree.link(root, b"two", one);
    tree.link(root, b"three", one);
    tree
}

fn with_attributes(all: &[(&str, usize)]) -> Inode {
    let mut inode = file(b"attributes");
    for (name, length) in all {
        inode.metadata.xattrs.insert(name.as_bytes().to_vec(), vec![b'v'; *length]);
    }
    // user:1000:rw-, as getxattr gives it.
    let mut list = vec![2, 0, 0, 0];
    for (tag, id) in [(1u8, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)] {
        list.extend([tag, 0, 6, 0]);
        list.extend(id.to_le_bytes());
    }
    inode.metadata.xattrs.insert(b"system.posix_acl_access".to_vec(), list);
    inode
}

#[test]
fn nasty_tree() {
    let tree = nasty();
    for size in [None, Some(200 * MIB), Some(20480 * MIB)] {
        let made = FileSystem::plan(&tree, &NoSources, &options(size)).unwrap();
        let directory = checked(&made);
        let path = directory.path().join("disk");
        let path = path.to_str().unwrap();
        if !have("debugfs") {
            continue;
        }
        let ask = |request: &str| succeed("debugfs", &["-R", request, path]);
        assert!(ask("stat null").contains("01:03"));
        assert!(ask("stat big").contains("259:70000"), "{}", ask("stat big"));
        assert!(ask("stat t2400").contains("User: -1294967296   Group: 70000"), "{}", ask("stat t2400"));
        assert!(ask("stat one").contains("Links: 3"));
        assert!(ask("ea_list attributes2").contains("user.big (3000)"));
        assert!(ask("ea_list attributes").contains("security.capability (20)"));
        assert!(ask("ea_list attributes").contains("system.posix_acl_access"));
        assert!(ask("cat etc/hello").contains("hello, world\n"));
        // By their bits alone: debugfs 1.47.2 shows other dates than the kernel.
        assert!(ask("stat t1901").contains("mtime: 0x80000000:00000004 -- "));
        assert!(ask("stat t1969").contains("mtime: 0xffffffff:ee6b27fc -- "));
        assert!(ask("stat t2038").contains("mtime: 0x80000000:00000009 -- "));
        let dump = directory.path().join("dump");
        ask(&format!("dump extents1361 {}", dump.display()));
        let got = std::fs::read(&dump).unwrap();
        assert_eq!(got.len(), 1361 * 8192 + 5);
        let right =
            |(number, block): (usize, &[u8])| block.iter().all(|b| *b == if number % 2 == 0 { 9 } else { 0 });
        assert!(got[..1361 * 8192].chunks(4096).enumerate().all(right));
    }
}

/// Permissions, time and content by path.
type Seen = BTreeMap<Vec<u8>, (u16, Time, Vec<u8>)>;

/// Everything an independent reader sees.
fn seen(image: Vec<u8>) -> Seen {
    let system = ext4_view::Ext4::load(Box::new(image)).unwrap();
    let mut found = BTreeMap::new();
    let mut work = vec![ext4_view::PathBuf::new(b"/")];
    while let Some(at) = work.pop() {
        for entry in system.read_dir(&at).unwrap() {
            let entry = entry.unwrap();
            if [b"." as &[u8], b".."].contains(&entry.file_name().as_ref()) {
                continue;
            }
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            let content = match metadata.file_type() {
                ext4_view::FileType::Regular => system.read(&path).unwrap(),
                ext4_view::FileType::Symlink => {
                    <ext4_view::PathBuf as AsRef<[u8]>>::as_ref(&system.read_link(&path).unwrap()).to_vec()
                }
                ext4_view::FileType::Directory => {
                    work.push(path.clone());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let time = metadata.modified();
            let time = Time { seconds: time.seconds(), nanoseconds: time.nanoseconds() };
            let path = <ext4_view::PathBuf as AsRef<[u8]>>::as_ref(&path).to_vec();
            found.insert(path, (metadata.mode() & 0o7777, time, content));
        }
    }
    found
}

/// What a reader must see of a tree.
fn expected(tree: &Tree) -> Seen {
    let mut found = BTreeMap::new();
    let mut work = vec![(Vec::new(), tree.root())];
    while let Some((at, id)) = work.pop() {
        for (name, id) in tree.names(id).unwrap() {
            let mut path = at.clone();
            path.push(b'/');
            path.extend(name);
            let inode = tree.get(*id).unwrap();
            let content = match &inode.kind {
                Kind::Directory(_) => {
                    work.push((path.clone(), *id));
                    Vec::new()
                }
                Kind::Symlink(target) => target.clone(),
                Kind::File(content) => {
                    let mut all = vec![0; usize::try_from(content.length).unwrap()];
                    for piece in &content.pieces {
                        let Origin::Memory(bytes) = &piece.origin else { panic!("not in memory") };
                        let at = usize::try_from(piece.at).unwrap();
                        let length = usize::try_from(piece.length).unwrap();
                        all[at..at + length].copy_from_slice(&bytes[..length]);
                    }
                    all
                }
                _ => Vec::new(),
            };
            found.insert(path, (inode.metadata.mode, inode.metadata.modified, content));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tree_comes_back(tree in any_tree(), size in prop_oneof![Just(None), Just(Some(24 * MIB)), Just(Some(300 * MIB))]) {
        let made = FileSystem::plan(&tree, &NoSources, &options(size)).unwrap();
        let directory = checked(&made);
        let mut seen = seen(std::fs::read(directory.path().join("disk")).unwrap());
        prop_assert!(seen.remove(b"/lost+found".as_slice()).is_some());
        prop_assert_eq!(seen, expected(&tree));
    }

    /// Reading in any pieces gives the same bytes as reading at once, and holes are zeros.
    #[test]
    fn reads_agree(tree in any_tree(), cuts in proptest::collection::vec((any::<u32>(), 1usize..300_000), 1..40)) {
        let made = FileSystem::plan(&tree, &NoSources, &options(None)).unwrap();
        let all = bytes(&made);
        for (at, count) in cuts {
            let at = usize::try_from(at).unwrap() % all.len();
            let count = count.min(all.len() - at);
            let mut part = vec![0xEE; count];
            made.read_at(at as u64, &mut part).unwrap();
            prop_assert!(part == all[at..at + count]);
            if made.is_hole(at as u64, count as u64) {
                prop_assert!(part.iter().all(|byte| *byte == 0));
            }
        }
    }
}

fn refused(inode: Inode, options: &Options) -> Error {
    let mut tree = Tree::new();
    tree.insert(b"a", directory()).unwrap();
    tree.insert(b"a/b", inode).unwrap();
    FileSystem::plan(&tree, &NoSources, options).unwrap_err()
}

#[test]
fn limits_are_named() {
    let all = options(None);
    let message = |inode: Inode| refused(inode, &all).to_string();
    assert_eq!(
        message(with_attributes(&[("user.huge", 5000)])),
        "/a/b: extended attribute `user.huge` of 5000 bytes does not fit: the attributes of a file share about 4 KiB"
    );
    assert_eq!(
        message(with_attributes(&[("os2.x", 1)])),
        "/a/b: extended attribute `os2.x` has a name that ext4 cannot store"
    );
    assert!(message(with_attributes(&[("system.nfs4_acl", 1)])).contains("a name that ext4 cannot store"));
    assert!(
        message(special(Kind::CharacterDevice { major: 4096, minor: 0 })).contains("/a/b: device 4096:0")
    );
    assert!(message(special(Kind::Symlink(vec![b'x'; 4096]))).contains("this one has 4096"));
    assert!(message(special(Kind::File(Content { length: 1 << 45, pieces: vec![] }))).contains("16 TiB"));
    let origin = Origin::Memory(Arc::from([0u8; 4].as_slice()));
    let pieces = vec![Piece { at: 2, length: 4, origin }];
    assert_eq!(
        refused(special(Kind::File(Content { length: 5, pieces })), &all),
        Error::Pieces { path: "/a/b".to_owned(), at: 2 }
    );
    let mut tree = Tree::new();
    let made = tree.insert(b"d", directory()).unwrap();
    tree.link(made, b"again", made);
    let error = FileSystem::plan(&tree, &NoSources, &all).unwrap_err();
    assert_eq!(error.to_string(), "/d/again: a directory can have only one name");
    let mut tree = Tree::new();
    tree.insert(&[b'x'; 256], directory()).unwrap();
    assert!(matches!(FileSystem::plan(&tree, &NoSources, &all), Err(Error::Name { length: 256, .. })));
}

#[test]
fn an_error_names_the_size_that_would_fit() {
    let content = file(&vec![7; 30 << 20]);
    let error = refused(content.clone(), &options(Some(16 * MIB)));
    let Error::DoesNotFit { size, needed } = error else { panic!("{error}") };
    assert_eq!(size, 16 * MIB);
    let mut tree = Tree::new();
    tree.insert(b"a", content).unwrap();
    checked(&FileSystem::plan(&tree, &NoSources, &options(Some(needed))).unwrap());
    assert!(FileSystem::plan(&tree, &NoSources, &options(Some(needed - MIB))).is_err());
    let mut tree = Tree::new();
    for number in 0..40_000 {
        tree.insert(format!("{number}").as_bytes(), special(Kind::Fifo)).unwrap();
    }
    let made = FileSystem::plan(&tree, &NoSources, &options(Some(64 * MIB)));
    assert!(matches!(made.unwrap_err(), Error::TooManyInodes { limit: 32768, .. }));
}

#[test]
fn many_names() {
    let mut tree = Tree::new();
    let place = tree.insert(b"d", directory()).unwrap();
    let one = tree.insert(b"one", file(b"1")).unwrap();
    for number in 0..100_000 {
        let inode = if number % 1000 < 2 { one } else { tree.add(special(Kind::Fifo)).unwrap() };
        tree.link(place, format!("name-{number:x}").as_bytes(), inode);
    }
    for number in 0..66_000 {
        tree.insert(format!("d{number}").as_bytes(), directory()).unwrap();
    }
    checked(&FileSystem::plan(&tree, &NoSources, &options(None)).unwrap());
}

#[test]
fn same_tree_same_bytes() {
    let tree = nasty();
    let one = FileSystem::plan(&tree, &NoSources, &options(None)).unwrap();
    let two = FileSystem::plan(&tree, &NoSources, &options(None)).unwrap();
    assert!(bytes(&one) == bytes(&two));
    let system = ext4_view::Ext4::load(Box::new(bytes(&one))).unwrap();
    assert_eq!(system.label().to_str().unwrap(), "vmroot");
}
