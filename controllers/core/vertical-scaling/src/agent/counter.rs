//! How often something happened lately.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

/// Times of the last events; not more than are needed to detect that a limit is exceeded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecentCounter {
    interval: Duration,
    most: usize,
    times: VecDeque<Duration>,
}

impl RecentCounter {
    /// Most events that are remembered, whatever the limit.
    const MOST: usize = 1024;

    /// Counts events within `interval`, exactly up to one more than `limit`.
    #[must_use]
    pub fn new(interval: Duration, limit: u32) -> Self {
        let most = usize::try_from(limit).unwrap_or(Self::MOST).saturating_add(1).min(Self::MOST);
        Self { interval, most, times: VecDeque::new() }
    }

    /// One more at `now`.
    pub fn increment(&mut self, now: Duration) {
        self.forget(now);
        if self.times.len() >= self.most {
            self.times.pop_front();
        }
        self.times.push_back(now);
    }

    /// Events younger than the interval.
    #[must_use]
    pub fn count(&self, now: Duration) -> usize {
        self.times.iter().filter(|at| now.saturating_sub(**at) < self.interval).count()
    }

    fn forget(&mut self, now: Duration) {
        while self.times.front().is_some_and(|at| now.saturating_sub(*at) >= self.interval) {
            self.times.pop_front();
        }
    }
}
