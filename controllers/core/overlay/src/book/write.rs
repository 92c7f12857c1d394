//! What is to be written to the objects of pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use neonvm_api::IPPool;
use neonvm_api::overlay::RELEASED;
use serde_json::{Map, Value, json};

use super::Book;

/// Which version of which object was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolVersion {
    pub uid: String,
    pub resource_version: String,
}

impl PoolVersion {
    /// Of an object; none if it was never stored.
    #[must_use]
    pub fn from_object(object: &IPPool) -> Option<Self> {
        let meta = &object.metadata;
        Some(Self { uid: meta.uid.clone()?, resource_version: meta.resource_version.clone()? })
    }
}

/// A write that brings an object to the state of the book.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolWrite {
    /// Name of the object.
    pub name: Arc<str>,
    /// Whether there is none yet: then `body` is the object, otherwise a merge patch that holds for one version only.
    pub is_new: bool,
    /// What to send.
    pub body: Value,
}

/// The times when addresses were released, as recorded in an object.
pub(super) fn released_of(object: &IPPool) -> BTreeMap<u128, i64> {
    let text = object.metadata.annotations.as_ref().and_then(|all| all.get(RELEASED));
    let map: BTreeMap<String, i64> =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    map.into_iter().filter_map(|(offset, at)| Some((offset.parse().ok()?, at))).collect()
}

impl Book {
    /// The pools whose objects differ from the book.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<str>> {
        self.dirty.iter()
    }

    /// The write that brings the object of a pool up to date; none if nothing is pending.
    #[must_use]
    pub fn write_of(&self, name: &str, now: i64) -> Option<PoolWrite> {
        let (name, pool) = self.pools.get_key_value(name)?;
        if pool.pending.is_empty() && !pool.released_pending {
            return None;
        }
        // What has rested enough needs no note any more.
        let resting = pool.released.iter().filter(|(_, at)| at.saturating_add(self.rest) > now);
        let resting: BTreeMap<String, i64> = resting.map(|(offset, at)| (offset.to_string(), *at)).collect();
        let note = match (resting.is_empty(), &pool.version) {
            (false, _) => json!({ RELEASED: json!(resting).to_string() }),
            (true, Some(_)) => json!({ RELEASED: Value::Null }),
            (true, None) => json!({}),
        };
        let allocation = |id: &Arc<str>| json!({ "id": id.as_ref() });
        let Some(version) = &pool.version else {
            let all: Map<String, Value> =
                pool.held.iter().map(|(offset, id)| (offset.to_string(), allocation(id))).collect();
            let body = json!({
                "apiVersion": neonvm_api::names::VM_API_VERSION,
                "kind": "IPPool",
                "metadata": {"name": name.as_ref(), "annotations": note},
                "spec": {"range": pool.net.to_string(), "allocations": all},
            });
            return Some(PoolWrite { name: Arc::clone(name), is_new: true, body });
        };
        let change = |offset: &u128| {
            let value = pool.held.get(offset).map_or(Value::Null, allocation);
            (offset.to_string(), value)
        };
        let changes: Map<String, Value> = pool.pending.iter().map(change).collect();
        let body = json!({
            "metadata": {
                "uid": version.uid, "resourceVersion": version.resource_version, "annotations": note
            },
            "spec": {"allocations": changes},
        });
        Some(PoolWrite { name: Arc::clone(name), is_new: false, body })
    }

    /// The write of a pool was accepted; this is its version now.
    pub fn written(&mut self, name: &str, now: i64, version: PoolVersion) {
        let rest = self.rest;
        self.dirty.remove(name);
        if let Some(pool) = self.pools.get_mut(name) {
            pool.version = Some(version);
            pool.pending.clear();
            pool.released_pending = false;
            pool.released.retain(|_, at| at.saturating_add(rest) > now);
        }
    }
}
