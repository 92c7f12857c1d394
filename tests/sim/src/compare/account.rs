//! What a trial is judged by.

use std::time::Duration;

use crate::compare::{Load, Rules};
use crate::queue::{MILLI, SECOND, Time};

/// Share of a size's CPU that the perfect forecaster uses: the target of agents.
const TARGET: f64 = 0.9;
/// CPU of a compute unit.
const UNIT: f64 = 0.25;

/// The state of a trial at one moment, for plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Time since the start.
    pub at: Duration,
    /// CPU time that the work needs, in compute units.
    pub demand: f64,
    /// Size of the perfect forecaster, in compute units.
    pub perfect: u32,
    /// Size of the VM, in compute units.
    pub size: u32,
}

/// What came of one load under some rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub load: Load,
    pub rules: Rules,
    pub grown: u32,
    pub shrunk: u32,
    /// How often its size changed after the first minute.
    pub changed_later: u32,
    /// Size over time, in compute units times seconds.
    pub unit_seconds: f64,
    /// The same of the perfect forecaster.
    pub perfect_unit_seconds: f64,
    /// Time during which the VM was smaller than the perfect forecaster's.
    pub below: Duration,
    /// Time from the arrival of a piece of work to its end: the median.
    pub latency: Duration,
    pub latency_p99: Duration,
    /// From the moment at which more was needed to the first growth: the longest.
    pub slowest_growth: Duration,
    /// One point a second.
    pub points: Vec<Point>,
}

impl Trial {
    /// Unit-seconds beside those of the perfect forecaster.
    pub fn cost(&self) -> f64 {
        self.unit_seconds / self.perfect_unit_seconds.max(f64::MIN_POSITIVE)
    }
}

/// The account of a trial under way.
#[derive(Clone, Debug)]
pub(super) struct Account {
    load: Load,
    bounds: (u32, u32),
    size: u32,
    size_at_end: u64,
    perfect: u64,
    below: Time,
    grown: u32,
    changed_later: u32,
    shrunk: u32,
    latencies: Vec<Time>,
    /// Since when more is needed than there was then.
    short: Option<(Time, u32)>,
    slowest: Time,
    points: Vec<Point>,
}

impl Account {
    pub(super) fn new(load: Load, bounds: (u32, u32), size: u32) -> Self {
        Self {
            load,
            bounds,
            size,
            size_at_end: 0,
            perfect: 0,
            below: 0,
            grown: 0,
            changed_later: 0,
            shrunk: 0,
            latencies: Vec::new(),
            short: None,
            slowest: 0,
            points: Vec::new(),
        }
    }

    /// Compute units that the perfect forecaster has at `at`.
    fn perfect_at(&self, at: Time) -> u32 {
        let units = (self.load.rate(at) / TARGET / UNIT - 1e-9).ceil();
        (units.max(0.0) as u32).clamp(self.bounds.0, self.bounds.1)
    }

    /// A millisecond from `now` has passed.
    pub(super) fn tick(&mut self, now: Time) {
        let perfect = self.perfect_at(now);
        if now.is_multiple_of(SECOND) {
            let demand = self.load.rate(now) / UNIT;
            self.points.push(Point { at: Duration::from_micros(now), demand, perfect, size: self.size });
        }
        self.size_at_end += u64::from(self.size);
        self.perfect += u64::from(perfect);
        if self.size < perfect {
            self.below += MILLI;
            self.short.get_or_insert((now, self.size));
        } else {
            self.short = None;
        }
    }

    pub(super) fn done(&mut self, took: Time) {
        self.latencies.push(took);
    }

    /// The VM has another size.
    pub(super) fn resized(&mut self, now: Time, size: u32) {
        if size > self.size {
            self.grown += 1;
        } else if size < self.size {
            self.shrunk += 1;
        }
        self.changed_later += u32::from(size != self.size && now >= 60 * SECOND);
        self.size = size;
        if let Some((since, _)) = self.short.filter(|(_, had)| size > *had) {
            self.slowest = self.slowest.max(now - since);
            // The next step up is measured from here.
            self.short = None;
        }
    }

    pub(super) fn close(mut self, rules: Rules) -> Trial {
        self.latencies.sort_unstable();
        let at = |percent: usize| {
            let index = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
            Duration::from_micros(self.latencies.get(index).copied().unwrap_or_default())
        };
        let seconds = |milliseconds: u64| milliseconds as f64 / 1000.0;
        Trial {
            load: self.load,
            rules,
            grown: self.grown,
            shrunk: self.shrunk,
            changed_later: self.changed_later,
            unit_seconds: seconds(self.size_at_end),
            perfect_unit_seconds: seconds(self.perfect),
            below: Duration::from_micros(self.below),
            latency: at(50),
            latency_p99: at(99),
            slowest_growth: Duration::from_micros(self.slowest),
            points: self.points,
        }
    }
}
