use super::*;
use crate::layer::writer::Writer;
use crate::source::sample::{Form, image};

fn one(content: &[u8]) -> Image {
    let shared = Writer::default().file("shared", &[1; 1000]).end();
    image(&[shared, Writer::default().file("a", content).end()], Form::Gzip, "amd64")
}

fn name(text: &str) -> Reference {
    text.parse().unwrap()
}

fn blobs(store: &Store) -> usize {
    std::fs::read_dir(store.root().join("blobs/sha256")).unwrap().count()
}

#[test]
fn images_are_listed_found_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let (first, second) = (one(b"1"), one(b"2"));
    assert_eq!(store.list().unwrap(), []);
    store.put(&first, &name("a:1")).unwrap();
    store.put(&first, &name("a:latest")).unwrap();
    store.put(&second, &name("b:1")).unwrap();
    let list = store.list().unwrap();
    let names: Vec<_> = list.iter().map(|entry| entry.reference.clone().unwrap().to_string()).collect();
    assert_eq!(names, ["docker.io/library/a:1", "docker.io/library/a:latest", "docker.io/library/b:1"]);
    assert_eq!(
        (list[0].platform.as_str(), list[0].created.as_deref()),
        ("linux/amd64", Some("2024-01-02T03:04:05Z"))
    );
    assert!(list[0].size > 300);
    for by in ["a", "docker.io/library/a:1", &first.digest().to_string(), &first.digest().hex()[..12]] {
        let found = store.get(by).unwrap();
        assert_eq!((found.digest(), found.layers.len()), (first.digest(), 2), "{by}");
    }
    assert!(
        matches!(store.get("a:2").unwrap_err(), Error::ImageNotFound { available, .. } if available.len() == 3)
    );
    // Two layers, configuration and manifest each; one layer is shared.
    assert_eq!(blobs(&store), 7);
    assert_eq!(store.remove("a:1").unwrap().len(), 1);
    assert_eq!((blobs(&store), store.get("a").unwrap().digest()), (7, first.digest()));
    let removed = store.remove(&first.digest().to_string()).unwrap();
    assert_eq!((removed.len(), blobs(&store)), (1, 4));
    assert!(store.get("b:1").is_ok());
}

#[test]
fn an_image_without_a_time_is_as_old_as_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let image = one(b"1");
    store.put(&image, &name("a")).unwrap();
    let stored = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let blob = directory.path().join("blobs/sha256").join(image.digest().hex());
    File::options().write(true).open(blob).unwrap().set_modified(stored).unwrap();
    let mut entry = store.list().unwrap().remove(0);
    assert_eq!(entry.stored.as_deref(), Some("2023-11-14T22:13:20Z"));
    assert_eq!(entry.made().unwrap().to_string(), "2024-01-02T03:04:05Z");
    for none in [None, Some("1970-01-01T00:00:00Z".to_owned()), Some("yesterday".to_owned())] {
        entry.created = none;
        assert_eq!(entry.made().unwrap().to_string(), "2023-11-14T22:13:20Z");
    }
}

#[test]
fn a_name_belongs_to_one_image_and_pruning_takes_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let (first, second) = (one(b"1"), one(b"2"));
    for image in [&first, &second, &first, &second] {
        store.put(image, &name("a")).unwrap();
    }
    let list = store.list().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!((list[1].reference.clone(), list[1].digest), (None, first.digest()));
    assert_eq!(store.get("a").unwrap().digest(), second.digest());
    std::fs::write(directory.path().join("blobs/sha256/rubbish"), [0; 100]).unwrap();
    assert!(store.prune().unwrap() > 100);
    assert_eq!((store.list().unwrap().len(), blobs(&store)), (1, 4));
    assert_eq!(store.prune().unwrap(), 0);
}

#[test]
fn wrong_blobs_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let mut image = one(b"1");
    image.layers[0].content =
        BlobContent::Bytes(vec![0; usize::try_from(image.layers[0].descriptor.size).unwrap()]);
    assert!(matches!(store.put(&image, &name("a")).unwrap_err(), Error::DigestMismatch { .. }));
    image.layers[0].content = BlobContent::File(directory.path().join("missing"));
    assert!(matches!(store.put(&image, &name("a")).unwrap_err(), Error::Io { .. }));
    assert_eq!(store.list().unwrap(), []);
    assert_eq!(std::fs::read_dir(directory.path().join("temporary")).unwrap().count(), 0);
    std::fs::write(directory.path().join("oci-layout"), r#"{"imageLayoutVersion":"9"}"#).unwrap();
    assert!(matches!(Store::open(directory.path()).unwrap_err(), Error::Malformed { .. }));
}

#[test]
fn concurrent_writers_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let root = directory.path();
            scope.spawn(move || {
                let store = Store::open(root).unwrap();
                for turn in 0..5_u8 {
                    store.put(&one(&[number, turn]), &name(&format!("image{number}:{turn}"))).unwrap();
                    store.prune().unwrap();
                }
            });
        }
    });
    let store = Store::open(directory.path()).unwrap();
    let list = store.list().unwrap();
    assert_eq!(list.len(), 20);
    for entry in list {
        let image = store.get(&entry.digest.to_string()).unwrap();
        for blob in image.layers {
            let BlobContent::File(path) = blob.content else { panic!("no file") };
            assert_eq!(Digest::from_bytes(&std::fs::read(path).unwrap()), blob.descriptor.digest);
        }
    }
}
