//! Every source with every kind of attribute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use neonvm_disk::ext4::{FileSystem, Options};
use neonvm_test_support::{Missing, Need, need, needs};
use proptest::prelude::*;

use super::*;
use crate::layer::writer::Writer;
use crate::source::sample::{self, Form};
use crate::source::{Loaded, Quiet, Source, load};
use crate::store::Store;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Kept,
    Dropped,
    Refused,
    /// It describes the host that the directory is on: kept of archives; left out of directories, with the warning.
    OfHost,
}
use Outcome::{Dropped as Gone, Kept, OfHost, Refused};

/// A file capability of version 2: `cap_net_raw+ep`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A list of POSIX as system calls have it: `user:1000:rw-` and what belongs to it.
fn list() -> Vec<u8> {
    let mut list = vec![2, 0, 0, 0];
    for (tag, id) in [(1u8, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)] {
        list.extend([tag, 0, 6, 0]);
        list.extend(id.to_le_bytes());
    }
    list
}

fn nfs4(who: &str) -> Vec<u8> {
    let length = u32::try_from(who.len()).unwrap();
    let mut list: Vec<u8> = [1, 0, 0, 7, length].into_iter().flat_map(u32::to_be_bytes).collect();
    list.extend(who.as_bytes());
    list.resize(list.len().next_multiple_of(4), 0);
    list
}

fn table() -> Vec<(&'static [u8], Vec<u8>, Outcome)> {
    vec![
        (b"security.capability", CAPABILITY.to_vec(), Kept),
        (b"system.posix_acl_access", list(), Kept),
        (b"system.posix_acl_default", list(), Kept),
        (b"user.note", b"text".to_vec(), Kept),
        (b"user.empty", vec![], Kept),
        (b"user.\xff=%3D\n\x01", b"odd\n\0".to_vec(), Kept),
        (b"user.big", vec![7; 5000], Gone),
        (b"trusted.note", b"text".to_vec(), Kept),
        (b"trusted.big", vec![7; 5000], Gone),
        (b"com.apple.provenance", vec![1; 11], Gone),
        (b"system.nfs4_acl", nfs4("EVERYONE@"), Gone),
        (b"system.nfs4_acl", nfs4("joe@example.com"), Refused),
        (b"security.selinux", b"system_u:object_r:bin_t:s0\0".to_vec(), OfHost),
        (b"security.ima", vec![4; 30], OfHost),
        (b"security.huge", vec![7; 5000], Refused),
        (b"system.posix_acl_access", b"broken".to_vec(), Refused),
    ]
}

fn loaded(source: &Source, cache: &Path) -> Loaded {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(load(source, &sample::options(cache), &Quiet)).unwrap()
}

/// A directory `d` with one attribute, as an archive.
fn archive(name: &[u8], value: &[u8], is_libarchive: bool) -> Vec<u8> {
    let (key, value) = if is_libarchive {
        let coded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        let value = base64::engine::general_purpose::STANDARD_NO_PAD.encode(value);
        ([b"LIBARCHIVE.xattr.", coded.as_bytes()].concat(), value.into_bytes())
    } else {
        let coded = name.iter().flat_map(|byte| match byte {
            b'=' => b"%3D".to_vec(),
            b'%' => b"%25".to_vec(),
            other => vec![*other],
        });
        (b"SCHILY.xattr.".iter().copied().chain(coded).collect(), value.to_vec())
    };
    let record = crate::layer::writer::record_of(&key, &value);
    let header = crate::layer::writer::header(b"pax", b'x', record.len() as u64, |_| {});
    Writer::default().raw(header, &record).directory("d", 0o755).end()
}

fn layer(place: &Path, name: &[u8], value: &[u8]) -> Need<Source> {
    let image = sample::image(&[archive(name, value, false)], Form::Gzip, "amd64");
    Store::open(&place.join("layout")).unwrap().put(&image, &"x:1".parse().unwrap()).unwrap();
    Ok(Source::OciLayout { path: place.join("layout"), name: None })
}

fn tar(place: &Path, bytes: &[u8]) -> Source {
    let path = place.join("root.tar");
    std::fs::write(&path, bytes).unwrap();
    Source::RootTar(path)
}

/// A directory with `d`; missing if the host's file system does not take the attribute.
fn directory(place: &Path, name: &[u8], value: &[u8]) -> Need<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let root = place.join("root");
    std::fs::create_dir_all(root.join("d")).unwrap();
    let shown = std::ffi::OsStr::from_bytes(name);
    let set = rustix::fs::lsetxattr(root.join("d"), shown, value, rustix::fs::XattrFlags::empty());
    set.map_err(|error| Missing::unavailable(format!("{shown:?} on this file system: {error}")))?;
    Ok(root)
}

type Make = fn(&Path, &[u8], &[u8]) -> Need<Source>;

const ARCHIVES: [(&str, Make); 3] = [
    ("layer", layer),
    ("tar", |place, name, value| Ok(tar(place, &archive(name, value, false)))),
    ("tar of libarchive", |place, name, value| Ok(tar(place, &archive(name, value, true)))),
];

fn attributes_of(tree: &Tree) -> BTreeMap<Bytes, Bytes> {
    let id = tree.child(tree.root(), b"d").unwrap();
    tree.get(id).unwrap().metadata.xattrs.clone()
}

