//! What a damaged or lost state file does to a start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use neonvm_apiserver_engine::store::Stored;

use super::*;

/// Everything that a store shows.
type Seen = (u64, BTreeMap<(String, String), Stored>);

fn seen(store: &Store) -> Seen {
    let of = |table: &Arc<str>| {
        let range = store.range(table, "", None);
        range.map(|(key, stored)| ((table.to_string(), key.to_string()), stored.clone())).collect::<Vec<_>>()
    };
    (store.revision(), store.tables().flat_map(of).collect())
}

/// A state of some objects of different sizes, closed as at the end of a server.
fn filled(path: &Path) -> Seen {
    let (disk, mut store) = Disk::open(path).unwrap();
    for number in 0..60 {
        let (table, key) =
            (["/pods", "/secrets", "vm.neon.tech/virtualmachines"][number % 3], format!("ns/o{number}"));
        let json = serde_json::json!({ "metadata": { "resourceVersion": store.next_revision().to_string() },
            "data": "x".repeat(number * 40) });
        store.put(table, &key, json.to_string().into());
        if number % 5 == 4 {
            store.remove(table, &key, Bytes::from_static(b"{}"));
        }
        disk.push(store.take_fresh());
    }
    disk.close().unwrap();
    seen(&store)
}

fn refusal(path: &Path) -> String {
    Disk::open(path).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_record_that_is_none_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    filled(&path);
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let objects = redb::TableDefinition::<&[u8], &[u8]>::new("objects");
    let key = b"/pods\0ns/o3".as_slice();
    transaction.open_table(objects).unwrap().insert(key, b"short".as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = refusal(&path);
    assert!(refused.contains("the record \"/pods ns/o3\" is not what was written"), "{refused}");
    assert!(refused.contains("neonctl local restore") && refused.contains("--delete"), "{refused}");
}

/// A page that was changed outside of the database fails its checksum.
#[test]
fn a_damaged_page_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let expected = filled(&path);
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..whole.len()).step_by(whole.len() / 97) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        match StateFile::open(&path) {
            Ok((_, store)) => assert_eq!(seen(&store), expected, "byte {at}"),
            Err(error) => {
                refused += 1;
                assert_eq!(error.to_string().lines().count(), 1, "byte {at}: {error}");
            }
        }
    }
    assert!(refused > 0, "no damaged file was refused");
}

#[test]
fn a_state_that_is_gone_is_not_taken_for_a_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    filled(&path);
    fs::write(directory.path().join("ca.key"), "key").unwrap();
    {
        let (disk, mut store) = Disk::open(&path).unwrap();
        disk.push(put(&mut store, "later").1);
        disk.close().unwrap();
    }
    let newer = fs::read(&path).unwrap();
    for (content, what) in [(&newer[..newer.len() / 2], "damaged"), (&[][..], "is empty")] {
        fs::write(&path, content).unwrap();
        let refused = refusal(&path);
        assert!(refused.contains(what) && refused.contains("state.redb"), "{refused}");
    }
    fs::remove_file(&path).unwrap();
    let refused = refusal(&path);
    assert!(refused.contains("is missing") && refused.contains("neonctl local restore"), "{refused}");
    assert!(!path.exists(), "a refusal makes nothing");
    fs::write(&path, &newer).unwrap();
    Disk::open(&path).unwrap();
}
