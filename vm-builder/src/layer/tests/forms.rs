//! Forms of headers that programs write.

use neonvm_disk::tree::Time;

use super::*;
use crate::layer::writer::{Writer, binary, header, record};
use crate::layer::{Entry, EntryKind, Run};

fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut archive = Archive::new("x", Cursor::new(bytes)).unwrap();
    std::iter::from_fn(|| archive.next_entry().unwrap()).collect()
}

fn one(bytes: &[u8]) -> Entry {
    let [entry] = entries(bytes).try_into().unwrap();
    entry
}

#[test]
fn extended_headers_override_and_global_ones_do_not() {
    let long = format!("{}/name", "d".repeat(200));
    let bytes = Writer::default()
        .raw(header(b"pax_global_header", b'g', 29, |_| {}), &record("comment", b"xxxxxxxxxxxxxxxxx"))
        .pax(&[
            ("path", long.as_bytes()),
            ("uid", b"3000000000"),
            ("gid", b"7"),
            ("mtime", b"-1.25"),
            ("SCHILY.xattr.user.a", b"x\n=\0y"),
            ("LIBARCHIVE.xattr.user.b%20c", b"AAE"),
            ("size", b"3"),
        ])
        .raw(header(b"short", b'0', 0, |_| {}), b"abc")
        .file("next", b"n")
        .end();
    let [entry, next] = entries(&bytes).try_into().unwrap();
    assert_eq!(entry.path, long.as_bytes());
    assert_eq!((entry.uid, entry.gid), (3_000_000_000, 7));
    assert_eq!(entry.modified, Time { seconds: -2, nanoseconds: 750_000_000 });
    assert_eq!(entry.xattrs[b"user.a".as_slice()], b"x\n=\0y");
    assert_eq!(entry.xattrs[b"user.b c".as_slice()], [0, 1]);
    assert!(matches!(entry.kind, EntryKind::File { length: 3, .. }));
    assert_eq!((next.path.as_slice(), next.uid), (b"next".as_slice(), 0));
}

#[test]
fn long_names_of_gnu_and_prefixes_of_posix() {
    let long = "n".repeat(300);
    let bytes = Writer::default()
        .raw(header(b"././@LongLink", b'K', 301, |_| {}), format!("{long}\0").as_bytes())
        .raw(header(b"././@LongLink", b'L', 301, |_| {}), format!("{long}\0").as_bytes())
        .link(b'2', "cut", "cut")
        .raw(header(b"tail", b'0', 0, |block| block[345..349].copy_from_slice(b"head")), b"")
        .raw(header(b"old/", 0, 0, |block| block[257..265].fill(0)), b"")
        .end();
    let [link, prefixed, old] = entries(&bytes).try_into().unwrap();
    assert_eq!((link.path, link.link), (long.clone().into_bytes(), long.into_bytes()));
    assert_eq!(prefixed.path, b"head/tail");
    assert_eq!(old.kind, EntryKind::Directory);
}

#[test]
fn numbers_in_base_256_and_devices() {
    let bytes = Writer::default()
        .raw(
            header(b"dev", b'3', 0, |block| {
                block[108..116].copy_from_slice(&binary(4_000_000_000, 8));
                block[136..148].copy_from_slice(&binary(-5, 12));
                block[329..337].copy_from_slice(b"0000005\0");
                block[337..345].copy_from_slice(b"0000001\0");
                block[100..108].copy_from_slice(b"0024620\0");
            }),
            b"",
        )
        .end();
    let entry = one(&bytes);
    assert_eq!(entry.kind, EntryKind::CharacterDevice(5, 1));
    assert_eq!((entry.uid, entry.modified.seconds, entry.mode), (4_000_000_000, -5, 0o4620));
}

fn gnu_sparse(block: &mut [u8; 512], map: &[(u64, u64)], real: u64, more: bool) {
    block[257..265].copy_from_slice(b"ustar  \0");
    for (index, (offset, length)) in map.iter().enumerate() {
        let text = format!("{offset:011o}\0{length:011o}\0");
        block[386 + index * 24..][..24].copy_from_slice(text.as_bytes());
    }
    block[482] = u8::from(more);
    block[483..495].copy_from_slice(format!("{real:011o}\0").as_bytes());
}

