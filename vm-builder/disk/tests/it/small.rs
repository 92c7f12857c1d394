//! ISO 9660, swap and raw disks.

use neonvm_test_support::{need, needs};
use std::collections::BTreeMap;

use crate::support::{directory, file, have, special, succeed};
use neonvm_disk::image::{Image, Memory};
use neonvm_disk::tree::{InodeId, Kind, Origin, Tree};
use neonvm_disk::{iso9660, raw, swap};
use proptest::prelude::*;

/// A file as Rock Ridge has it.
#[derive(Debug, Default, PartialEq)]
struct Found {
    primary: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    content: Vec<u8>,
}

fn number(bytes: &[u8], at: usize) -> usize {
    let [little, big] = [&bytes[at..at + 4], &bytes[at + 4..at + 8]];
    let value = u32::from_le_bytes(little.try_into().unwrap());
    assert_eq!(value, u32::from_be_bytes(big.try_into().unwrap()));
    value as usize
}

/// Reads system use, following it to other blocks.
fn system_use(image: &[u8], area: &[u8], name: &mut Vec<u8>, found: &mut Found) {
    let (mut at, mut next) = (0, None);
    while at + 4 <= area.len() {
        let field = &area[at..at + area[at + 2] as usize];
        match &field[..2] {
            b"PX" => {
                found.mode = number(field, 4) as u32;
                found.owner = (number(field, 20) as u32, number(field, 28) as u32);
            }
            b"NM" => name.extend(&field[5..]),
            b"CE" => {
                let start = number(field, 4) * 2048 + number(field, 12);
                assert!(number(field, 12) + number(field, 20) <= 2048);
                next = Some(&image[start..start + number(field, 20)]);
            }
            b"SP" | b"ER" => {}
            other => panic!("{other:?}"),
        }
        at += field.len();
    }
    if let Some(next) = next {
        system_use(image, next, name, found);
    }
}

/// All files of a volume by path.
fn walk(image: &[u8]) -> BTreeMap<Vec<u8>, Found> {
    assert_eq!(number(image, 16 * 2048 + 80) * 2048, image.len());
    let mut all = BTreeMap::new();
    let root = &image[16 * 2048 + 156..];
    let mut work = vec![(Vec::new(), number(root, 2) * 2048, number(root, 10))];
    while let Some((path, start, length)) = work.pop() {
        let bytes = &image[start..start + length];
        let (mut at, mut count, mut last) = (0, 0, Vec::new());
        while at < length {
            let size = bytes[at] as usize;
            if size == 0 {
                at = (at + 1).next_multiple_of(2048);
                continue;
            }
            assert!(at % 2048 + size <= 2048);
            let record = &bytes[at..at + size];
            at += size;
            let named = record[32] as usize;
            let mut found = Found { primary: record[33..33 + named].to_vec(), ..Found::default() };
            let mut name = Vec::new();
            system_use(image, &record[(33 + named).next_multiple_of(2)..], &mut name, &mut found);
            count += 1;
            if count <= 2 {
                continue;
            }
            assert!(found.primary > last, "{:?} after {last:?}", found.primary);
            last = found.primary.clone();
            let mut path = path.clone();
            path.push(b'/');
            path.extend(name);
            let place = (number(record, 2) * 2048, number(record, 10));
            if record[25] & 2 != 0 {
                work.push((path.clone(), place.0, place.1));
            } else {
                found.content = image[place.0..place.0 + place.1].to_vec();
            }
            assert!(all.insert(path, found).is_none());
        }
    }
    all
}

fn volume(tree: &Tree) -> Memory {
    iso9660::volume(tree, "vmruntime").unwrap()
}

#[test]
fn names_of_volumes() {
    let mut tree = Tree::new();
    let long = format!("{}.configuration", "n".repeat(60));
    let names = [
        "My.Config.YAML",
        "my_config.yaml",
        "command.sh",
        "resize-swap-internal.sh",
        "MOUNTS.SH",
        "a b",
        "noext",
        long.as_str(),
    ];
    for name in names {
        tree.insert(name.as_bytes(), file(name.as_bytes())).unwrap();
    }
    tree.make_directories(b"Some/Deep.Dir/a/b/c/d/e/f/g/h", &crate::support::mode(0o755)).unwrap();
    tree.insert(b"Some/Deep.Dir/file", file(b"deep")).unwrap();
    let image = volume(&tree).bytes;
    let seen = walk(&image);
    let primary =
        |name: &str| String::from_utf8(seen[format!("/{name}").as_bytes()].primary.clone()).unwrap();
    assert_eq!(primary("My.Config.YAML"), "my_config.yaml;1");
    assert_eq!(primary("my_config.yaml"), "my_config_1.yaml;1");
    assert_eq!(primary("command.sh"), "command.sh;1");
    assert_eq!(primary("resize-swap-internal.sh"), "resize-swap-internal.sh;1");
    assert_eq!(primary("a b"), "a_b;1");
    assert_eq!(primary("noext"), "noext;1");
    assert_eq!(primary(&long), format!("{}.configur;1", "n".repeat(19)));
    assert_eq!(primary("Some/Deep.Dir"), "deep_dir");
    assert_eq!(seen[b"/Some/Deep.Dir/file".as_slice()].content, b"deep");
    assert_eq!(volume(&tree).bytes, image);
    if have("file") {
        let directory = tempfile::tempdir().unwrap();
        let path = crate::support::store(&Memory::from(image), directory.path(), "iso");
        assert!(succeed("file", &[&path]).contains("ISO 9660 CD-ROM filesystem data 'vmruntime'"));
    }
    assert!(iso9660::volume(&tree, &"x".repeat(33)).is_err());
    tree.insert(b"link", special(Kind::Fifo)).unwrap();
    let error = iso9660::volume(&tree, "").unwrap_err().to_string();
    assert_eq!(error, "/link: only files and directories can be on a volume");
}

