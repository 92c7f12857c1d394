//! What a damaged, lost or old state file does to a start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

/// A generator of numbers that are the same in every run (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn refusal(path: &Path) -> String {
    Disk::open(path).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn flipped_bits_never_become_a_wrong_object() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("whole"), directory.path().join("damaged/state.redb"));
    fs::create_dir(directory.path().join("damaged")).unwrap();
    let expected = filled(&path);
    let whole = fs::read(&path).unwrap();
    let (mut seed, mut refused) = (7, 0);
    for round in 0..400 {
        let mut damaged = whole.clone();
        // One bit, or a handful as from a bad sector.
        for _ in 0..1 + (round % 3) * 5 {
            // Pages that are in use are the first ones; most of the rest is empty.
            let among = if round % 2 == 0 { damaged.len() } else { damaged.len() / 8 };
            let bit = usize::try_from(next(&mut seed)).unwrap_or(0) % (among * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        fs::write(&copy, &damaged).unwrap();
        match StateFile::open(&copy) {
            Ok((_, store)) => assert_eq!(seen(&store), expected, "round {round}"),
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains("damaged/state.redb"), "round {round}: {text}");
                assert_eq!(text.lines().count(), 1, "round {round}: {text}");
            }
        }
        let _ = fs::remove_file(copy.with_file_name(file::REVISION));
    }
    assert!(refused > 50, "only {refused} of the damaged files were refused: the test damages nothing");
}

#[test]
fn a_record_that_was_changed_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    filled(&path);
    // As a program would change it that uses the database, but not the checksums.
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let objects = redb::TableDefinition::<&[u8], &[u8]>::new("objects");
    {
        let mut table = transaction.open_table(objects).unwrap();
        let key = b"/pods\0ns/o3".as_slice();
        let mut value = table.get(key).unwrap().unwrap().value().to_vec();
        *value.last_mut().unwrap() = b' ';
        table.insert(key, value.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let refused = refusal(&path);
    assert!(refused.contains("the record \"/pods ns/o3\" is not what was written"), "{refused}");
    assert!(refused.contains("neonctl local restore") && refused.contains("--delete"), "{refused}");
}

#[test]
fn a_state_that_is_gone_or_older_is_not_taken_for_a_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    filled(&path);
    let older = fs::read(&path).unwrap();
    fs::write(directory.path().join("ca.key"), "key").unwrap();
    {
        let (disk, mut store) = Disk::open(&path).unwrap();
        disk.push(put(&mut store, "later").1);
        disk.close().unwrap();
    }
    let newer = fs::read(&path).unwrap();
    for (content, what) in
        [(&older[..], "older state"), (&newer[..newer.len() / 2], "damaged"), (&[], "is empty")]
    {
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

#[test]
fn a_state_without_checksums_gets_them_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    // As versions before the checksums wrote it.
    let write = |json: &str| {
        let _ = fs::remove_file(&path);
        let database = redb::Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let value = [&103_u64.to_be_bytes()[..], json.as_bytes()].concat();
            let objects = redb::TableDefinition::<&[u8], &[u8]>::new("objects");
            transaction
                .open_table(objects)
                .unwrap()
                .insert(b"/pods\0ns/a".as_slice(), value.as_slice())
                .unwrap();
            let last = redb::TableDefinition::<&str, u64>::new("last-change");
            transaction.open_table(last).unwrap().insert("/pods", 103).unwrap();
            let meta = redb::TableDefinition::<&str, u64>::new("meta");
            transaction.open_table(meta).unwrap().insert("revision", 105).unwrap();
        }
        transaction.commit().unwrap();
    };
    write(r#"{"metadata":{"resourceVersion":"104"}}"#);
    assert!(refusal(&path).contains("the record \"/pods ns/a\" is not what was written"));
    let json = r#"{"metadata":{"resourceVersion":"103"}}"#;
    write(json);
    for _ in 0..2 {
        let (disk, store) = Disk::open(&path).unwrap();
        let found = store.read("/pods", "ns/a").unwrap();
        assert_eq!((found.revision, &found.json[..]), (103, json.as_bytes()));
        assert_eq!((store.revision(), store.floor("/pods")), (105, 103));
        assert_eq!(disk.verify().unwrap(), (1, 105));
        disk.close().unwrap();
    }
}
