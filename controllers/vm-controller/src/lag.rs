//! VMs that have only failed for a period since their first failure. Conflicts are counted separately.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cache::Key;

#[derive(Clone, Copy, Debug)]
struct Failing {
    first: Instant,
    last: Instant,
}

#[derive(Debug, Default)]
struct FailingVms {
    failures: HashMap<Key, Failing>,
    conflicts: HashMap<Key, Failing>,
}

#[derive(Debug)]
pub(crate) struct Lag {
    period: Duration,
    kept: Mutex<FailingVms>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
    InConflict,
}

/// Numbers for the metrics: failing machines that were and were not tried again in the last period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) retried: usize,
    pub(crate) not_retried: usize,
}

impl Lag {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, FailingVms> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, key: &Key, ended: Ended) {
        let now = Instant::now();
        let mut kept = self.lock();
        let note = |map: &mut HashMap<Key, Failing>| {
            map.entry(Key::clone(key)).or_insert(Failing { first: now, last: now }).last = now;
        };
        match ended {
            Ended::Well => {
                kept.failures.remove(key);
                kept.conflicts.remove(key);
            }
            Ended::Badly => {
                note(&mut kept.failures);
                kept.conflicts.remove(key);
            }
            Ended::InConflict => note(&mut kept.conflicts),
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.record(key, Ended::Well);
    }

    /// Failures, then conflicts.
    pub(crate) fn counts(&self) -> [Counts; 2] {
        let kept = self.lock();
        [&kept.failures, &kept.conflicts].map(|map| {
            let mut counts = Counts::default();
            for failing in map.values().filter(|failing| failing.first.elapsed() >= self.period) {
                if failing.last.elapsed() < self.period {
                    counts.retried += 1;
                } else {
                    counts.not_retried += 1;
                }
            }
            counts
        })
    }

    /// `[{"controllerName":"virtualmachine","failing":[…],"conflicting":[…]}]`
    pub(crate) fn debug(&self) -> Value {
        let kept = self.lock();
        let names = |map: &HashMap<Key, Failing>| {
            let degraded = map.iter().filter(|(_, failing)| failing.first.elapsed() >= self.period);
            let mut names: Vec<String> = degraded.map(|(key, _)| key.to_string()).collect();
            names.sort();
            names
        };
        let (failing, conflicting) = (names(&kept.failures), names(&kept.conflicts));
        json!([{"controllerName": "virtualmachine", "failing": failing, "conflicting": conflicting}])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use neonvm_types::NamespacedName;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_fails_without_success_for_a_period_counts() {
        let lag = Lag::new(Duration::from_secs(60));
        let key = Arc::new(NamespacedName::new("ns", "vm"));
        lag.record(&key, Ended::Badly);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(lag.counts()[0], Counts::default());
        lag.record(&key, Ended::Badly);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(lag.counts()[0], Counts { retried: 1, not_retried: 0 });
        assert_eq!(lag.debug()[0]["failing"], serde_json::json!(["ns/vm"]));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(lag.counts()[0], Counts { retried: 0, not_retried: 1 });
        lag.record(&key, Ended::InConflict);
        assert_eq!(lag.counts()[0].not_retried, 1, "a conflict is no success");
        lag.record(&key, Ended::Well);
        assert_eq!(lag.counts(), [Counts::default(); 2]);
    }
}
