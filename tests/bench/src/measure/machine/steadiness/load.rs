//! Loads that vary, as the CPU that queries need over time.

use std::time::Duration;

use super::{TARGET, sizes::UNIT};

/// Resolution of the sum of arrivals.
const STEP: Duration = Duration::from_millis(10);

/// A load that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// 80 % of a CPU for 3 s, every 30 s; 2 % otherwise.
    Bursts,
    /// From 5 to 90 % of a CPU.
    Ramp,
    /// A day in the length of the load: 3 % at night, 85 % at noon.
    Day,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Bursts, Self::Ramp, Self::Day];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bursts => "80 % of a CPU for 3 s, every 30 s",
            Self::Ramp => "a ramp from 5 to 90 %",
            Self::Day => "a day's curve from 3 to 85 %",
        }
    }

    /// CPUs that queries need at a moment of the load.
    pub(super) fn cpus(self, at: Duration, length: Duration) -> f64 {
        let share = at.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE);
        match self {
            Self::Bursts if at.as_secs() % 30 >= 27 => 0.80,
            Self::Bursts => 0.02,
            Self::Ramp => 0.85f64.mul_add(share.clamp(0.0, 1.0), 0.05),
            Self::Day => 0.82f64.mul_add((std::f64::consts::PI * share).sin().powi(4), 0.03),
        }
    }

    /// CPUs of the smallest size that does this at [`TARGET`].
    pub(super) fn need(self, at: Duration, length: Duration) -> f64 {
        (self.cpus(at, length) / TARGET / UNIT).ceil().max(1.0) * UNIT
    }

    /// When queries begin that take `query` of CPU time each.
    pub(super) fn arrivals(self, length: Duration, query: Duration) -> Vec<Duration> {
        let (mut due, mut at, mut all) = (0.0, Duration::ZERO, Vec::new());
        while at < length {
            due += self.cpus(at, length) * STEP.as_secs_f64() / query.as_secs_f64();
            while due >= 1.0 {
                due -= 1.0;
                all.push(at);
            }
            at += STEP;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_need_the_cpu_of_the_load() {
        let (length, query) = (Duration::from_secs(300), Duration::from_millis(10));
        for (load, cpus) in [(Load::Bursts, 0.098), (Load::Ramp, 0.475), (Load::Day, 0.3375)] {
            let mean = load.arrivals(length, query).len() as f64 * query.as_secs_f64() / length.as_secs_f64();
            assert!((mean - cpus).abs() < 0.01, "{load:?}: {mean}");
        }
    }

    #[test]
    fn the_need_is_a_size() {
        let length = Duration::from_secs(300);
        let need = |load: Load, seconds| load.need(Duration::from_secs(seconds), length);
        assert_eq!((need(Load::Bursts, 1), need(Load::Bursts, 28)), (0.25, 1.0));
        assert_eq!((need(Load::Ramp, 0), need(Load::Ramp, 300), need(Load::Day, 150)), (0.25, 1.0, 1.0));
    }
}
