use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const TABLE: &str = "/things";

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    Remove(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..6_u8, any::<u8>()).prop_map(|(key, value)| Op::Put(key, value)),
        1 => (0..6_u8).prop_map(Op::Remove),
    ]
}

fn key(number: u8) -> String {
    key_of("ns", &format!("k{number}"))
}

/// What a table held after each revision.
type Model = BTreeMap<u64, BTreeMap<String, u8>>;

fn run(store: &mut Store, ops: &[Op]) -> Model {
    let mut state = BTreeMap::new();
    let mut model = BTreeMap::from([(store.revision(), state.clone())]);
    store.open_table(TABLE);
    for op in ops {
        match op {
            Op::Put(name, value) => {
                store.put(TABLE, &key(*name), Bytes::from(vec![*value]));
                state.insert(key(*name), *value);
            }
            Op::Remove(name) => {
                if store.read(TABLE, &key(*name)).is_some() {
                    store.remove(TABLE, &key(*name), Bytes::new());
                    state.remove(&key(*name));
                }
            }
        }
        model.insert(store.revision(), state.clone());
    }
    model
}

fn seen(items: Vec<(Arc<str>, Stored)>) -> BTreeMap<String, u8> {
    items.into_iter().map(|(key, stored)| (key.to_string(), stored.json[0])).collect()
}

proptest! {
    #[test]
    fn past_revisions_read_as_they_were(ops in prop::collection::vec(op(), 0..60)) {
        let mut store = Store::new(10);
        let model = run(&mut store, &ops);
        for (revision, state) in &model {
            prop_assert_eq!(&seen(store.page_at(TABLE, "ns/", None, *revision, usize::MAX).unwrap()), state);
        }
    }

    #[test]
    fn pages_of_a_past_revision_make_up_the_whole(ops in prop::collection::vec(op(), 0..60), limit in 1..4_usize) {
        let mut store = Store::new(10);
        let model = run(&mut store, &ops);
        for (revision, state) in &model {
            let (mut all, mut after) = (Vec::new(), None::<Arc<str>>);
            loop {
                let page = store.page_at(TABLE, "ns/", after.as_deref(), *revision, limit).unwrap();
                prop_assert!(page.len() <= limit);
                let Some((last, _)) = page.last() else { break };
                after = Some(Arc::clone(last));
                all.extend(page);
            }
            prop_assert!(all.is_sorted_by_key(|(key, _)| Arc::clone(key)));
            prop_assert_eq!(&seen(all), state);
        }
    }

    #[test]
    fn changes_from_any_revision_lead_to_the_present(ops in prop::collection::vec(op(), 0..60), pick in any::<prop::sample::Index>()) {
        let mut store = Store::new(10);
        let model = run(&mut store, &ops);
        let revisions: Vec<u64> = model.keys().copied().collect();
        let from = revisions[pick.index(revisions.len())];
        let mut state = model[&from].clone();
        let mut last = from;
        for change in store.changes(TABLE, from, store.revision(), usize::MAX).unwrap() {
            prop_assert!(change.revision > last, "changes come in order, each once");
            last = change.revision;
            if change.deleted {
                prop_assert!(state.remove(&*change.key).is_some());
            } else {
                state.insert(change.key.to_string(), change.after.json[0]);
            }
        }
        prop_assert_eq!(&state, model.values().next_back().unwrap());
    }

    #[test]
    fn what_left_the_window_is_expired_and_never_wrong(ops in prop::collection::vec(op(), 0..60), window in 1..8_usize) {
        let mut store = Store::new(10);
        store.set_window(window);
        let model = run(&mut store, &ops);
        for (revision, state) in &model {
            match store.page_at(TABLE, "ns/", None, *revision, usize::MAX) {
                Ok(items) => prop_assert_eq!(&seen(items), state),
                Err(Unavailable::Expired(floor)) => prop_assert!(*revision < floor),
            }
        }
    }
}

#[test]
fn pages_continue_after_a_key() {
    let mut store = Store::new(0);
    for number in 0..5 {
        store.put(TABLE, &key(number), Bytes::from_static(b"1"));
    }
    let rest: Vec<String> =
        store.range(TABLE, "ns/", Some("ns/k2")).map(|(key, _)| key.to_string()).collect();
    assert_eq!(rest, ["ns/k3", "ns/k4"]);
    assert_eq!(store.range(TABLE, "other/", None).count(), 0);
}

/// Bytes of distinct versions in the windows of all tables that are not present objects.
fn kept(store: &Store) -> usize {
    let present: BTreeSet<*const u8> = store
        .tables
        .values()
        .flat_map(|table| table.items.values())
        .map(|stored| stored.json.as_ptr())
        .collect();
    let mut versions = BTreeMap::new();
    for change in store.tables.values().flat_map(|table| &table.window) {
        for stored in change.before.iter().chain([&change.after]) {
            versions.insert(stored.json.as_ptr(), stored.json.len());
        }
    }
    versions.iter().filter(|(place, _)| !present.contains(*place)).map(|(_, length)| length).sum()
}

#[test]
fn what_replacements_and_deletions_leave_is_counted() {
    let object = |size: usize| Bytes::from(vec![b'x'; size]);
    for deletes in [false, true] {
        let mut store = Store::new(1);
        store.limits.bytes = 10_000;
        for number in 0..100_u8 {
            store.put(TABLE, &key(number), object(1000));
            store.put(TABLE, &key(number), object(1000));
            if deletes {
                store.remove(TABLE, &key(number), object(1000));
            }
            assert!(kept(&store) <= 10_000, "{} bytes", kept(&store));
            assert_eq!(kept(&store), store.window_bytes);
        }
        // The bound is used, not just kept.
        assert!(kept(&store) > 7000, "{} bytes", kept(&store));
    }
}

#[test]
fn all_resources_together_are_bounded() {
    let mut store = Store::new(1);
    store.limits.all_bytes = 10_000;
    store.put("small", "ns/a", Bytes::from(vec![b'x'; 100]));
    store.put("small", "ns/a", Bytes::from(vec![b'x'; 100]));
    let floor = store.floor("small");
    for number in 0..100 {
        for size in [900, 1000] {
            store.put(&format!("big{number}"), "ns/a", Bytes::from(vec![b'x'; size]));
        }
        assert!(kept(&store) <= 10_000, "{} bytes", kept(&store));
        assert_eq!(kept(&store), store.window_bytes);
    }
    assert_eq!(store.floor("small"), floor);
    store.close_table("big99");
    assert_eq!(kept(&store), store.window_bytes);
}
