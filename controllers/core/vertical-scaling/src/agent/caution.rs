//! Shrinks of one resource that were too early. A VM whose load is close to what a size can take would swing between two sizes; each
//! shrink that a growth follows soon makes the next one need a lower use, and delays it.
//!
//! The law: the resource shrinks no sooner than `HOLD · 2^(n−1)` after the n-th growth in a row that followed a shrink too early, up to
//! `HOLD · 2^(LEVELS−1)`. So under any noise it turns at most once in that time.

use std::time::Duration;

use serde::Serialize;

/// A VM that grows again within this time has shrunk too early.
const EARLY: Duration = Duration::from_secs(120);
/// What each of them takes from the share of a size up to which its CPU may have been used after shrinking to it.
const STEP: f64 = 0.15;
/// How many of them count for that share.
const MOST: u8 = 2;
/// How long the resource does not shrink after the first of them; twice as long after each further one.
const HOLD: Duration = Duration::from_secs(60);
/// How many of them count for that time.
const LEVELS: u8 = 5;
/// After so long without another one, one of them is forgotten.
const FORGET: Duration = Duration::from_secs(30 * 60);

/// What was learned from shrinks that were too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Caution {
    /// The last shrink during a load, until it is known whether it was too early.
    shrunk_at: Option<Duration>,
    /// Shrinks that were too early.
    early: u8,
    learned_at: Duration,
    /// Until when the resource does not shrink.
    holds_until: Duration,
}

impl Caution {
    /// Takes in that the amount changed. `is_pause`: it was almost unused before, so that a growth that follows is for a new load.
    pub(super) fn resized(&mut self, now: Duration, from: u64, to: u64, is_pause: bool) {
        if to < from {
            self.shrunk_at = (!is_pause).then_some(now);
        } else if to > from
            && let Some(at) = self.shrunk_at.take()
            && now.saturating_sub(at) <= EARLY.max(self.hold())
        {
            (self.early, self.learned_at) = (self.early.saturating_add(1).min(LEVELS), now);
            self.holds_until = now.saturating_add(self.hold());
        }
    }

    /// How long the resource does not shrink after a growth that followed a shrink too early.
    fn hold(&self) -> Duration {
        self.early.checked_sub(1).map_or(Duration::ZERO, |more| HOLD.saturating_mul(1 << more))
    }

    /// Takes in the time.
    pub(super) fn pass(&mut self, now: Duration) {
        if self.early > 0 && now.saturating_sub(self.learned_at) >= FORGET {
            (self.early, self.learned_at) = (self.early - 1, now);
        }
    }

    /// The share of a size up to which its CPU may have been used, reduced by what was learned.
    pub(super) fn reduce(&self, share: f64) -> f64 {
        share - STEP * f64::from(self.early.min(MOST))
    }

    /// Whether the resource does not shrink at `now`, unless it is almost unused.
    pub(super) fn holds(&self, now: Duration) -> bool {
        now < self.holds_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 250;
    const TWO: u64 = 500;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What remains of 0.7 after resizes at these seconds, each down and up again.
    fn share_after(resizes: &[(u64, u64)], is_pause: bool) -> f64 {
        let mut caution = Caution::default();
        for &(down, up) in resizes {
            caution.resized(seconds(down), TWO, ONE, is_pause);
            caution.resized(seconds(up), ONE, TWO, false);
        }
        (caution.reduce(0.7) * 100.0).round() / 100.0
    }

    #[test]
    fn a_growth_soon_after_a_shrink_is_learned() {
        assert_eq!(share_after(&[], false), 0.7);
        assert_eq!(share_after(&[(10, 130)], false), 0.55);
        assert_eq!(share_after(&[(10, 131)], false), 0.7, "late enough for another load");
        assert_eq!(share_after(&[(10, 20), (30, 40), (50, 60)], false), 0.4);
        assert_eq!(share_after(&[(10, 20), (30, 40)], true), 0.7, "pauses between bursts");
    }

    #[test]
    fn it_is_forgotten_step_by_step() {
        let mut caution = Caution::default();
        for at in [0, 20] {
            caution.resized(seconds(at), TWO, ONE, false);
            caution.resized(seconds(at + 10), ONE, TWO, false);
        }
        let early = |caution: &mut Caution, at| {
            caution.pass(seconds(at));
            caution.early
        };
        assert_eq!([0, 1829, 1830, 3629, 3630].map(|at| early(&mut caution, at)), [2, 2, 1, 1, 0]);
    }

    #[test]
    fn a_shrink_by_several_steps_counts_once() {
        let mut caution = Caution::default();
        caution.resized(seconds(0), 750, TWO, false);
        caution.resized(seconds(5), TWO, ONE, false);
        caution.resized(seconds(9), ONE, TWO, false);
        caution.resized(seconds(10), TWO, 750, false);
        assert_eq!(caution.early, 1);
    }

    #[test]
    fn each_one_in_a_row_doubles_the_time_without_shrinking() {
        let (mut caution, mut now, mut waits) = (Caution::default(), 0, Vec::new());
        for _ in 0..7 {
            caution.resized(seconds(now), TWO, ONE, false);
            caution.resized(seconds(now + 1), ONE, TWO, false);
            let grown = now + 1;
            now = (grown..).find(|at| !caution.holds(seconds(*at))).unwrap();
            waits.push(now - grown);
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 960, 960]);
    }
}
