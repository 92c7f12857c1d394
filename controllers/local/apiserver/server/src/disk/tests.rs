mod backup;
mod damage;
mod full;

use std::time::Duration;

use bytes::Bytes;

use super::*;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn put(store: &mut Store, key: &str) -> (u64, Vec<Change>) {
    let revision = store.put("things", key, Bytes::from_static(b"{}"));
    (revision, store.take_fresh())
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

#[tokio::test]
async fn what_a_failed_disk_did_not_write_is_never_durable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let (disk, mut store) = Disk::open(&path).unwrap();
    let (written, changes) = put(&mut store, "before");
    disk.push(changes);
    soon(disk.wait(written)).await.unwrap();
    let table: Arc<str> = "things".into();
    let mut follower = disk.follow(&table);
    disk.fail();
    let (lost, changes) = put(&mut store, "after");
    disk.push(changes);
    let failed = soon(disk.wait(lost)).await.unwrap_err();
    assert!(failed.to_string().contains("fault switch"), "{failed}");
    assert_eq!(disk.durable(), written);
    // What is on disk stays readable; watchers, old and new, are notified that no more will come.
    soon(disk.wait(written)).await.unwrap();
    while soon(follower.changed()).await.is_ok() {}
    assert!(soon(disk.follow(&table).changed()).await.is_err());
    assert!(disk.check().is_err());
    soon(disk.failure()).await;
    // What comes later is not kept.
    disk.push(put(&mut store, "later").1);
    assert!(disk.queue.waiting.lock().changes.is_empty());
    assert!(disk.close().is_err());
    drop(disk);
    let (_, store) = Disk::open(&path).unwrap();
    assert!(store.read("things", "before").is_some());
    assert!(store.read("things", "after").is_none());
    assert_eq!(store.revision(), written);
}

#[tokio::test]
async fn no_request_waits_for_a_closed_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, mut store) = Disk::open(&directory.path().join("state.redb")).unwrap();
    let (written, changes) = put(&mut store, "queued");
    disk.push(changes);
    disk.close().unwrap();
    soon(disk.wait(written)).await.unwrap();
    assert!(soon(disk.wait(written + 1)).await.is_err());
}
