//! A real tree, against `mke2fs -d` and `qemu-img convert`: run by hand with a release build,
//! `DISK_TREE=/path cargo test --release -p neonvm-disk --test real -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use neonvm_disk::{ext4, qcow2, raw};
use support::{host, succeed};

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().filter(|line| line.starts_with("VmHWM")).collect()
}

#[test]
#[ignore = "needs a tree and a release build"]
fn real_tree() {
    let Some(root) = std::env::var_os("DISK_TREE") else {
        println!("SKIP real tree: DISK_TREE is not set");
        return;
    };
    let root = Path::new(&root);
    let directory = tempfile::tempdir().unwrap();
    let ours = directory.path().join("ours.qcow2");
    for threads in [1, 2, 2] {
        let start = Instant::now();
        let (tree, sources) = host(root);
        let scanned = start.elapsed();
        let options = ext4::Options { size: Some(2 << 30), uuid: [9; 16], ..ext4::Options::default() };
        let system = ext4::FileSystem::plan(&tree, &sources, &options).unwrap();
        let planned = start.elapsed();
        let mut out = File::create(&ours).unwrap();
        let options = qcow2::Options { threads, ..qcow2::Options::default() };
        let summary = qcow2::write(&system, &mut out, &options).unwrap();
        println!(
            "ours, {threads} threads: scan {scanned:?}, plan {planned:?}, all {:?}, {summary:?}, {}",
            start.elapsed(),
            peak()
        );
    }
    let start = Instant::now();
    let reader = qcow2::Reader::open(raw::Reader::open(File::open(&ours).unwrap()).unwrap()).unwrap();
    println!("check {:?} {:?}", reader.check().unwrap(), start.elapsed());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let start = Instant::now();
    succeed("mke2fs", &["-q", "-t", "ext4", "-d", root.to_str().unwrap(), &path("raw"), "2G"]);
    let made = start.elapsed();
    succeed(
        "qemu-img",
        &[
            "convert",
            "-c",
            "-W",
            "-m",
            "16",
            "-O",
            "qcow2",
            "-o",
            "compression_type=zstd",
            &path("raw"),
            &path("theirs"),
        ],
    );
    println!(
        "mke2fs {made:?}, with qemu-img {:?}, {} bytes",
        start.elapsed(),
        std::fs::metadata(path("theirs")).unwrap().len()
    );
    let ours = ours.to_str().unwrap();
    println!("{}", succeed("qemu-img", &["check", ours]));
    succeed("qemu-img", &["convert", "-O", "raw", ours, &path("back")]);
    println!("{}", succeed("e2fsck", &["-fn", &path("back")]));
}
