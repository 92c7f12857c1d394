//! What several tests share: a tree of the host's files, programs of Debian, temporary images.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests, each test file uses some"
)]

pub mod any;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use neonvm_disk::image::Image;
use neonvm_disk::tree::{
    Content, Inode, InodeId, Kind, Metadata, Origin, Piece, SourceId, Sources, Time, Tree,
};

/// Whether a program is there; says so if it is not.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|directory| directory.join(program).is_file())
    });
    if !found {
        eprintln!("SKIP {program}: not installed");
    }
    found
}

/// Runs a program.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .output()
        .unwrap()
}

/// Runs a program that must succeed; what it printed.
pub fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    text
}

/// Stores an image in a file of a directory.
pub fn store(image: &dyn Image, directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    let file = File::create(&path).unwrap();
    neonvm_disk::raw::write(image, &file, &|_| {}).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Metadata with a mode.
pub fn mode(mode: u16) -> Metadata {
    Metadata {
        mode,
        modified: Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 },
        ..Metadata::default()
    }
}

/// A file in memory.
pub fn file(bytes: &[u8]) -> Inode {
    let length = bytes.len() as u64;
    let origin = Origin::Memory(bytes.into());
    let pieces = if length == 0 { vec![] } else { vec![Piece { at: 0, length, origin }] };
    Inode { metadata: mode(0o644), kind: Kind::File(Content { length, pieces }) }
}

/// An empty directory.
pub fn directory() -> Inode {
    Inode { metadata: mode(0o755), kind: Kind::Directory(BTreeMap::new()) }
}

/// Anything.
pub fn special(kind: Kind) -> Inode {
    Inode { metadata: mode(0o600), kind }
}

/// The whole of an image.
pub fn bytes(image: &dyn Image) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.length()).unwrap()];
    image.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Files of the host by number.
#[derive(Debug, Default)]
pub struct Host(Vec<PathBuf>);

impl Sources for Host {
    fn read_exact_at(&self, source: SourceId, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        File::open(&self.0[source.0 as usize])?.read_exact_at(into, offset)
    }
}

/// A tree of a directory of the host.
pub fn host(root: &Path) -> (Tree, Host) {
    let (mut tree, mut sources) = (Tree::new(), Host::default());
    let mut links = BTreeMap::new();
    let mut work = vec![(root.to_owned(), tree.root())];
    while let Some((path, into)) = work.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let status = entry.path().symlink_metadata().unwrap();
            let key = (status.dev(), status.ino());
            if let Some(id) = links.get(&key) {
                tree.link(into, entry.file_name().as_bytes(), *id);
                continue;
            }
            let id = add(&mut tree, &mut sources, &entry.path(), &status);
            tree.link(into, entry.file_name().as_bytes(), id);
            if status.is_dir() {
                work.push((entry.path(), id));
            } else {
                links.insert(key, id);
            }
        }
    }
    (tree, sources)
}

fn add(tree: &mut Tree, sources: &mut Host, path: &Path, status: &std::fs::Metadata) -> InodeId {
    let device = status.rdev();
    let major = u32::try_from((device >> 8) & 0xFFF).unwrap();
    let minor = u32::try_from((device & 0xFF) | ((device >> 12) & 0xF_FF00)).unwrap();
    let kind = status.file_type();
    let kind = if kind.is_dir() {
        Kind::Directory(BTreeMap::new())
    } else if kind.is_symlink() {
        Kind::Symlink(std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec())
    } else if kind.is_char_device() {
        Kind::CharacterDevice { major, minor }
    } else if kind.is_block_device() {
        Kind::BlockDevice { major, minor }
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else {
        let source = SourceId(u32::try_from(sources.0.len()).unwrap());
        sources.0.push(path.to_owned());
        let length = status.len();
        let piece = Piece { at: 0, length, origin: Origin::Source { source, offset: 0 } };
        Kind::File(Content { length, pieces: if length == 0 { vec![] } else { vec![piece] } })
    };
    let metadata = Metadata {
        mode: u16::try_from(status.mode() & 0o7777).unwrap(),
        uid: status.uid(),
        gid: status.gid(),
        modified: Time { seconds: status.mtime(), nanoseconds: u32::try_from(status.mtime_nsec()).unwrap() },
        xattrs: BTreeMap::new(),
    };
    tree.add(Inode { metadata, kind }).unwrap()
}