#[test]
fn all_forms_of_sparse_files_are_one() {
    let data = [[b'a'; 512], [b'b'; 512]].concat();
    let plain = Writer::default().raw(
        header(b"s", b'S', 1024, |block| gnu_sparse(block, &[(1024, 512), (4096, 512)], 8192, false)),
        &data,
    );
    let mut extension = [0; 512];
    extension[..24].copy_from_slice(format!("{:011o}\0{:011o}\0", 4096, 512).as_bytes());
    let extended = Writer::default().raw(
        header(b"s", b'S', 1024, |block| gnu_sparse(block, &[(1024, 512)], 8192, true)),
        &[&extension[..], &data].concat(),
    );
    let zero = Writer::default()
        .pax(&[
            ("GNU.sparse.size", b"8192"),
            ("GNU.sparse.numblocks", b"2"),
            ("GNU.sparse.offset", b"1024"),
            ("GNU.sparse.numbytes", b"512"),
            ("GNU.sparse.offset", b"4096"),
            ("GNU.sparse.numbytes", b"512"),
        ])
        .file("s", &data);
    let one_ = Writer::default()
        .pax(&[
            ("GNU.sparse.size", b"8192"),
            ("GNU.sparse.name", b"s"),
            ("GNU.sparse.map", b"1024,512,4096,512"),
        ])
        .file("GNUSparseFile.1/s", &data);
    let mut map = b"2\n1024\n512\n4096\n512\n".to_vec();
    map.resize(512, 0);
    let stored = Writer::default()
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"s"),
            ("GNU.sparse.realsize", b"8192"),
        ])
        .file("GNUSparseFile.1/s", &[map, data.clone()].concat());
    for writer in [plain, extended, zero, one_, stored] {
        let bytes = writer.file("after", b"z").end();
        let [entry, after] = entries(&bytes).try_into().unwrap();
        assert_eq!((entry.path.as_slice(), after.path.as_slice()), (b"s".as_slice(), b"after".as_slice()));
        let EntryKind::File { length, runs } = entry.kind else { panic!("no file") };
        assert_eq!(length, 8192);
        let read = |run: &Run| bytes[run.offset as usize..][..run.length as usize].to_vec();
        let found: Vec<_> = runs.iter().map(|run| (run.at, read(run))).collect();
        assert_eq!(found, [(1024, vec![b'a'; 512]), (4096, vec![b'b'; 512])]);
    }
}

/// Why layers are not read by the `tar` crate: what its version 0.4.46 makes of archives that programs write. When one of these
/// assertions fails, the crate has learned to read such archives.
#[test]
fn the_tar_crate_loses_extended_attributes_and_sparse_files() {
    use std::io::Read as _;
    let value = b"\x01\n\x00\x02";
    let with_attribute =
        Writer::default().pax(&[("SCHILY.xattr.security.capability", value)]).file("ping", b"").end();
    assert_eq!(one(&with_attribute).xattrs[b"security.capability".as_slice()], value);
    let mut archive = tar::Archive::new(Cursor::new(&with_attribute));
    let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
    let mut records = entry.pax_extensions().unwrap().unwrap();
    assert!(records.any(|record| record.is_err()), "it ends a record at the newline in the value");

    let mut map = b"1\n1024\n1\n".to_vec();
    map.resize(512, 0);
    map.push(b'a');
    let sparse = Writer::default()
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"s"),
            ("GNU.sparse.realsize", b"1025"),
        ])
        .file("GNUSparseFile.1/s", &map)
        .end();
    assert!(matches!(one(&sparse).kind, EntryKind::File { length: 1025, .. }));
    let mut archive = tar::Archive::new(Cursor::new(&sparse));
    let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
    let mut content = Vec::new();
    entry.read_to_end(&mut content).unwrap();
    assert_eq!((entry.path_bytes().to_vec(), content), (b"GNUSparseFile.1/s".to_vec(), map));
}

#[test]
fn an_end_may_be_short_but_not_a_file() {
    let bytes = Writer::default().file("a", b"abc").end();
    assert_eq!(entries(&bytes[..1024]).len(), 1);
    assert_eq!(entries(&bytes[..512 + 3]).len(), 1);
    assert_eq!(entries(&[]).len(), 0);
    for cut in [100, 511, 513, 514] {
        let mut archive = Archive::new("x", Cursor::new(&bytes[..cut])).unwrap();
        assert!(archive.next_entry().is_err(), "{cut}");
    }
}
