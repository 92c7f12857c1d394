//! Recommendations of the last while hold a step back, as in Kubernetes: a step up goes no higher than the lowest of
//! them within its window, a step down no lower than the highest within its own.

use std::{collections::VecDeque, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Recommendations of the last while. Only those that can still decide are kept: of two that stand at the same side, an
/// older one that is less extreme never counts again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stabiliser {
    /// Ascending in time and descending in replicas: the first is the highest.
    highest: VecDeque<(Timestamp, i32)>,
    /// Ascending in time and in replicas: the first is the lowest.
    lowest: VecDeque<(Timestamp, i32)>,
}

/// Most recommendations that are kept on each side: one for each second of the longest window.
const MOST: usize = 3602;

fn signed(window: Duration) -> SignedDuration {
    SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX)
}

/// Keeps a side in order and within bounds.
fn push(side: &mut VecDeque<(Timestamp, i32)>, now: Timestamp, replicas: i32, beaten: impl Fn(i32) -> bool) {
    while side.back().is_some_and(|(_, other)| beaten(*other)) {
        side.pop_back();
    }
    if side.len() >= MOST {
        side.pop_front();
    }
    side.push_back((now, replicas));
}

impl Stabiliser {
    /// Remembers a recommendation.
    pub fn record(&mut self, now: Timestamp, replicas: i32) {
        push(&mut self.highest, now, replicas, |other| other <= replicas);
        push(&mut self.lowest, now, replicas, |other| other >= replicas);
    }

    /// The highest recommendation younger than `window`.
    #[must_use]
    pub fn highest(&self, now: Timestamp, window: Duration) -> Option<i32> {
        within(&self.highest, now, window)
    }

    /// The lowest recommendation younger than `window`.
    #[must_use]
    pub fn lowest(&self, now: Timestamp, window: Duration) -> Option<i32> {
        within(&self.lowest, now, window)
    }

    /// A recommendation held back by those before it; then it is one of them.
    pub fn step(&mut self, now: Timestamp, replicas: i32, current: i32, up: Duration, down: Duration) -> i32 {
        let least = self.lowest(now, up).map_or(replicas, |lowest| lowest.min(replicas));
        let most = self.highest(now, down).map_or(replicas, |highest| highest.max(replicas));
        self.record(now, replicas);
        self.forget(now, up.max(down));
        current.max(least).min(most)
    }

    fn forget(&mut self, now: Timestamp, window: Duration) {
        for side in [&mut self.highest, &mut self.lowest] {
            while side.len() > 1
                && side.front().is_some_and(|(at, _)| now.duration_since(*at) >= signed(window))
            {
                side.pop_front();
            }
        }
    }
}

/// The first that is young enough; those before it are too old, those after it less extreme.
fn within(side: &VecDeque<(Timestamp, i32)>, now: Timestamp, window: Duration) -> Option<i32> {
    side.iter().find(|(at, _)| now.duration_since(*at) < signed(window)).map(|(_, replicas)| *replicas)
}