fn check(what: &str, mut loaded: Loaded, (name, value, becomes): &(&[u8], Vec<u8>, Outcome), is_host: bool) {
    let what = format!("{what}: {}", name.escape_ascii());
    let outcome = settle(&mut loaded.tree, &*loaded.sources);
    let left = attributes_of(&loaded.tree);
    match becomes {
        OfHost if is_host => {
            let expected = format!(
                "1 extended attribute of 1 file left out, which describe this host: {} (1); the first is at /d",
                name.escape_ascii()
            );
            assert_eq!(outcome.unwrap(), Some(expected), "{what}");
            assert!(left.is_empty(), "{what}: {left:?}");
        }
        Refused => {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("/d: extended attribute"), "{what}: {error}");
            return;
        }
        Gone => {
            let text = outcome.unwrap().unwrap_or_else(|| panic!("{what}: no warning"));
            let shown = String::from_utf8_lossy(name).escape_debug().to_string();
            let expected =
                format!("1 extended attribute of 1 file left out, which ext4 cannot store: {shown} (1)");
            assert!(text.starts_with(&expected) && text.ends_with("; the first is at /d"), "{what}: {text}");
            assert!(left.is_empty(), "{what}: {left:?}");
        }
        Kept | OfHost => {
            assert_eq!(outcome.unwrap(), None, "{what}");
            let expected = BTreeMap::from([(name.to_vec(), value.clone())]);
            assert_eq!(left, expected, "{what}");
        }
    }
    FileSystem::plan(&loaded.tree, &*loaded.sources, &Options::default()).unwrap();
}

#[test]
fn archives_keep_every_kind_of_attribute_or_report_what_is_left_out() {
    for row in table() {
        for (what, make) in ARCHIVES {
            let place = tempfile::tempdir().unwrap();
            let source = need!(make(place.path(), row.0, &row.1));
            check(what, loaded(&source, &place.path().join("cache")), &row, false);
        }
    }
}

#[test]
fn directories_keep_every_kind_of_attribute_or_report_what_is_left_out() {
    need!(needs::root());
    // tmpfs takes larger attributes than ext4.
    let memory = Path::new("/dev/shm");
    let memory = if memory.is_dir() { memory } else { Path::new("/tmp") };
    let mut tried = Vec::new();
    for row in table() {
        let place = tempfile::tempdir_in(memory).unwrap();
        // Linux takes no names of other systems, and no broken lists.
        let Ok(root) = directory(place.path(), row.0, &row.1) else { continue };
        check("dir", loaded(&Source::RootTree(root), &place.path().join("cache")), &row, true);
        tried.push(row.0);
    }
    for needed in [
        &b"security.capability"[..],
        b"security.ima",
        b"system.posix_acl_access",
        b"user.note",
        b"trusted.note",
    ] {
        assert!(tried.contains(&needed), "{}", needed.escape_ascii());
    }
}

#[test]
fn the_lists_of_tar_are_read_with_the_users_of_the_image() {
    let with = |key: &str, text: &str| {
        Writer::default()
            .file("etc/passwd", b"joe:x:1000:100::/:\n")
            .file("etc/group", b"staff:x:50:\n")
            .pax(&[(key, text.as_bytes())])
            .directory("d", 0o755)
            .end()
    };
    let settled = |key: &str, text: &str| {
        let place = tempfile::tempdir().unwrap();
        let mut loaded = loaded(&tar(place.path(), &with(key, text)), &place.path().join("cache"));
        let outcome = settle(&mut loaded.tree, &*loaded.sources);
        outcome.map(|_| attributes_of(&loaded.tree)).map_err(|error| error.to_string())
    };
    let long = "user::rw-\nuser:joe:rw-\ngroup::rw-\nmask::rw-\nother::rw-\n";
    for text in
        [long, "u::rw,u:1000:rw,g::rw,m:rw,o:rw", "user::rw-,user:x:rw-:1000,group::rw-,mask::rw-,other::rw-"]
    {
        for (key, name) in [("SCHILY.acl.access", ACCESS), ("SCHILY.acl.default", DEFAULT)] {
            assert_eq!(settled(key, text), Ok(BTreeMap::from([(name.to_vec(), list())])), "{key} {text}");
        }
    }
    for (key, text) in [
        ("SCHILY.acl.access", "user::rwx,group::r-x,other::r-x"),
        ("SCHILY.acl.ace", "owner@:rwxp--aARWcCos:-------:allow,everyone@:r-----a-R-c--s:-------:allow"),
    ] {
        assert_eq!(settled(key, text), Ok(BTreeMap::new()), "{text}");
    }
    for (key, text, expected) in [
        (
            "SCHILY.acl.access",
            "user::rw-,user:ann:rw-,group::r--,mask::rw-,other::r--",
            "user \"ann\" is not in",
        ),
        ("SCHILY.acl.access", "user::rw-,group:wheel:rw-,group::r--,mask::rw-,other::r--", "group \"wheel\""),
        ("SCHILY.acl.access", "user::rw-,group:staff:rw-,group::r--,other::r--", "no mask"),
        ("SCHILY.acl.access", "user::rw-", "needs one entry each"),
        ("SCHILY.acl.default", "user::rwq,group::r--,other::r--", "is no entry"),
        ("SCHILY.acl.ace", "user:joe:rwx:allow:1000", "lists of POSIX only"),
    ] {
        let error = settled(key, text).unwrap_err();
        assert!(error.starts_with("/d: the access control list") && error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_of_a_list_is_read(text: Vec<u8>, near in "((user|group|mask|other|u|g)(:[a-z0-9]{0,3}){0,3}:[rwx-]{0,3}[,\n]?){0,6}") {
        let accounts = Accounts::default();
        let _ = (posix(&text, &accounts), of_three(&text), posix(near.as_bytes(), &accounts));
    }
}
