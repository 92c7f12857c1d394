//! Limits of disks: one change is under way at a time, and one that failed is made again by the controller. Whether a limit binds follows
//! from QEMU's counters, which are read only while a disk is limited and the guest runs.

use std::collections::BTreeMap;
use std::time::Duration;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{DiskLimitStatus, DiskLimits, LimitsByDisk, Problem, ProblemReason};

use super::Action;

/// Time between two readings.
const LOOK: Duration = Duration::from_secs(5);
/// Between two readings that can be compared.
const SHORTEST: Duration = Duration::from_secs(1);
/// Readings in a row at the limit until it binds, and below it until it binds no more: at most two changes in 70 seconds.
const BEGINS: u32 = 2;
const ENDS: u32 = 12;
/// A rate of this part of a limit is at the limit: the guest's requests are not of equal sizes and times.
const AT_PERCENT: u64 = 90;
/// Above this, a disk that has a burst uses it.
const OVER_PERCENT: u64 = 110;

/// What the guest has read and written of a disk; each number only grows while its QEMU runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Requests, as QEMU counts them for a limit.
    pub requests: u64,
    pub bytes: u64,
}

/// Whether one of the two limits binds.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    binds: bool,
    /// Readings in a row to the contrary.
    contrary: u32,
}

impl Spell {
    fn take(&mut self, at_limit: bool) {
        self.contrary = if at_limit == self.binds { 0 } else { self.contrary + 1 };
        if self.contrary >= if self.binds { ENDS } else { BEGINS } {
            *self = Self { binds: at_limit, contrary: 0 };
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Limited {
    limits: DiskLimits,
    last: Option<(Duration, DiskCounters)>,
    iops: Spell,
    bandwidth: Spell,
}

impl Limited {
    fn look(&mut self, now: Duration, counters: DiskCounters) {
        let Some((at, before)) = self.last.replace((now, counters)) else { return };
        let time = now.saturating_sub(at);
        if time < SHORTEST {
            self.last = Some((at, before));
            return;
        }
        let rate = |before: u64, after: u64| {
            let count = u128::from(after.saturating_sub(before)) * 1000 / time.as_millis();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let DiskLimits { iops, bandwidth, burst } = self.limits;
        let burst = burst.unwrap_or_default();
        let iops = (iops.map(u64::from), burst.iops.map(u64::from));
        self.iops.take(is_at(rate(before.requests, counters.requests), iops));
        let bandwidth = (bandwidth.map(Bytes::get), burst.bandwidth.map(Bytes::get));
        self.bandwidth.take(is_at(rate(before.bytes, counters.bytes), bandwidth));
    }
}

/// Whether a rate is at its limit, or at that of its burst.
fn is_at(rate: u64, (limit, burst): (Option<u64>, Option<u64>)) -> bool {
    let reaches = |limit: u64| rate.saturating_mul(100) >= limit.saturating_mul(AT_PERCENT);
    let exceeds = |limit: u64| rate.saturating_mul(100) > limit.saturating_mul(OVER_PERCENT);
    match (limit, burst) {
        (None, _) => false,
        (Some(limit), None) => reaches(limit),
        (Some(limit), Some(burst)) => reaches(burst) || reaches(limit) && !exceeds(limit),
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// What is in force.
    disks: BTreeMap<String, Limited>,
    under_way: bool,
    /// What was requested meanwhile.
    next: Option<LimitsByDisk>,
    /// When the counters were last requested.
    looked: Duration,
    problem: Option<String>,
}

impl Limits {
    fn in_force(&self) -> LimitsByDisk {
        self.disks.iter().map(|(name, disk)| (name.clone(), disk.limits)).collect()
    }

    /// The order that is due.
    pub(crate) fn ask(&mut self, limits: LimitsByDisk) -> Option<Action> {
        if self.under_way {
            self.next = Some(limits);
            return None;
        }
        if limits == self.in_force() {
            return None;
        }
        self.under_way = true;
        Some(Action::LimitDisks(limits))
    }

    /// QEMU has these limits, or has not got them.
    pub(crate) fn set(&mut self, now: Duration, set: Result<LimitsByDisk, String>) -> Option<Action> {
        self.under_way = false;
        match set {
            Ok(limits) => {
                let mut before = std::mem::take(&mut self.disks);
                let limited = limits.into_iter().filter(|(_, limits)| !limits.is_none());
                self.disks = limited
                    .map(|(name, limits)| {
                        let same = before.remove(&name).filter(|disk| disk.limits == limits);
                        (name, same.unwrap_or(Limited { limits, ..Limited::default() }))
                    })
                    .collect();
                (self.problem, self.looked) = (None, now);
            }
            Err(why) => self.problem = Some(why),
        }
        let next = self.next.take()?;
        self.ask(next)
    }

    /// The guest runs in another QEMU, which limits nothing yet.
    pub(crate) fn again(&mut self) -> Option<Action> {
        self.disks.values_mut().for_each(|disk| disk.last = None);
        self.under_way = !self.disks.is_empty();
        self.under_way.then(|| Action::LimitDisks(self.in_force()))
    }

    /// When the counters are wanted.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        (!self.disks.is_empty()).then(|| self.looked + LOOK)
    }

    pub(crate) fn tend(&mut self, now: Duration) -> Option<Action> {
        self.wake_at().filter(|at| *at <= now)?;
        self.looked = now;
        Some(Action::LookAtDisks)
    }

    pub(crate) fn look(&mut self, now: Duration, counters: &BTreeMap<String, DiskCounters>) {
        for (name, disk) in &mut self.disks {
            match counters.get(name) {
                Some(counters) => disk.look(now, *counters),
                None => disk.last = None,
            }
        }
    }

    pub(crate) fn status(&self) -> BTreeMap<String, DiskLimitStatus> {
        let status = |disk: &Limited| DiskLimitStatus {
            limits: disk.limits,
            iops_bind: disk.iops.binds,
            bandwidth_binds: disk.bandwidth.binds,
        };
        self.disks.iter().map(|(name, disk)| (name.clone(), status(disk))).collect()
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        let message = self.problem.clone()?;
        Some(Problem { reason: ProblemReason::DiskNotLimited, message })
    }
}
