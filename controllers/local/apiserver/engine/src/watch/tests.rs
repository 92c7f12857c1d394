use super::*;
use crate::kinds::Kinds;

const TABLE: &str = "/configmaps";

fn put(store: &mut Store, number: usize, filler: usize) {
    let name = format!("c{number:05}");
    let object = json!({ "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "ns", "resourceVersion": store.next_revision().to_string() },
        "data": { "filler": "x".repeat(filler) } });
    store.put(TABLE, &key_of("ns", &name), render::to_bytes(&object));
}

fn open(store: &Store, options: ListOptions) -> Watch {
    let kinds = Kinds::builtin();
    let kind = kinds.resource("", "v1", "configmaps").unwrap();
    Watch::open(store, kind, crate::media::PLAIN, "", ("ns", ""), options).unwrap()
}

/// Types, names and versions of the events of one batch, its length, and whether there is more.
fn step(watch: &mut Watch, store: &Store) -> (Vec<(String, String, u64)>, usize, Batch) {
    let batch = watch.next(store, store.revision(), Timestamp::UNIX_EPOCH);
    let text = String::from_utf8(batch.lines.to_vec()).unwrap();
    let events = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let meta = &event["object"]["metadata"];
        let version = meta["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let name = meta["name"].as_str().unwrap_or("").to_owned();
        (event["type"].as_str().unwrap().to_owned(), name, version)
    });
    (events.collect(), batch.lines.len(), batch)
}

#[test]
fn the_first_state_comes_in_pages_of_one_revision() {
    let mut store = Store::new(10);
    for number in 0..1_000 {
        put(&mut store, number, 10);
    }
    let options = ListOptions {
        initial: Some(true),
        bookmarks: true,
        matching: "NotOlderThan".into(),
        ..ListOptions::default()
    };
    let mut watch = open(&store, options);
    put(&mut store, 1_000, 10);
    let first = store.revision();
    let mut all = Vec::new();
    for turn in 0.. {
        let (events, length, batch) = step(&mut watch, &store);
        assert!(length < BATCH_BYTES + 1_000 && turn < 50, "{length} bytes in turn {turn}");
        all.extend(events);
        if !batch.more {
            break;
        }
        // Meanwhile other changes happen.
        put(&mut store, turn, 10);
    }
    let end = all.iter().position(|(kind, ..)| kind == "BOOKMARK").unwrap();
    assert_eq!(end, 1_001, "each object once");
    assert!(all[..end].iter().all(|(kind, _, version)| kind == "ADDED" && *version <= first));
    assert_eq!(all[end].2, first);
    let mut last = first;
    for (kind, _, version) in &all[end + 1..] {
        assert!(kind == "MODIFIED" && *version > last, "{kind} {version} after {last}");
        last = *version;
    }
    assert_eq!(last, store.revision());
}

#[test]
fn batches_are_short_and_lose_nothing() {
    let mut store = Store::new(10);
    store.open_table(TABLE);
    let mut watch = open(&store, ListOptions { revision: "10".into(), ..ListOptions::default() });
    for number in 0..300 {
        put(&mut store, number, 10_000);
    }
    let mut versions = Vec::new();
    loop {
        let (events, length, batch) = step(&mut watch, &store);
        assert!(length < BATCH_BYTES + 11_000);
        versions.extend(events.into_iter().map(|(.., version)| version));
        if !batch.more {
            break;
        }
    }
    assert_eq!(versions, (11..=310).collect::<Vec<u64>>());
}

#[test]
fn a_first_state_that_leaves_the_window_is_expired() {
    let mut store = Store::new(10);
    for number in 0..600 {
        put(&mut store, number, 10);
    }
    let mut watch = open(&store, ListOptions::default());
    assert!(step(&mut watch, &store).2.more);
    store.set_window(0);
    put(&mut store, 0, 10);
    let (events, _, batch) = step(&mut watch, &store);
    assert!(batch.ended && events.len() == 1 && events[0].0 == "ERROR");
}

#[test]
fn one_large_object_is_sent_once() {
    let mut store = Store::new(10);
    put(&mut store, 1, 3 * BATCH_BYTES);
    let kinds = Kinds::builtin();
    let kind = kinds.resource("", "v1", "configmaps").unwrap();
    let place = ("ns", "c00001");
    let mut watch =
        Watch::open(&store, kind, crate::media::PLAIN, "", place, ListOptions::default()).unwrap();
    let (events, _, batch) = step(&mut watch, &store);
    assert!(events.len() == 1 && !batch.more);
    assert!(step(&mut watch, &store).0.is_empty());
}
