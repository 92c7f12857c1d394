//! What all reconciles share, and what is kept of each autoscaler between two of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use neonvm_core_pod_autoscaler::{Decision, Memory, Settings};
use neonvm_kit::event::Events;
use neonvm_kit::queue::Queue;

use crate::cache::{Cache, Key};
use crate::observe::{Before, Observer};
use crate::pods::Pods;
use crate::target::Targets;
use crate::telemetry::Telemetry;

/// State of one autoscaler that is kept between reconciles.
#[derive(Debug, Default)]
pub(crate) struct AutoscalerState {
    pub(crate) uid: String,
    pub(crate) memory: Memory,
    pub(crate) before: Before,
    /// The last failure that was reported, so that each is reported once.
    pub(crate) reported: String,
    /// The `HorizontalPodAutoscaler` that was applied last.
    pub(crate) applied: Option<serde_json::Value>,
    /// When the status was written last.
    pub(crate) written: Option<Instant>,
}

/// State that all reconciles share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) queue: Queue<Key>,
    pub(crate) cache: Cache,
    pub(crate) pods: Pods,
    pub(crate) targets: Targets,
    pub(crate) observer: Arc<Observer>,
    pub(crate) events: Events,
    pub(crate) telemetry: Arc<Telemetry>,
    kept: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<AutoscalerState>>>>,
    pub(crate) begun: (Instant, Timestamp),
}

impl Context {
    pub(crate) fn new(
        client: Client,
        observer: Arc<Observer>,
        events: Events,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            targets: Targets::new(client.clone()),
            client,
            queue: Queue::new(),
            cache: Cache::default(),
            pods: Pods::default(),
            observer,
            events,
            telemetry,
            kept: Mutex::default(),
            begun: (Instant::now(), Timestamp::now()),
        }
    }

    /// Time of day for people and schedules.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    pub(crate) fn kept(&self, key: &Key) -> Arc<tokio::sync::Mutex<AutoscalerState>> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key.clone()).or_default())
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.telemetry.forget(key);
    }

    /// Time until the next reconcile: the decision's, shifted so that objects with the same period do not all come at
    /// once.
    pub(crate) fn pause(&self, key: &Key, decision: &Decision, settings: &Settings) -> Duration {
        let until = decision.next.duration_since(self.now());
        let until = Duration::try_from(until).unwrap_or_default().max(Duration::from_millis(10));
        let period = Duration::from_secs(settings.sync_period.unsigned_abs().max(1));
        if until < period.mul_f64(0.9) {
            // Other bounds come into force then.
            return until;
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let phase =
            period.mul_f64(f64::from(u16::try_from(hasher.finish() >> 48).unwrap_or_default()) / 65536.0);
        spread(self.begun.0.elapsed(), period, phase)
    }
}

/// From `now` to the next time that is `phase` after a multiple of the period, but not sooner than half a period.
fn spread(now: Duration, period: Duration, phase: Duration) -> Duration {
    let period_ns = period.as_nanos().max(1);
    let earliest = now + period / 2;
    let past = (earliest.as_nanos() + period_ns - phase.as_nanos() % period_ns) % period_ns;
    let wait = (period_ns - past) % period_ns;
    period / 2 + Duration::from_nanos(u64::try_from(wait).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread_over_the_period() {
        let (period, second) = (Duration::from_secs(10), Duration::from_secs(1));
        for phase in 0..10_u32 {
            let mut now = Duration::from_millis(1234);
            for _ in 0..5 {
                let wait = spread(now, period, second * phase);
                assert!(wait >= period / 2 && wait < period + period / 2, "{wait:?}");
                now += wait;
                assert_eq!(now.as_nanos() % period.as_nanos(), (second * phase).as_nanos());
            }
        }
    }
}
