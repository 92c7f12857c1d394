//! qcow2 files, judged by `qemu-img`, and those of `qemu-img` read.

use neonvm_test_support::{need, needs};
use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;

use crate::support::{bytes, have, store, succeed};
use neonvm_disk::image::{Image, Memory};
use neonvm_disk::qcow2::{Error, Reader, write};
use neonvm_disk::raw;
use proptest::prelude::*;

/// A disk with zeros, text, noise and runs, the same for a seed.
fn disk(seed: u64, length: usize) -> Memory {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 65536);
    while bytes.len() < length {
        let count = usize::try_from(next() % 200_000).unwrap();
        match next() % 4 {
            0 => bytes.extend(std::iter::repeat_n(0, count)),
            1 => bytes.extend((0..count).map(|n| b"a line of text that comes again and again\n"[n % 41])),
            2 => bytes.extend((0..count).map(|_| next().to_le_bytes()[0])),
            _ => bytes.extend(std::iter::repeat_n(next().to_le_bytes()[0], count)),
        }
    }
    bytes.truncate(length);
    Memory::from(bytes)
}

fn written(image: &dyn Image) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    write(image, &mut out, &|_| {}).unwrap();
    out.into_inner()
}

#[test]
fn qemu_reads_what_we_write() {
    need!(needs::program("qemu-img"));
    let directory = tempfile::tempdir().unwrap();
    let image = disk(5, 7_000_064);
    let path = directory.path().join("disk.qcow2");
    std::fs::write(&path, written(&image)).unwrap();
    let path = path.to_str().unwrap();
    let raw = store(&image, directory.path(), "disk.raw");
    let text = succeed("qemu-img", &["check", path]);
    assert!(text.contains("No errors were found"), "{text}");
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &raw, path]);
    // Written to by QEMU, it stays right.
    if have("qemu-io") {
        succeed("qemu-io", &["-c", "write -P 7 100k 3M", "-c", "write -z 5M 100k", path]);
        let text = succeed("qemu-img", &["check", path]);
        assert!(text.contains("No errors were found"), "{text}");
    }
}

#[test]
fn a_large_disk_of_holes() {
    let image = Memory { bytes: vec![1; 100], length: 1 << 40 };
    let last = Cell::new(0);
    let mut file = Cursor::new(Vec::new());
    let progress = |done| {
        assert!(done >= last.get());
        last.set(done);
    };
    write(&image, &mut file, &progress).unwrap();
    assert_eq!(last.get(), 1 << 40);
    let reader = Reader::open(Memory::from(file.into_inner())).unwrap();
    assert!(reader.is_hole(4 << 20, 1 << 39));
    let check = reader.check().unwrap();
    assert_eq!((check.compressed, check.plain, check.leaked), (1, 0, 0));
    let image = Memory { bytes: Vec::new(), length: 1 << 52 };
    let error = write(&image, Cursor::new(Vec::new()), &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "a disk of 4503599627370496 bytes is not supported");
}

#[test]
fn what_qemu_writes_is_read() {
    need!(needs::program("qemu-img"));
    let directory = tempfile::tempdir().unwrap();
    let image = disk(77, 9_000_448);
    let raw = store(&image, directory.path(), "disk.raw");
    let path = directory.path().join("disk.qcow2");
    let path = path.to_str().unwrap();
    let all: [&[&str]; 7] = [
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "compression_type=zlib"],
        &["-c", "-o", "compat=0.10"],
        &["-o", "compat=0.10"],
        &["-o", "cluster_size=2M,lazy_refcounts=on"],
        &["-c", "-o", "cluster_size=512"],
        &["-o", "refcount_bits=1"],
    ];
    for extra in all {
        let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2"];
        arguments.extend(extra);
        arguments.extend([raw.as_str(), path]);
        succeed("qemu-img", &arguments);
        let reader = opened(Path::new(path)).unwrap();
        assert_eq!(reader.length(), image.length);
        assert!(bytes(&reader) == image.bytes, "{extra:?}");
        reader.check().unwrap();
        assert_eq!(reader.version(), if extra.iter().any(|word| word.contains("compat")) { 2 } else { 3 });
        for at in (0..image.bytes.len() - 70_000).step_by(130_001) {
            if reader.is_hole(at as u64, 70_000) {
                assert!(image.bytes[at..at + 70_000].iter().all(|byte| *byte == 0));
            }
        }
    }
}

fn opened(path: &Path) -> Result<Reader<raw::Reader>, Error> {
    Reader::open(raw::Reader::open(std::fs::File::open(path).unwrap()).unwrap())
}

