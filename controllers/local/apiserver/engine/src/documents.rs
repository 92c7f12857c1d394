//! Discovery documents that were requested.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;

/// Documents that were requested, as long as the kinds stay the same.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    cache: Mutex<(u64, BTreeMap<String, Bytes>)>,
}

impl Documents {
    /// The document of that name for this epoch, made at first use.
    pub(crate) fn get(&self, epoch: u64, name: &str, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Ok(mut cache) = self.cache.lock() {
            if cache.0 != epoch {
                *cache = (epoch, BTreeMap::new());
            }
            if let Some(known) = cache.1.get(name) {
                return Some(known.clone());
            }
        }
        let made = make()?;
        if let Ok(mut cache) = self.cache.lock()
            && cache.0 == epoch
        {
            cache.1.insert(name.to_owned(), made.clone());
        }
        Some(made)
    }
}
