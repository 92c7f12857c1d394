//! As much of an API server as pools need: guarded writes.

use neonvm_api::merge_patch::merge;
use std::collections::BTreeMap;
use std::net::IpAddr;

use neonvm_api::IPPool;
use neonvm_core_overlay::{Book, PoolVersion, PoolWrite};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) pools: BTreeMap<String, Value>,
    version: u64,
}

impl Server {
    /// The stored version, or none if the write was refused.
    pub(crate) fn write(&mut self, write: &PoolWrite) -> Option<PoolVersion> {
        let name = write.name.to_string();
        let stored = self.pools.get(&name);
        let mut next = match (write.is_new, stored) {
            (true, None) => write.body.clone(),
            (true, Some(_)) | (false, None) => return None,
            (false, Some(stored)) => {
                if write.body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
                    return None;
                }
                let mut next = stored.clone();
                merge(&mut next, &write.body);
                next
            }
        };
        self.version += 1;
        next["metadata"]["resourceVersion"] = json!(self.version.to_string());
        next["metadata"]["uid"] = json!(name.clone());
        let object: IPPool = serde_json::from_value(next.clone()).expect("a pool");
        assert!(neonvm_api::validate::ip_pool(&object).is_empty(), "{next}");
        self.pools.insert(name, next);
        PoolVersion::from_object(&object)
    }

    /// Changes a pool as another client does.
    pub(crate) fn edit(&mut self, name: &str, patch: &Value) {
        if let Some(pool) = self.pools.get_mut(name) {
            merge(pool, patch);
            self.version += 1;
            pool["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<IPPool> {
        self.pools.get(name).map(|pool| serde_json::from_value(pool.clone()).unwrap())
    }

    pub(crate) fn put(&mut self, name: &str, range: &str, allocations: &[(u32, &str)]) {
        let all: BTreeMap<String, Value> =
            allocations.iter().map(|(offset, id)| (offset.to_string(), json!({"id": id}))).collect();
        self.version += 1;
        let meta = json!({"name": name, "uid": name, "resourceVersion": self.version.to_string()});
        let pool = json!({"apiVersion": "vm.neon.tech/v1", "kind": "IPPool", "metadata": meta,
            "spec": {"range": range, "allocations": all}});
        self.pools.insert(name.into(), pool);
    }

    pub(crate) fn load(&self, book: &mut Book) {
        for name in self.pools.keys() {
            book.read(&self.get(name).unwrap());
        }
    }

    /// All allocations in the objects.
    pub(crate) fn given(&self) -> Vec<(IpAddr, String)> {
        let mut all = Vec::new();
        for pool in self.pools.values() {
            let net: neonvm_core_overlay::Net = pool["spec"]["range"].as_str().unwrap().parse().unwrap();
            for (offset, allocation) in pool["spec"]["allocations"].as_object().unwrap() {
                let address = net.at(offset.parse().unwrap()).unwrap();
                all.push((address, allocation["id"].as_str().unwrap().to_owned()));
            }
        }
        all
    }

    /// Writes what is pending; whether all was accepted.
    pub(crate) fn flush(&mut self, book: &mut Book, now: i64) -> bool {
        let names: Vec<_> = book.pending().cloned().collect();
        let mut all = true;
        for name in names {
            let Some(write) = book.write_of(&name, now) else { continue };
            match self.write(&write) {
                Some(version) => book.written(&name, now, version),
                None => {
                    book.reread(&name, self.get(&name).as_ref());
                    all = false;
                }
            }
        }
        all
    }
}