#[test]
fn overlays() {
    need!(needs::programs(&["qemu-img", "qemu-io"]));
    let directory = tempfile::tempdir().unwrap();
    let image = disk(3, 1_000_448);
    let raw = store(&image, directory.path(), "base.raw");
    let path = directory.path().join("top.qcow2");
    let path = path.to_str().unwrap();
    succeed("qemu-img", &["create", "-f", "qcow2", "-F", "raw", "-b", &raw, path, "2M"]);
    succeed("qemu-io", &["-c", "write -P 9 128k 64k", "-c", "write -z 256k 64k", path]);
    let error = opened(Path::new(path)).unwrap_err().to_string();
    assert!(error.contains("backing file") && error.contains("base.raw"), "{error}");
    let source = raw::Reader::open(std::fs::File::open(path).unwrap()).unwrap();
    let base = image.clone();
    let reader = Reader::open_with(source, |name| {
        assert_eq!(name, raw.as_bytes());
        Ok(Box::new(base))
    })
    .unwrap();
    let mut right = image.bytes;
    right.resize(2 << 20, 0);
    right[128 << 10..192 << 10].fill(9);
    right[256 << 10..320 << 10].fill(0);
    assert!(bytes(&reader) == right);
    assert!(reader.is_hole(256 << 10, 64 << 10) && !reader.is_hole(0, 4096));
    reader.check().unwrap();
    succeed("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "extended_l2=on", path, "1M"]);
    assert!(opened(Path::new(path)).unwrap_err().to_string().contains("extended L2"));
}

#[test]
fn what_is_not_supported_is_named() {
    let good = written(&disk(1, 100_000));
    let refused = |at: usize, value: u8| {
        let mut file = good.clone();
        file[at] = value;
        Reader::open(Memory::from(file)).unwrap_err().to_string()
    };
    assert_eq!(refused(35, 2), "encryption is not supported");
    assert_eq!(refused(79, 8 | 2), "a file marked as corrupt is not supported");
    assert_eq!(refused(79, 8 | 4), "an external data file is not supported");
    assert_eq!(refused(7, 4), "qcow2 version 4 is not supported");
    assert_eq!(refused(104, 2), "compression type 2 is not supported");
    assert_eq!(refused(0, 0), "not a qcow2 file");
    assert!(refused(40, 1).starts_with("corrupt qcow2 file: first-level table: at byte "));
    // Marked as dirty, it is read.
    let mut file = good.clone();
    file[79] |= 1;
    Reader::open(Memory::from(file)).unwrap();
}

#[test]
fn failures_end_it() {
    struct Broken;
    impl Image for Broken {
        fn length(&self) -> u64 {
            100 << 20
        }
        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            into.fill(1);
            let is_there = (offset..offset + into.len() as u64).contains(&(50 << 20));
            if is_there { Err(std::io::Error::other("/a/file: gone")) } else { Ok(()) }
        }
    }
    let error = write(&Broken, Cursor::new(Vec::new()), &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "image: /a/file: gone");
    let mut full = [0; 1 << 16];
    let error = write(&disk(1, 9 << 20), Cursor::new(&mut full[..]), &|_| {}).unwrap_err();
    assert!(error.to_string().starts_with("output: "), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trip(seed in any::<u64>(), length in 0usize..1_500_000) {
        let image = disk(seed, length);
        let file = written(&image);
        let reader = Reader::open(Memory::from(file)).unwrap();
        let mut right = image.bytes;
        right.resize(length.next_multiple_of(512), 0);
        prop_assert_eq!(reader.length(), right.len() as u64);
        prop_assert!(bytes(&reader) == right);
        prop_assert_eq!(reader.check().unwrap().leaked, 0);
    }

    #[test]
    fn any_bytes_are_no_danger(bytes in proptest::collection::vec(any::<u8>(), 0..2000), good in any::<bool>()) {
        let mut bytes = bytes;
        if good && bytes.len() > 8 {
            bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        }
        let _ = Reader::open(Memory::from(bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// A damaged file is refused or read wrong, but nothing worse happens.
    #[test]
    fn damage_is_no_danger(flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6)) {
        let mut file = written(&disk(9, 300_000));
        let length = file.len();
        for (place, byte, early) in flips {
            // The head and tables are small: half of the damage goes there.
            let at = if early { place.index(120) } else { place.index(length) };
            file[at] ^= byte;
        }
        if let Ok(reader) = Reader::open(Memory::from(file)) {
            let _ = reader.check();
            let count = reader.length().min(400_000);
            let mut into = vec![0; usize::try_from(count).unwrap()];
            let _ = reader.read_at(0, &mut into);
            let _ = reader.is_hole(0, count);
        }
    }
}
