//! A disk without room: a real one, small and in memory.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use neonvm_kit::reserve::{Reserve, SIZE};
use neonvm_test_support::{eventually, need, needs};

use super::*;

/// A file system of 40 MiB, gone with its owner.
struct Small(tempfile::TempDir);

impl Small {
    fn mounted() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, Some(c"size=40m,mode=700")).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("cluster/state.redb")
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = File::options().append(true).create(true).open(self.0.path().join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

async fn write(disk: &Disk, store: &mut Store, key: &str, bytes: usize) {
    store.put("things", key, format!("{{{}}}", " ".repeat(bytes - 2)).into());
    disk.push(store.take_fresh());
    soon(disk.wait(store.revision())).await.unwrap();
}

async fn delete(disk: &Disk, store: &mut Store, key: &str) {
    store.remove("things", key, Bytes::from_static(b"{}"));
    disk.push(store.take_fresh());
    soon(disk.wait(store.revision())).await.unwrap();
}

async fn room_again(disk: &Disk) {
    eventually("room on the disk", async || disk.full().is_none().then_some(())).await;
}

#[tokio::test]
async fn a_full_disk_costs_no_accepted_write_and_takes_deletes() {
    need!(needs::root());
    let small = Small::mounted();
    neonvm_kit::private::directory(small.path().parent().unwrap()).unwrap();
    let (disk, mut store) = Disk::open(&small.path()).unwrap();
    for number in 0..6 {
        write(&disk, &mut store, &format!("o{number}"), 500_000).await;
    }
    assert!(disk.full().is_none());
    small.fill();
    // Accepted before the full disk was noticed: it gets a piece of the reserve.
    for number in 6..12 {
        write(&disk, &mut store, &format!("o{number}"), 500_000).await;
        small.fill();
    }
    let full = disk.full().unwrap();
    assert!(full.to_string().contains("cluster is full: only reads, deletes"), "{full}");
    assert!(Reserve::from_directory(small.path().parent().unwrap()).left() < SIZE);
    for number in 0..12 {
        delete(&disk, &mut store, &format!("o{number}")).await;
        small.fill();
    }
    assert!(disk.full().is_some_and(|full| full.has_reserve), "deletes use what deletes have freed");
    disk.close().unwrap();
    drop(disk);
    // A start on the full disk.
    small.fill();
    let (disk, mut store) = Disk::open(&small.path()).unwrap();
    assert!(disk.full().is_some());
    assert_eq!(store.count("things"), 0);
    small.empty();
    room_again(&disk).await;
    write(&disk, &mut store, "new", 500_000).await;
    assert!(Reserve::from_directory(small.path().parent().unwrap()).is_whole());
    disk.close().unwrap();
}

#[tokio::test]
async fn the_fault_switch_of_a_full_disk_does_what_one_does() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut store) = Disk::open(&directory.path().join("state.redb")).unwrap();
    write(&disk, &mut store, "before", 10).await;
    disk.fill(true);
    write(&disk, &mut store, "during", 10).await;
    assert!(disk.full().is_some());
    delete(&disk, &mut store, "before").await;
    disk.fill(false);
    room_again(&disk).await;
    write(&disk, &mut store, "after", 10).await;
    disk.close().unwrap();
    let (_, store) = Disk::open(&directory.path().join("state.redb")).unwrap();
    assert_eq!(store.count("things"), 2);
}
