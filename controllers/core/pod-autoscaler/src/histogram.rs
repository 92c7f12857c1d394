//! Histograms as Prometheus counts them: how many values are not above each bound.

use serde::{Deserialize, Serialize};

use crate::number::Finite;

/// Counts, cumulative over ascending bounds. The last bound is infinite and written as `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Bound, and the number of values that are not above it.
    pub buckets: Vec<(Option<Finite>, f64)>,
    /// Sum of all values.
    pub sum: f64,
    /// Number of all values.
    pub count: f64,
}

/// Most bounds that are kept.
pub const MOST_BUCKETS: usize = 512;

fn not_negative(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

impl Histogram {
    /// Adds `count` to the bucket of a bound; the order of calls does not matter. Bounds beyond the limit are dropped.
    pub fn add_bucket(&mut self, bound: Option<Finite>, count: f64) {
        let count = not_negative(count);
        match self.buckets.binary_search_by(|(have, _)| order(*have, bound)) {
            Ok(index) => {
                if let Some((_, have)) = self.buckets.get_mut(index) {
                    *have += count;
                }
            }
            Err(index) if self.buckets.len() < MOST_BUCKETS => self.buckets.insert(index, (bound, count)),
            Err(_) => {}
        }
    }

    /// What was counted since `before`. If a count went down, the process has restarted, and its whole count is returned.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bound: Option<Finite>| {
            before.buckets.iter().find(|(have, _)| *have == bound).map_or(0.0, |(_, count)| *count)
        };
        let fell =
            self.count < before.count || self.buckets.iter().any(|(bound, count)| *count < earlier(*bound));
        if fell {
            return self.clone();
        }
        let buckets = self.buckets.iter().map(|(bound, count)| (*bound, count - earlier(*bound))).collect();
        Self { buckets, sum: self.sum - before.sum, count: self.count - before.count }
    }

    /// Adds another histogram. Where bounds differ, the common ones are kept: their counts stay exact.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else if !other.buckets.is_empty() {
            self.buckets.retain_mut(|(bound, count)| {
                let same = other.buckets.iter().find(|(theirs, _)| theirs == bound);
                *count += same.map_or(0.0, |(_, theirs)| *theirs);
                same.is_some()
            });
        }
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The mean; `None` if nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Option<Finite> {
        (self.count > 0.0).then(|| Finite::new(self.sum / self.count)).flatten()
    }

    /// A quantile from 0 to 1, as PromQL's `histogram_quantile` defines it: linear within a bucket, whose lower bound is
    /// 0 for the first if its bound is positive; in the last bucket, the largest finite bound. `None` if nothing was
    /// counted, or with fewer than two buckets, or without an infinite one.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Finite> {
        let (last, finite) = self.buckets.split_last()?;
        if last.0.is_some() || finite.is_empty() {
            return None;
        }
        // Counts that go down along the bounds come from a scrape between two increments.
        let total = self.buckets.iter().fold(0.0, |most: f64, (_, count)| most.max(*count));
        if total <= 0.0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * total;
        let (mut below, mut start) = (0.0, None);
        for (bound, count) in finite {
            let end = bound.map(Finite::get)?;
            let count = count.max(below);
            if count >= rank && count > 0.0 {
                let start = match start {
                    Some(start) => start,
                    None if end <= 0.0 => return Finite::new(end),
                    None => 0.0,
                };
                let within = count - below;
                let share = if within > 0.0 { (rank - below) / within } else { 0.0 };
                return Finite::new(start + (end - start) * share);
            }
            (below, start) = (count, Some(end));
        }
        start.and_then(Finite::new)
    }
}

/// Ascending, the infinite bound last.
fn order(a: Option<Finite>, b: Option<Finite>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(f64, f64)], sum: f64) -> Histogram {
        let mut all = Histogram { sum, ..Histogram::default() };
        for (bound, count) in buckets {
            all.add_bucket(Finite::new(*bound), *count);
            all.count = all.count.max(*count);
        }
        all
    }

    const INF: f64 = f64::INFINITY;

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let all = histogram(&[(0.1, 10.0), (0.5, 30.0), (1.0, 40.0), (INF, 40.0)], 12.0);
        let quantile = |q| all.quantile(q).unwrap().get();
        assert!((quantile(0.5) - 0.3).abs() < 1e-12);
        assert!((quantile(0.25) - 0.1).abs() < 1e-12);
        assert!((quantile(0.125) - 0.05).abs() < 1e-12);
        assert!((quantile(1.0) - 1.0).abs() < 1e-12);
        assert!((all.mean().unwrap().get() - 0.3).abs() < 1e-12);
        // In the last bucket only its lower bound is known.
        let late = histogram(&[(0.1, 1.0), (INF, 100.0)], 0.0);
        assert_eq!(late.quantile(0.99), Finite::new(0.1));
        // A first bound that is not positive is its own answer.
        assert_eq!(histogram(&[(-1.0, 5.0), (INF, 5.0)], 0.0).quantile(0.5), Finite::new(-1.0));
        assert_eq!(histogram(&[(1.0, 5.0)], 0.0).quantile(0.5), None);
        assert_eq!(histogram(&[(1.0, 0.0), (INF, 0.0)], 0.0).quantile(0.5), None);
        assert_eq!(Histogram::default().mean(), None);
    }

    #[test]
    fn a_restart_counts_from_zero() {
        let before = histogram(&[(1.0, 5.0), (INF, 9.0)], 20.0);
        let after = histogram(&[(1.0, 6.0), (INF, 12.0)], 26.0);
        assert_eq!(after.since(&before), histogram(&[(1.0, 1.0), (INF, 3.0)], 6.0));
        let fresh = histogram(&[(1.0, 2.0), (INF, 3.0)], 4.0);
        assert_eq!(fresh.since(&before), fresh);
    }

    #[test]
    fn merging_keeps_common_bounds() {
        let mut all = histogram(&[(1.0, 5.0), (2.0, 6.0), (INF, 9.0)], 20.0);
        all.merge(&histogram(&[(2.0, 4.0), (3.0, 5.0), (INF, 5.0)], 8.0));
        assert_eq!(all, Histogram { count: 14.0, ..histogram(&[(2.0, 10.0), (INF, 14.0)], 28.0) });
    }
}
