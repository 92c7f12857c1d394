//! The control loop that derives steps and frequencies from measured offsets: proportional and integral, bounded.

use std::time::Duration;

/// Shortest time between two measurements.
pub const SHORTEST_POLL: Duration = Duration::from_secs(4);
/// Longest time between two measurements.
pub const LONGEST_POLL: Duration = Duration::from_secs(16);
/// At the first measurement a larger offset is stepped over, in nanoseconds.
pub const FIRST_STEP: i64 = 100_000_000;
/// Later a larger offset is stepped over: the VM was stopped, or came from another host.
pub const LATER_STEP: i64 = 1_000_000_000;
/// Fastest correction, in parts per million; the kernel takes no more than 500.
pub const FASTEST: f64 = 500.0;
/// Below this offset, in nanoseconds, the loop has settled and measures less often.
const SETTLED: i64 = 50_000;
/// Share of an offset that is corrected until the next measurement.
const PROPORTIONAL: f64 = 0.5;
/// Share of an offset that is taken for an error of the frequency.
const INTEGRAL: f64 = 0.15;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Add so many nanoseconds at once.
    Step(i64),
    /// Run faster by so many parts per million, within ±[`FASTEST`].
    Slew(f64),
}

/// What to do, and when to measure next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    pub action: Action,
    /// Time until the next measurement.
    pub poll: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Servo {
    /// The frequency error of the clock as estimated, parts per million.
    drift: f64,
    poll: Duration,
    started: bool,
}

impl Servo {
    /// A loop over a clock that is corrected by so many parts per million already.
    pub fn new(frequency: f64) -> Self {
        let drift = if frequency.is_finite() { frequency.clamp(-FASTEST, FASTEST) } else { 0.0 };
        Self { drift, poll: SHORTEST_POLL, started: false }
    }

    /// Takes a measurement: by how many nanoseconds the reference is ahead.
    pub fn observe(&mut self, offset: i64) -> Verdict {
        let limit = if self.started { LATER_STEP } else { FIRST_STEP };
        self.started = true;
        if offset.unsigned_abs() > limit.unsigned_abs() {
            self.poll = SHORTEST_POLL;
            return Verdict { action: Action::Step(offset), poll: self.poll };
        }
        let settled = offset.abs() < SETTLED;
        self.poll = if settled { (self.poll * 2).min(LONGEST_POLL) } else { SHORTEST_POLL };
        // One part per million is a microsecond a second. The offset is at most a second here: exact in a double.
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let rate = offset as f64 / 1_000.0 / self.poll.as_secs_f64();
        let wanted = self.drift + rate * (PROPORTIONAL + INTEGRAL);
        if wanted.abs() <= FASTEST {
            // While the correction is at its bound, the offset holds no information about the drift.
            self.drift += rate * INTEGRAL;
        }
        let frequency = (self.drift + rate * PROPORTIONAL).clamp(-FASTEST, FASTEST);
        Verdict { action: Action::Slew(frequency), poll: self.poll }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs the loop over a clock that is `offset` nanoseconds behind and loses `drift` parts per million.
    fn simulate(mut offset: f64, drift: f64, rounds: usize) -> Vec<f64> {
        let mut servo = Servo::new(0.0);
        (0..rounds)
            .map(|_| {
                let verdict = servo.observe(offset as i64);
                let frequency = match verdict.action {
                    Action::Step(by) => {
                        offset -= by as f64;
                        0.0
                    }
                    Action::Slew(frequency) => frequency,
                };
                offset += (drift - frequency) * 1_000.0 * verdict.poll.as_secs_f64();
                offset
            })
            .collect()
    }

    #[test]
    fn steps_only_where_they_are_allowed() {
        assert!(matches!(Servo::new(0.0).observe(-100_000_001).action, Action::Step(-100_000_001)));
        assert!(matches!(Servo::new(0.0).observe(100_000_000).action, Action::Slew(_)));
        let mut later = Servo::new(0.0);
        later.observe(0);
        assert!(matches!(later.observe(-1_000_000_000).action, Action::Slew(_)));
        assert!(matches!(later.observe(1_000_000_001).action, Action::Step(_)));
        assert!(matches!(later.observe(i64::MIN).action, Action::Step(i64::MIN)));
    }

    proptest! {
        #[test]
        fn converges_without_running_away(start in -90e6f64..90e6, drift in -150.0f64..150.0) {
            let course = simulate(start, drift, 400);
            let worst = course.iter().fold(0.0f64, |worst, offset| worst.max(offset.abs()));
            // The drift acts for one interval before it is measured.
            prop_assert!(worst <= start.abs() * 1.3 + 150.0 * 1_000.0 * 16.0 * 2.0, "{}", worst);
            let tail = course.iter().rev().take(20).fold(0.0f64, |worst, offset| worst.max(offset.abs()));
            prop_assert!(tail < 1_000.0, "{}", tail);
        }

        #[test]
        fn corrections_and_times_are_bounded(
            frequency in any::<f64>(), offsets in proptest::collection::vec(any::<i64>(), 1..50),
        ) {
            let mut servo = Servo::new(frequency);
            for offset in offsets {
                let verdict = servo.observe(offset);
                prop_assert!((SHORTEST_POLL..=LONGEST_POLL).contains(&verdict.poll));
                if let Action::Slew(frequency) = verdict.action {
                    prop_assert!(frequency.abs() <= FASTEST);
                }
            }
        }
    }
}
