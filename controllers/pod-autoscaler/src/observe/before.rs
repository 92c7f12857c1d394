//! Readings that the next ones are compared with: rates, means and quantiles are over the time between two. Endpoints choose
//! how much there is of them, so they have bounds too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use neonvm_core_pod_autoscaler::exposition::Extract;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes of one object; enough for a histogram of each of 20,000 pods.
const OF_ONE: usize = 16 << 20;
/// Most KiB of all objects.
const OF_ALL: usize = 48 << 10;

/// Source and pod; the pod is empty for an endpoint that is no pod.
pub(crate) type Key = (usize, String);

/// Room for the readings of all objects.
#[derive(Debug)]
pub(crate) struct Keeping(Arc<Semaphore>);

impl Default for Keeping {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_ALL)))
    }
}

/// What may still be kept of one object in a reconcile, in bytes.
#[derive(Debug)]
pub(super) struct Left(AtomicUsize);

impl Left {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(OF_ONE))
    }

    /// Whether there is room for it, which it has from now on.
    pub(super) fn take(&self, extract: &Extract) -> bool {
        let less = |left: usize| left.checked_sub(extract.weight());
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// The last readings of one object.
#[derive(Debug, Default)]
pub(crate) struct Before {
    readings: HashMap<Key, (Extract, Instant)>,
    _held: Option<OwnedSemaphorePermit>,
}

impl Before {
    pub(super) fn get(&self, key: &Key) -> Option<&(Extract, Instant)> {
        self.readings.get(key)
    }

    pub(super) fn take(&mut self, key: &Key) -> Option<(Extract, Instant)> {
        self.readings.remove(key)
    }

    /// Keeps these and no others; nothing, and `false`, if there is no room.
    pub(super) fn replace(&mut self, readings: HashMap<Key, (Extract, Instant)>, keeping: &Keeping) -> bool {
        *self = Self::default();
        let bytes: usize = readings.values().map(|(extract, _)| extract.weight()).sum();
        if bytes > OF_ONE {
            return false;
        }
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let Ok(held) = Arc::clone(&keeping.0).try_acquire_many_owned(kib) else { return false };
        *self = Self { readings, _held: Some(held) };
        true
    }
}

#[cfg(test)]
mod tests {
    use neonvm_core_pod_autoscaler::exposition::{self, Query};

    use super::*;

    /// A reading of so many series with labels of 100 bytes.
    fn reading(series: usize) -> (Extract, Instant) {
        let line = |number| format!("m{{l=\"{number:0>100}\"}} 1\n");
        let text: String = (0..series).map(line).collect();
        let source =
            serde_json::json!({"metricSourceType": "external", "targetMetric": "m", "targetValue": "1"});
        let query = Query::from_source(&serde_json::from_value(source).unwrap(), "").unwrap();
        (exposition::read(&text, &[query]).extracts.remove(0), Instant::now())
    }

    /// As many as one object may have, and some more.
    fn readings(more: usize) -> HashMap<Key, (Extract, Instant)> {
        let one = reading(2000);
        (0..OF_ONE / one.0.weight() + more).map(|number| ((number, String::new()), one.clone())).collect()
    }

    #[test]
    fn readings_have_bounds_for_one_and_for_all() {
        let keeping = Keeping::default();
        let mut one = Before::default();
        assert!(!one.replace(readings(1), &keeping), "more than 16 MiB");
        let mut all: Vec<Before> = (0..9).map(|_| Before::default()).collect();
        let kept = all.iter_mut().filter_map(|before| before.replace(readings(0), &keeping).then_some(()));
        assert_eq!(kept.count(), OF_ALL * 1024 / OF_ONE);
        // Those of objects that are gone make room.
        drop(all);
        assert!(one.replace(readings(0), &keeping));
        assert!(one.get(&(1, String::new())).is_some());
        assert!(keeping.0.available_permits() < OF_ALL);
        assert!(one.replace(HashMap::new(), &keeping));
        assert_eq!(keeping.0.available_permits(), OF_ALL);
    }

    #[test]
    fn a_turn_keeps_no_more_than_one_object_may() {
        let (left, one) = (Left::new(), reading(2000).0);
        let kept = (0..1000).filter(|_| left.take(&one)).count();
        assert!(kept * one.weight() <= OF_ONE && kept > 40, "{kept}");
    }
}
