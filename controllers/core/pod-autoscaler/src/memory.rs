//! What one autoscaler remembers between decisions: small, and whole in its serialised form.
//!
//! It may be lost. An autoscaler without memory holds what it finds: the replicas that are there count as a
//! recommendation made at its first decision, and a workload of several pods starts in panic, which never shrinks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{kpa::Panic, settings::Settings, stabilise::Stabiliser, want::Fleet, window::Window};

/// What is remembered of one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricMemory {
    /// Which metric it is.
    pub key: String,
    /// Loads of the last while.
    pub window: Window,
    /// Whether there is panic.
    pub panic: Panic,
    /// Since when the metric is watched; `None` before the first value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// What one autoscaler remembers between decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The latest time that was seen; an earlier one is taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Timestamp>,
    /// Recommendations of the last while.
    #[serde(default)]
    pub stabiliser: Stabiliser,
    /// Loads of the last while, one for each metric of the object, in its order.
    #[serde(default)]
    pub metrics: Vec<MetricMemory>,
}

impl Memory {
    /// Takes note of the time and of the metrics. Metrics that stay keep their loads, wherever they stand in the list
    /// now and whatever their target; all others are forgotten. Changed windows keep what fits.
    pub(crate) fn prepare(&mut self, settings: &Settings, fleet: Fleet, now: Timestamp) -> Timestamp {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        // After a gap as long as the window it is as at the start, whatever was stored.
        // A decision or two may be late without that.
        let most = settings.stable_window.max(settings.sync_period.saturating_mul(3));
        let gap = |latest: Timestamp| now.duration_since(latest).as_secs() > most;
        if self.latest.is_none_or(gap) {
            self.stabiliser.record(now, fleet.current);
            for metric in &mut self.metrics {
                (metric.since, metric.panic) = (None, Panic::start(fleet, now));
            }
        }
        self.latest = Some(now);
        let unchanged = self.metrics.len() == settings.metrics.len()
            && self.metrics.iter().zip(&settings.metrics).all(|(have, want)| have.key == want.key);
        if !unchanged {
            let mut old = std::mem::take(&mut self.metrics);
            self.metrics = settings
                .metrics
                .iter()
                .map(|metric| match old.iter().position(|have| have.key == metric.key) {
                    Some(index) => old.swap_remove(index),
                    None => MetricMemory {
                        key: metric.key.clone(),
                        panic: Panic::start(fleet, now),
                        ..MetricMemory::default()
                    },
                })
                .collect();
        }
        now
    }
}
