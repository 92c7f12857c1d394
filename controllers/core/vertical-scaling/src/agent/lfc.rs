//! The working set of a file cache, from the series of distinct pages touched over the last 1, 2, 3, … minutes.
//!
//! The series of a steady load rises and then flattens: where it flattens is the working set. A scan makes it rise again
//! further back, which is to be ignored; a change of load makes it rise near the front, which is to be followed.

use crate::agent::settings::Config;

/// Bytes in a page of the file cache.
pub const PAGE_BYTES: f64 = 8192.0;
/// How much steeper the series must become to end the working set.
const STEEPER: f64 = 3.0;
/// How far the last rise is drawn on.
const AHEAD: f64 = 0.5;

/// The working set in pages: the value at the end of the flat part that lies before the first steep rise.
/// `None` if the window is below 2 or the series too short for it.
#[must_use]
pub fn estimate(series: &[f64], factor: f64, offset: usize, window: usize) -> Option<f64> {
    let reach = window.checked_sub(1).filter(|reach| *reach > 0)?;
    if offset < reach || series.len() < offset.checked_add(window)? {
        return None;
    }
    let value = |index: usize| series.get(index).copied();
    for t in offset..series.len().saturating_sub(reach) {
        let (before, here, after) = (value(t.checked_sub(reach)?)?, value(t)?, value(t.checked_add(reach)?)?);
        if (after - here).max(0.0) > factor * (here - before).max(0.0) {
            return Some(here);
        }
    }
    series.last().copied()
}

/// The largest value that the rises of the series lead to when each is drawn on by `factor` of a step.
#[must_use]
pub fn project(series: &[f64], factor: f64) -> f64 {
    let first = series.first().copied().unwrap_or(0.0);
    series
        .windows(2)
        .filter_map(|pair| {
            let (before, after) = (*pair.first()?, pair.last()?.max(*pair.first()?));
            Some(after + (after - before) * factor)
        })
        .fold(first, f64::max)
}

/// The working set to plan for, in bytes; `None` if the series is too short for the window.
#[must_use]
pub fn working_set_bytes(series: &[f64], config: &Config) -> Option<f64> {
    let offset = config.lfc_min_wait.checked_sub(1)?;
    if config.lfc_window < 2 || series.len() < offset.checked_add(config.lfc_window)? {
        return None;
    }
    let estimated = if config.lfc_largest_window {
        series.last().copied()?
    } else {
        estimate(series, STEEPER, offset, config.lfc_window)?
    };
    let beyond = series.iter().skip(offset).position(|pages| *pages > estimated);
    let end = beyond.map_or(series.len(), |index| offset.saturating_add(index));
    Some(project(series.get(..end)?, AHEAD) * PAGE_BYTES)
}
