//! Where the load goes: a line through the stable window, drawn ahead.
//!
//! The slope is the median of the slopes between all pairs of values (Theil and Sen), so a few wild values do not bend
//! it. It is only used to require more: a decreasing load is counted once it has decreased.

use serde::{Deserialize, Serialize};

use crate::number::Finite;

/// Fewest values for a trend.
pub const LEAST_VALUES: usize = 5;
/// Values that pairs are made of; a longer window is thinned out.
const MOST_VALUES: usize = 60;

/// A trend and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trend {
    /// The load on the line now.
    pub level: Finite,
    /// Its change for each second.
    pub slope: Finite,
    /// The load on the line at the horizon.
    pub ahead: Finite,
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len().checked_div(2)?;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    values.get(middle.checked_sub(1)?).map(|lower| lower / 2.0 + upper / 2.0)
}

#[allow(clippy::cast_precision_loss, reason = "seconds within an hour of each other")]
fn seconds(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64
}

/// The trend of values at their seconds, oldest first, drawn from `now` to `horizon` seconds ahead. `None` with too few
/// values, or if they span less than half of `window` seconds.
#[must_use]
pub fn trend(values: &[(i64, Finite)], now: i64, window: i64, horizon: i64) -> Option<Trend> {
    let (first, last) = (values.first()?.0, values.last()?.0);
    let spanned = last.saturating_sub(first);
    if values.len() < LEAST_VALUES || spanned.saturating_mul(2) < window {
        return None;
    }
    let stride = values.len().div_ceil(MOST_VALUES).max(1);
    // Thinned from the newest on, so that it is always one of them.
    let thinned: Vec<(f64, f64)> =
        values.iter().rev().step_by(stride).map(|(at, value)| (seconds(now, *at), value.get())).collect();
    let mut slopes = Vec::new();
    for (index, (at, value)) in thinned.iter().enumerate() {
        for (earlier, before) in thinned.iter().skip(index.saturating_add(1)) {
            if at > earlier {
                slopes.push((value - before) / (at - earlier));
            }
        }
    }
    let slope = median(&mut slopes)?;
    let mut levels: Vec<f64> = thinned.iter().map(|(at, value)| value - slope * at).collect();
    let level = median(&mut levels)?;
    let ahead = level + slope * seconds(0, horizon);
    Some(Trend { level: Finite::new(level)?, slope: Finite::new(slope)?, ahead: Finite::new(ahead)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: i64, value: impl Fn(i64) -> f64) -> Vec<(i64, Finite)> {
        (0..count).map(|index| (index * 10, Finite::saturating(value(index)))).collect()
    }

    #[test]
    fn a_line_is_drawn_on() {
        let trend = trend(&line(10, |index| 5.0 + 2.0 * index as f64), 90, 90, 50).unwrap();
        assert!((trend.slope.get() - 0.2).abs() < 1e-9);
        assert!((trend.level.get() - 23.0).abs() < 1e-9);
        assert!((trend.ahead.get() - 33.0).abs() < 1e-9);
    }

    #[test]
    fn wild_values_do_not_bend_it() {
        let wild = line(20, |index| if index % 7 == 3 { 1e6 } else { index as f64 });
        let trend = trend(&wild, 190, 190, 100).unwrap();
        assert!((trend.ahead.get() - 29.0).abs() < 1.0, "{trend:?}");
    }

    #[test]
    fn too_little_is_no_trend() {
        assert_eq!(trend(&line(4, |_| 1.0), 30, 30, 10), None);
        assert_eq!(trend(&line(6, |_| 1.0), 50, 180, 10), None);
        assert_eq!(trend(&[], 0, 0, 0), None);
        let many = line(3000, |index| index as f64);
        assert!(trend(&many, 29_990, 3600, 60).is_some_and(|trend| (trend.slope.get() - 0.1).abs() < 1e-9));
    }
}
