//! How fast an answer must come: a deadline that each byte renews is none for a registry that sends one byte after another.

use std::time::{Duration, Instant};

/// Least bytes per second, on average over a period; a modem is faster.
const SLOWEST: u32 = 1 << 10;
/// The error of a transfer that is slower.
pub(super) const TOO_SLOW: &str = "it sends less than 1 KiB per second";

#[derive(Debug)]
pub(super) struct Pace {
    period: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    /// A transfer that begins now and is measured once in every period.
    pub(super) fn new(period: Duration) -> Self {
        Self::from(period, Instant::now())
    }

    fn from(period: Duration, since: Instant) -> Self {
        Self { period, since, bytes: 0 }
    }

    /// Takes note of bytes that arrived now; whether they come fast enough.
    pub(super) fn holds(&mut self, bytes: usize) -> bool {
        self.holds_at(bytes, Instant::now())
    }

    fn holds_at(&mut self, bytes: usize, now: Instant) -> bool {
        self.bytes += bytes as u64;
        let elapsed = now.duration_since(self.since);
        if elapsed < self.period {
            return true;
        }
        let least = elapsed.as_millis() * u128::from(SLOWEST) / 1000;
        let enough = u128::from(self.bytes) >= least;
        (self.since, self.bytes) = (now, 0);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drips_is_too_slow() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut pace = Pace::from(Duration::from_secs(30), begun);
        for second in 1..30 {
            assert!(pace.holds_at(100, at(second)), "{second} s");
        }
        assert!(!pace.holds_at(100, at(30)));
        // Each period counts for itself: a fast beginning pays for nothing later.
        assert!(pace.holds_at(30 << 10, at(60)));
        assert!(!pace.holds_at((30 << 10) - 1, at(90)));
    }
}
