//! A recorded load.

use neonvm_core_pod_autoscaler::Finite;

/// Longest trace in seconds: a month of 31 days.
pub const MOST_SECONDS: u32 = 31 * 24 * 3600;
/// Most points of a trace.
pub const MOST_POINTS: usize = 1_000_000;

/// Loads that hold from a second on until the next point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the start.
    pub second: u32,
    /// The whole load, one for each metric of the object, in its order; `None`: it was not recorded.
    pub loads: Vec<Option<Finite>>,
}

/// Why points are no trace. Points are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("a trace has at least two points; the last one ends it")]
    Empty,
    #[error("a trace has at most {MOST_POINTS} points")]
    Points,
    #[error("the first point must be at second 0")]
    Start,
    #[error("point {0} is not later than the one before")]
    Order(usize),
    #[error("point {0} is later than {MOST_SECONDS} seconds, the longest that is replayed")]
    Long(usize),
    #[error("point {0} has another number of loads than the first")]
    Width(usize),
    #[error("point {0} has a load below 0")]
    Negative(usize),
}

/// A recorded load. The last point ends it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace(Vec<Point>);

impl Trace {
    /// Checks the points.
    pub fn new(points: Vec<Point>) -> Result<Self, TraceError> {
        let (Some(first), true) = (points.first(), points.len() > 1) else { return Err(TraceError::Empty) };
        if points.len() > MOST_POINTS {
            return Err(TraceError::Points);
        }
        if first.second != 0 {
            return Err(TraceError::Start);
        }
        let width = first.loads.len();
        let mut before = None;
        for (index, point) in points.iter().enumerate() {
            let number = index + 1;
            if before.is_some_and(|before| point.second <= before) {
                return Err(TraceError::Order(number));
            }
            if point.second > MOST_SECONDS {
                return Err(TraceError::Long(number));
            }
            if point.loads.len() != width {
                return Err(TraceError::Width(number));
            }
            if point.loads.iter().flatten().any(|load| *load < Finite::ZERO) {
                return Err(TraceError::Negative(number));
            }
            before = Some(point.second);
        }
        Ok(Self(points))
    }

    /// In order; at least two.
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// Length of the trace in seconds.
    pub fn seconds(&self) -> u32 {
        self.0.last().map_or(0, |point| point.second)
    }

    /// Loads of each point.
    pub fn width(&self) -> usize {
        self.0.first().map_or(0, |point| point.loads.len())
    }
}
