//! What the pods of a node have of what it offers: one account, so that two resizes at once cannot both have the last of it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use neonvm_core_kubelet::size::{Need, Room};

#[derive(Debug)]
pub(crate) struct Rooms {
    total: Need,
    /// By UID.
    given: Mutex<BTreeMap<String, Need>>,
    /// Counts how often something was given back.
    freed: watch::Sender<u64>,
}

impl Rooms {
    /// Of a node that has `total` for pods.
    pub(crate) fn new(total: Need) -> Self {
        Self { total, given: Mutex::default(), freed: watch::channel(0).0 }
    }

    /// Changes whenever a pod gave something back.
    pub(crate) fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }

    /// Notes what a pod has, whether there is room for it or not: it is here.
    pub(crate) fn note(&self, uid: &str, need: Need) {
        self.decide(uid, |_| (need, ()));
    }

    /// The pod has nothing any more.
    pub(crate) fn release(&self, uid: &str) {
        if self.given.lock().remove(uid).is_some() {
            self.freed.send_modify(|times| *times += 1);
        }
    }

    /// Lets a pod decide what it has from now on, without a change in between. `decide` must not block.
    pub(crate) fn decide<T>(&self, uid: &str, decide: impl FnOnce(Room) -> (Need, T)) -> T {
        let (gave_back, result) = {
            let mut given = self.given.lock();
            let others = given.iter().filter(|(other, _)| *other != uid);
            let used = others.fold(Need::default(), |sum, (_, need)| sum.plus(*need));
            let (need, result) = decide(Room { total: self.total, used });
            let before = given.insert(uid.to_owned(), need).unwrap_or_default();
            (need.cpu_milli < before.cpu_milli || need.memory < before.memory, result)
        };
        if gave_back {
            self.freed.send_modify(|times| *times += 1);
        }
        result
    }
}
