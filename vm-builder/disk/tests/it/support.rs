//! What several tests share: trees, programs of Debian, temporary images.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    reason = "helpers of tests, each test file uses some"
)]

pub mod any;

use neonvm_test_support::needs;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use neonvm_disk::image::Image;
use neonvm_disk::tree::{Content, Inode, Kind, Metadata, Origin, Piece, Time};

/// Whether a program is there, for a part of a test; if it is not, the test is counted as skipped.
pub fn have(program: &str) -> bool {
    needs::program(program).is_ok()
}

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

pub fn store(image: &dyn Image, directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    let file = File::create(&path).unwrap();
    neonvm_disk::raw::write(image, &file, &|_| {}).unwrap();
    path.to_str().unwrap().to_owned()
}

pub fn mode(mode: u16) -> Metadata {
    Metadata {
        mode,
        modified: Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 },
        ..Metadata::default()
    }
}

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

pub fn special(kind: Kind) -> Inode {
    Inode { metadata: mode(0o600), kind }
}

pub fn bytes(image: &dyn Image) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.length()).unwrap()];
    image.read_at(0, &mut bytes).unwrap();
    bytes
}
