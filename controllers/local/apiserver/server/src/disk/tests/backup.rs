//! Backup, restore and check.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use neonvm_kit::ca::Authority;

use super::*;

/// A stopped cluster with two objects; its revision.
fn cluster(directory: &Path) -> u64 {
    let (disk, mut store) = Disk::open(&directory.join(NAME)).unwrap();
    Authority::open(directory).unwrap();
    crate::token::Tokens::open(directory).unwrap();
    store.put("things", "one", Bytes::from_static(b"{}"));
    store.put("things", "two", Bytes::from_static(br#"{"text":"line\nline"}"#));
    disk.push(store.take_fresh());
    disk.close().unwrap();
    store.revision()
}

fn backup(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let snapshot = Snapshot::of_stopped(directory).unwrap().with_files(directory).unwrap();
    let header = snapshot.write("dev", &mut bytes).unwrap();
    assert_eq!((header.cluster.as_str(), header.objects), ("dev", 2));
    bytes
}

#[test]
fn what_is_backed_up_comes_back_with_its_versions_and_keys() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("dev");
    fs::create_dir(&place).unwrap();
    let revision = cluster(&place);
    let bytes = backup(&place);
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&place, &elsewhere).unwrap();
    let restored = restore(&place, Cursor::new(&bytes), false).unwrap();
    assert_eq!((restored.header.revision, restored.is_new), (revision, false));
    for key in ["ca.crt", "ca.key", "sa.key"] {
        assert_eq!(fs::read(elsewhere.join(key)).unwrap(), fs::read(place.join(key)).unwrap());
    }
    let (_, before) = Disk::open(&elsewhere.join(NAME)).unwrap();
    let (_, after) = Disk::open(&place.join(NAME)).unwrap();
    for key in ["one", "two"] {
        assert_eq!(before.read("things", key), after.read("things", key));
    }
    // No client has a resource version from here on, and no watch can start from before it.
    assert!(after.revision() > revision + 1000 && after.floor("things") == after.revision());
    assert!(neonvm_kit::private::audit(&place, &[]).unwrap().is_empty());
}

#[test]
fn a_cluster_restored_elsewhere_has_keys_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    fs::create_dir(&old).unwrap();
    cluster(&old);
    let bytes = backup(&old);
    let restored = |force| {
        assert!(restore(&new, Cursor::new(&bytes), force).unwrap().is_new);
        assert_eq!(check(&new).problems, Vec::<String>::new());
        ["ca.crt", "ca.key", "sa.key"].map(|key| fs::read(new.join(key)).unwrap())
    };
    let first = restored(false);
    for (key, own) in ["ca.crt", "ca.key", "sa.key"].iter().zip(&first) {
        assert_ne!(fs::read(old.join(key)).unwrap(), *own, "{key}");
    }
    // What stood there before is another cluster, too, such as the source's twin that an earlier version made.
    for key in ["ca.crt", "ca.key", "sa.key"] {
        fs::copy(old.join(key), new.join(key)).unwrap();
    }
    for (own, source) in restored(true).iter().zip(["ca.crt", "ca.key", "sa.key"]) {
        assert_ne!(*own, fs::read(old.join(source)).unwrap(), "{source}");
    }
}

#[test]
fn a_state_is_replaced_only_on_request_and_never_under_a_server() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("dev");
    fs::create_dir(&directory).unwrap();
    cluster(&directory);
    let bytes = backup(&directory);
    let refused =
        |force| restore(&directory, Cursor::new(&bytes), force).map(|_| ()).unwrap_err().to_string();
    assert!(refused(false).contains("restore with --force"));
    let (disk, _) = Disk::open(&directory.join(NAME)).unwrap();
    assert!(refused(true).contains("is in use"), "{}", refused(true));
    disk.close().unwrap();
    drop(disk);
    // What cannot be read any more is what one restores for.
    fs::write(directory.join(NAME), b"").unwrap();
    restore(&directory, Cursor::new(&bytes), true).unwrap();
    assert_eq!(check(&directory).problems, Vec::<String>::new());
}

#[test]
fn a_backup_that_is_not_whole_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    fs::create_dir(&old).unwrap();
    cluster(&old);
    let bytes = backup(&old);
    let mut attempts =
        vec![bytes[..bytes.len() / 2].to_vec(), Vec::new(), b"text\n".to_vec(), vec![b'x'; 100_000]];
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        attempts.push(damaged);
    }
    let mut refused = 0;
    for attempt in &attempts {
        match Snapshot::read(Cursor::new(attempt)) {
            Err(error) => {
                assert!(error.to_string().starts_with("the backup cannot be used: "), "{error}");
                refused += 1;
            }
            // Some bits of the header are words for people.
            Ok((header, _)) => assert_eq!(header.objects, 2),
        }
    }
    assert!(refused > attempts.len() - 60, "{refused} of {}", attempts.len());
    assert!(restore(&new, Cursor::new(&attempts[0]), false).is_err());
    assert!(!new.exists());
}

#[test]
fn a_check_lists_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("dev");
    fs::create_dir(&directory).unwrap();
    let revision = cluster(&directory);
    let fine = check(&directory);
    assert_eq!((fine.objects, fine.revision, fine.problems.len()), (2, revision, 0), "{:?}", fine.problems);
    fs::write(directory.join("sa.key"), "nonsense").unwrap();
    fs::write(directory.join(NAME), vec![b'x'; 10_000]).unwrap();
    let problems = check(&directory).problems;
    assert!(
        problems.len() == 2 && problems[0].contains("damaged") && problems[1].contains("sa.key"),
        "{problems:?}"
    );
    fs::remove_file(directory.join("ca.key")).unwrap();
    let problems = check(&directory).problems;
    assert!(problems[1].ends_with("ca.key is missing"), "{problems:?}");
}

#[test]
fn addresses_are_released_in_a_stopped_state_alone() {
    let home = tempfile::tempdir().unwrap();
    release_addresses(home.path()).unwrap();
    let (disk, mut store) = Disk::open(&home.path().join(NAME)).unwrap();
    let vm = br#"{"metadata":{"name":"x"},"status":{"extraNetIP":"10.16.128.1"}}"#;
    store.put("vm.neon.tech/virtualmachines", "default/x", Bytes::from_static(vm));
    store.put("things", "one", Bytes::from_static(b"{}"));
    disk.push(store.take_fresh());
    assert!(release_addresses(home.path()).unwrap_err().to_string().contains("is in use"));
    disk.close().unwrap();
    drop(disk);
    release_addresses(home.path()).unwrap();
    let (_, after) = Disk::open(&home.path().join(NAME)).unwrap();
    let vm = after.read("vm.neon.tech/virtualmachines", "default/x").unwrap();
    assert!(!String::from_utf8_lossy(&vm.json).contains("10.16"));
    assert_eq!(
        (after.read("things", "one"), after.revision()),
        (store.read("things", "one"), store.revision() + 1)
    );
}
