//! How much a load needs over time, in steps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::span;
use crate::queue::{SECOND, Time};
use crate::rng::Rng;

/// How much a load needs over time. Levels are compute units, 0 to 10,000, and need not be whole. Where it repeats, each VM
/// begins at another point, chosen by the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum Demand {
    /// Always the same.
    Constant {
        /// Level in compute units.
        level: f64,
    },
    /// One level after the other, again and again.
    Steps {
        /// Levels in compute units.
        levels: Vec<f64>,
        #[serde(with = "span")]
        every: Duration,
    },
    /// Up and down like a sine.
    Daily {
        /// At the lowest.
        low: f64,
        high: f64,
        /// From one lowest point to the next.
        #[serde(with = "span", default = "day")]
        period: Duration,
    },
    /// From one level to another, then constant; begins with the run.
    Ramp {
        from: f64,
        to: f64,
        #[serde(with = "span")]
        over: Duration,
    },
    Bursts {
        low: f64,
        high: f64,
        /// From one burst to the next, on average.
        #[serde(with = "span")]
        every: Duration,
        #[serde(with = "span")]
        length: Duration,
    },
    Walk {
        /// Never below.
        low: f64,
        /// Never above.
        high: f64,
        /// Longest step up or down.
        step: f64,
        #[serde(with = "span")]
        every: Duration,
    },
}

type Named<T> = (&'static str, T);

const fn day() -> Duration {
    Duration::from_secs(24 * 3600)
}

/// Steps of a whole period, or of a ramp.
const PARTS: u64 = 96;
/// Shortest time between two steps.
const SHORTEST: Time = SECOND;

/// A demand as one VM has it.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    demand: Demand,
    phase: Time,
    level: f64,
    high: bool,
}

fn micros(span: Duration) -> Time {
    Time::try_from(span.as_micros()).unwrap_or(Time::MAX / 4).max(SHORTEST)
}

impl Curve {
    pub(crate) fn new(demand: &Demand, rng: &mut Rng) -> Self {
        let drawn = rng.next();
        let (phase, level) = match demand {
            Demand::Constant { level } => (0, *level),
            Demand::Ramp { from, .. } => (0, *from),
            Demand::Steps { levels, every } => {
                (drawn % micros(*every).saturating_mul(levels.len().max(1) as u64), 0.0)
            }
            Demand::Daily { period, .. } => (drawn % micros(*period), 0.0),
            Demand::Bursts { low, every, .. } => (drawn % micros(*every), *low),
            Demand::Walk { low, high, .. } => (0, low + (high - low) * rng.unit()),
        };
        Self { demand: demand.clone(), phase, level, high: false }
    }

    /// The level from `now` on, and how long it lasts; `None`: for ever.
    pub(crate) fn next(&mut self, now: Time, rng: &mut Rng) -> (f64, Option<Time>) {
        match &self.demand {
            Demand::Constant { level } => (*level, None),
            Demand::Steps { levels, every } => {
                let (every, at) = (micros(*every), now.saturating_add(self.phase));
                let index = usize::try_from(at / every).unwrap_or(0) % levels.len().max(1);
                (levels.get(index).copied().unwrap_or(0.0), Some(every - at % every))
            }
            Demand::Daily { low, high, period } => {
                let (period, at) = (micros(*period), now.saturating_add(self.phase));
                let part = (period / PARTS).max(SHORTEST);
                let share = (at % period / part) as f64 * part as f64 / period as f64;
                let wave = (1.0 - (share * std::f64::consts::TAU).cos()) / 2.0;
                (low + (high - low) * wave, Some(part - at % period % part))
            }
            Demand::Ramp { from, to, over } => {
                let over = micros(*over);
                let part = (over / PARTS).max(SHORTEST);
                if now >= over {
                    return (*to, None);
                }
                let share = (now / part) as f64 * part as f64 / over as f64;
                (from + (to - from) * share, Some(part - now % part))
            }
            Demand::Bursts { low, high, every, length } => {
                let (every, length) = (micros(*every), micros(*length));
                if self.phase > 0 {
                    return (*low, Some(std::mem::take(&mut self.phase)));
                }
                self.high = !self.high;
                if self.high {
                    (*high, Some(length))
                } else {
                    (*low, Some(rng.between(every / 2, every / 2 * 3)))
                }
            }
            Demand::Walk { low, high, step, every } => {
                self.level = (self.level + (rng.unit() * 2.0 - 1.0) * step).clamp(*low, high.max(*low));
                (self.level, Some(micros(*every)))
            }
        }
    }
}

impl Demand {
    /// Every level and every length of time in it, with their names.
    pub(super) fn parts(&self) -> (Vec<Named<f64>>, Vec<Named<Duration>>) {
        match self {
            Self::Constant { level } => (vec![("level", *level)], vec![]),
            Self::Steps { levels, every } => {
                (levels.iter().map(|level| ("levels", *level)).collect(), vec![("every", *every)])
            }
            Self::Daily { low, high, period } => {
                (vec![("low", *low), ("high", *high)], vec![("period", *period)])
            }
            Self::Ramp { from, to, over } => (vec![("from", *from), ("to", *to)], vec![("over", *over)]),
            Self::Bursts { low, high, every, length } => {
                (vec![("low", *low), ("high", *high)], vec![("every", *every), ("length", *length)])
            }
            Self::Walk { low, high, step, every } => {
                (vec![("low", *low), ("high", *high), ("step", *step)], vec![("every", *every)])
            }
        }
    }

    /// Whether `low` is above `high`.
    pub(super) fn is_crossed(&self) -> bool {
        match self {
            Self::Daily { low, high, .. } | Self::Bursts { low, high, .. } | Self::Walk { low, high, .. } => {
                low > high
            }
            Self::Constant { .. } | Self::Steps { .. } | Self::Ramp { .. } => false,
        }
    }
}
