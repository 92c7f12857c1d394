//! The last minutes of a VM, in points of equal distance.

use std::collections::VecDeque;

use super::input::Millis;

/// Time between two points, in milliseconds.
pub(crate) const STEP: Millis = 2_000;
/// Points that are kept: five minutes.
pub(crate) const KEPT: usize = 150;

/// One resource at one time: CPUs, or GiB of memory. Absent: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Level {
    /// In use.
    pub(crate) load: Option<f32>,
    /// What metrics call for.
    pub(crate) goal: Option<f32>,
    /// What the scheduler permits.
    pub(crate) permit: Option<f32>,
    pub(crate) size: Option<f32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: Millis,
    pub(crate) cpu: Level,
    /// GiB.
    pub(crate) memory: Level,
}

/// Points, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series(VecDeque<Point>);

impl Series {
    /// Adds a point, and drops the oldest beyond [`KEPT`].
    pub(crate) fn push(&mut self, point: Point) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// All points, oldest first.
    pub(crate) fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.0.iter()
    }

    /// The largest value within each of `columns` equal parts of the time that is kept; the newest is last, and parts of which
    /// nothing is known are absent.
    pub(crate) fn buckets(&self, columns: usize, value: impl Fn(&Point) -> Option<f32>) -> Vec<Option<f32>> {
        let mut buckets = vec![None; columns];
        for (age, point) in self.0.iter().rev().enumerate() {
            let column = columns.checked_sub(1 + age * columns / KEPT);
            let (Some(bucket), Some(value)) = (column.and_then(|c| buckets.get_mut(c)), value(point)) else {
                continue;
            };
            *bucket = Some(bucket.map_or(value, |most: f32| most.max(value)));
        }
        buckets
    }

    pub(crate) fn most(&self, value: impl Fn(&Point) -> Option<f32>) -> f32 {
        self.0.iter().filter_map(value).fold(0.0, f32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(loads: &[f32]) -> Series {
        let mut series = Series::default();
        for load in loads {
            let cpu = Level { load: Some(*load), ..Level::default() };
            series.push(Point { cpu, ..Point::default() });
        }
        series
    }

    #[test]
    fn the_newest_is_last_and_peaks_stay() {
        let some = series(&[1.0, 3.0, 2.0]);
        assert_eq!(some.buckets(3, |point| point.cpu.load), [None, None, Some(3.0)]);
        assert_eq!(some.buckets(KEPT, |point| point.cpu.load)[KEPT - 3..], [Some(1.0), Some(3.0), Some(2.0)]);
        assert!(some.buckets(0, |point| point.cpu.load).is_empty());
        let full = series(&[7.0; KEPT + 20]);
        assert_eq!((full.points().len(), full.buckets(4, |p| p.cpu.load)), (KEPT, vec![Some(7.0); 4]));
        assert_eq!(full.buckets(4, |point| point.cpu.goal), [None; 4]);
    }
}