#[test]
fn swap_areas_are_those_of_mkswap() {
    assert!(swap::area(40_959, "", [0; 16]).is_err());
    assert!(swap::area(1 << 20, "sixteen letters!", [0; 16]).is_err());
    need!(needs::program("mkswap"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("swap");
    std::fs::File::create(&path).unwrap().set_len(5 << 20).unwrap();
    succeed(
        "mkswap",
        &["-q", "-L", "swapdisk", "-U", "00112233-4455-6677-8899-aabbccddeeff", path.to_str().unwrap()],
    );
    let uuid = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF];
    let ours = swap::area(5 << 20, "swapdisk", uuid).unwrap();
    assert!(crate::support::bytes(&ours) == std::fs::read(&path).unwrap());
}

#[test]
fn raw_disks_are_sparse() {
    let mut bytes = vec![0; 20 << 20];
    bytes[5_000_000..5_000_100].fill(1);
    bytes[(20 << 20) - 1] = 2;
    let directory = tempfile::tempdir().unwrap();
    let path = crate::support::store(&Memory::from(bytes.clone()), directory.path(), "raw");
    let stored = std::fs::File::open(&path).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&stored.metadata().unwrap()) * 512 <= 64 << 10);
    let reader = raw::Reader::open(stored).unwrap();
    assert!(crate::support::bytes(&reader) == bytes);
    assert!(reader.read_at(20 << 20, &mut [0]).is_err());
}

#[test]
fn paths_lead_through_trees() {
    let mut tree = Tree::new();
    let made = tree.make_directories(b"/a//b/./c", &crate::support::mode(0o700)).unwrap();
    assert_eq!(tree.lookup(b"a/b/c/"), Some(made));
    assert_eq!(tree.make_directories(b"a/b/c", &crate::support::mode(0)), Some(made));
    assert_eq!(tree.make_directories(b"a/../b", &crate::support::mode(0)), None);
    let id = tree.insert(b"a/f", file(b"x")).unwrap();
    assert_eq!(tree.lookup(b"/a/f"), Some(id));
    assert_eq!(tree.make_directories(b"a/f/g", &crate::support::mode(0)), None);
    assert_eq!(tree.insert(b"x/y", directory()), None);
    assert_eq!(tree.insert(b"/", directory()), None);
}

fn only_files(tree: &mut Tree, directory: InodeId) {
    for (name, id) in tree.names(directory).unwrap().clone() {
        match tree.get(id).unwrap().kind {
            Kind::Directory(_) => only_files(tree, id),
            Kind::File(_) => {}
            _ => _ = tree.unlink(directory, &name),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn volumes_hold_any_files(mut tree in crate::support::any::tree()) {
        let root = tree.root();
        only_files(&mut tree, root);
        let seen = walk(&volume(&tree).bytes);
        let mut work = vec![(Vec::new(), tree.root())];
        let mut count = 0;
        while let Some((above, id)) = work.pop() {
            for (name, id) in tree.names(id).unwrap() {
                count += 1;
                let path = [above.as_slice(), b"/", name].concat();
                let inode = tree.get(*id).unwrap();
                let found = &seen[&path];
                prop_assert_eq!(found.mode & 0o7777, u32::from(inode.metadata.mode));
                prop_assert_eq!(found.owner, (inode.metadata.uid, inode.metadata.gid));
                match &inode.kind {
                    Kind::Directory(_) => work.push((path, *id)),
                    Kind::File(content) => {
                        let mut right = vec![0; usize::try_from(content.length).unwrap()];
                        for piece in &content.pieces {
                            let Origin::Memory(bytes) = &piece.origin else { panic!("not in memory") };
                            let at = usize::try_from(piece.at).unwrap();
                            right[at..at + bytes.len()].copy_from_slice(bytes);
                        }
                        prop_assert!(found.content == right);
                    }
                    _ => unreachable!(),
                }
            }
        }
        prop_assert_eq!(count, seen.len());
    }
}
