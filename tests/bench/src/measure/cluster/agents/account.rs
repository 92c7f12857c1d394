//! What came of the requests of all agents.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::report::quantile;

/// Texts of failures that are kept.
const TEXTS: usize = 5;

/// Since the last [`Account::take`].
#[derive(Debug, Default)]
pub(in super::super) struct Account(Mutex<Totals>);

/// Counts of a time.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Totals {
    /// Time until each reply, in milliseconds, the wait for a connection included.
    times: Vec<f64>,
    /// Requests without a permit.
    pub(in super::super) failures: usize,
    /// Permits below the one before.
    pub(in super::super) lost: usize,
    /// Some of the failures.
    texts: Vec<String>,
}

impl Account {
    fn with<T>(&self, change: impl FnOnce(&mut Totals) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A reply came after this time; `lost`: it permits less than the one before.
    pub(super) fn permitted(&self, after: Duration, lost: bool) {
        self.with(|totals| {
            totals.times.push(after.as_secs_f64() * 1e3);
            totals.lost += usize::from(lost);
        });
    }

    /// There was no permit.
    pub(super) fn failed(&self, error: &anyhow::Error) {
        self.with(|totals| {
            totals.failures += 1;
            let text = format!("{error:#}");
            if totals.texts.len() < TEXTS && !totals.texts.contains(&text) {
                totals.texts.push(text);
            }
        });
    }

    /// The counts so far, which begin again.
    pub(in super::super) fn take(&self) -> Totals {
        self.with(std::mem::take)
    }
}

impl Totals {
    /// Permits.
    pub(in super::super) fn permits(&self) -> usize {
        self.times.len()
    }

    /// The time within which this share of replies came, in milliseconds.
    pub(in super::super) fn quantile(&mut self, share: f64) -> f64 {
        quantile(&mut self.times, share)
    }

    /// Some of the failures, for a note.
    pub(in super::super) fn failures(&self) -> String {
        if self.failures == 0 {
            return "no request failed".to_owned();
        }
        format!("{} requests failed: {}", self.failures, self.texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_again_when_they_are_taken() {
        let account = Account::default();
        account.permitted(Duration::from_millis(2), false);
        account.permitted(Duration::from_millis(8), true);
        account.failed(&anyhow::anyhow!("busy"));
        account.failed(&anyhow::anyhow!("busy"));
        let mut totals = account.take();
        assert_eq!((totals.permits(), totals.failures, totals.lost), (2, 2, 1));
        assert!((totals.quantile(1.0) - 8.0).abs() < 1e-9);
        assert_eq!(totals.failures(), "2 requests failed: busy");
        assert_eq!(account.take().failures(), "no request failed");
    }
}
