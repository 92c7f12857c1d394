//! Values of the last while, one for each bucket of time.
//!
//! The interval is closed at both ends: a window of a minute holds a value that is exactly a minute old. A later value
//! in the same bucket replaces the earlier one. A bucket without a value was not observed and does not count; it is not
//! zero. Reading forgets: after silence as long as the window there is nothing left.

use std::collections::VecDeque;

use neonvm_api::pod_autoscaler::tuning::Averaging;
use serde::{Deserialize, Serialize};

use crate::number::Finite;

/// Longest time that values are kept, in seconds: that of the longest window.
pub const MOST_SECONDS: i64 = 3600;

/// Values of the last while; at most 3601 of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Width of a bucket in seconds.
    width: i64,
    /// Bucket and its value, ascending.
    values: VecDeque<(i64, Finite)>,
}

impl Default for Window {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Window {
    /// Buckets of `width` seconds, from 1.
    #[must_use]
    pub fn new(width: i64) -> Self {
        Self { width: width.max(1), values: VecDeque::new() }
    }

    fn bucket(&self, second: i64) -> i64 {
        // A stored window may contain any number.
        second.checked_div_euclid(self.width.max(1)).unwrap_or(0)
    }

    /// Writes a value at a second since 1970 and drops what is older than `keep` seconds. A time before the newest value
    /// counts as the newest.
    pub fn record(&mut self, second: i64, value: Finite, keep: i64) {
        let newest = self.values.back().map_or(i64::MIN, |(bucket, _)| *bucket);
        let bucket = self.bucket(second).max(newest);
        if bucket == newest {
            self.values.pop_back();
        }
        self.values.push_back((bucket, value));
        let oldest = self.bucket(second.saturating_sub(keep.clamp(0, MOST_SECONDS)));
        while self.values.front().is_some_and(|(have, _)| *have < oldest) {
            self.values.pop_front();
        }
    }

    /// The values of the last `duration` seconds, oldest first, each with the second its bucket begins at.
    pub fn values(&self, second: i64, duration: i64) -> impl DoubleEndedIterator<Item = (i64, Finite)> + '_ {
        let oldest = self.bucket(second.saturating_sub(duration.max(0)));
        let found = self.values.iter().filter(move |(bucket, _)| *bucket >= oldest);
        found.map(|(bucket, value)| (bucket.saturating_mul(self.width), *value))
    }

    /// The values of the last `duration` seconds as one; `None` without any.
    #[must_use]
    pub fn average(&self, second: i64, duration: i64, averaging: Averaging) -> Option<Finite> {
        let values = self.values(second, duration).map(|(_, value)| value.get());
        let many = values.fold(0i32, |many, _| many.saturating_add(1));
        if many == 0 {
            return None;
        }
        let newest_first = self.values(second, duration).rev().map(|(_, value)| value.get());
        let factor = match averaging {
            Averaging::Linear => 1.0,
            Averaging::WeightedExponential => 1.0 - smoothing(many),
        };
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for value in newest_first {
            // A running mean stays within the range of its values, so it cannot overflow.
            weights += weight;
            sum += (value - sum) * (weight / weights);
            weight *= factor;
        }
        Some(Finite::saturating(sum))
    }

    /// Seconds from the oldest value to `second`; `None` without any value.
    #[must_use]
    pub fn age(&self, second: i64) -> Option<i64> {
        self.values.front().map(|(bucket, _)| second.saturating_sub(bucket.saturating_mul(self.width)))
    }
}

/// How much the newest of `many` values weighs: so much that all of them together weigh 0.9999, at least 0.2 (Knative).
#[must_use]
pub fn smoothing(many: i32) -> f64 {
    let all: f64 = 1.0 - 0.9999;
    (1.0 - all.powf(1.0 / f64::from(many.max(1)))).max(0.2)
}
