//! A time window in numbers.

use neonvm_types::Resources;
use serde::Serialize;

use super::{Kind, Past};
use crate::live::size::gib;

/// Counts and sums of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// The size at the end of the window; absent without any sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Resources>,
    /// The smallest and the largest size, CPU and memory each.
    pub(crate) smallest: Resources,
    pub(crate) largest: Resources,
    /// Changes of the size in which CPU or memory grew, and others.
    pub(crate) grew: u64,
    pub(crate) shrank: u64,
    /// How long the VM was observed, in seconds.
    pub(crate) observed_seconds: f64,
    /// How long its size was below its goal, in seconds.
    pub(crate) below_goal_seconds: f64,
    /// How long its permit was below its goal meanwhile, in seconds.
    pub(crate) without_permit_seconds: f64,
    /// CPU seconds and GiB seconds of its size.
    pub(crate) cpu_seconds: f64,
    pub(crate) gib_seconds: f64,
    /// Migrations that began or ended, as entries.
    pub(crate) migrations: usize,
    pub(crate) warnings: usize,
}

impl Summary {
    pub(crate) fn of(past: &Past) -> Self {
        let mut summary = Self::default();
        let mut last: Option<Resources> = None;
        for (from, to, sample) in past.spans() {
            let (now, goal) = (sample.now, sample.goal);
            let seconds =
                std::time::Duration::from_millis(u64::try_from(to - from).unwrap_or(0)).as_secs_f64();
            summary.observed_seconds += seconds;
            summary.cpu_seconds += now.vcpus.as_f64() * seconds;
            summary.gib_seconds += gib(now.mem.get()) * seconds;
            if goal.any_greater(now) {
                summary.below_goal_seconds += seconds;
                if sample.permit.is_some_and(|permit| goal.any_greater(permit)) {
                    summary.without_permit_seconds += seconds;
                }
            }
            let (small, large) = last.map_or((now, now), |_| (summary.smallest, summary.largest));
            summary.smallest = Resources::new(small.vcpus.min(now.vcpus), small.mem.min(now.mem));
            summary.largest = Resources::new(large.vcpus.max(now.vcpus), large.mem.max(now.mem));
            match last.filter(|last| *last != now) {
                Some(last) if now.any_greater(last) => summary.grew += 1,
                Some(_) => summary.shrank += 1,
                None => {}
            }
            last = Some(now);
        }
        summary.size = last;
        let count = |kind| past.entries.iter().filter(|entry| entry.kind == kind).count();
        summary.migrations = count(Kind::Migration);
        summary.warnings = count(Kind::Warning);
        summary
    }
}
