//! The guest's processors under the quota of the VM, a millisecond at a time.

use std::time::Duration;

use crate::queue::{MILLI, Time};
use crate::rng::Rng;

/// The period of the quota, as the runner sets it.
const PERIOD: Time = 100 * MILLI;
/// How long other programs keep a processor once they have it.
const SLICE: Time = 4 * MILLI;

/// A task that ends when its work is done.
#[derive(Clone, Copy, Debug)]
struct Task {
    left: u64,
    came: Time,
}

/// Processors, tasks, and what the guest's kernel counts.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    /// CPU of the VM's size, in thousandths.
    milli: u64,
    /// CPU time left in this period, in microseconds.
    quota: u64,
    tasks: Vec<Task>,
    /// Tasks that never end.
    spinning: u32,
    /// Percent of the time that other programs of the computer take.
    taken: u64,
    away_until: Time,
    here_until: Time,
    idle: Duration,
    busy: Duration,
    pressure: Duration,
}

impl Processor {
    pub(super) fn new(milli: u64, taken: u64) -> Self {
        Self {
            milli,
            quota: 0,
            tasks: Vec::new(),
            spinning: 0,
            taken,
            away_until: 0,
            here_until: 0,
            idle: Duration::ZERO,
            busy: Duration::ZERO,
            pressure: Duration::ZERO,
        }
    }

    /// The VM has another size.
    pub(super) fn resize(&mut self, milli: u64) {
        // What was spent in this period counts for the new quota as well.
        self.quota = self.quota.saturating_add(share(milli)).saturating_sub(share(self.milli));
        self.milli = milli;
    }

    pub(super) fn arrive(&mut self, now: Time, work: u64) {
        self.tasks.push(Task { left: work, came: now });
    }

    pub(super) fn spin(&mut self, count: u32) {
        self.spinning = count;
    }

    /// Tasks that run or could run.
    pub(super) fn runnable(&self) -> u32 {
        self.spinning.saturating_add(u32::try_from(self.tasks.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn online(&self) -> u32 {
        u32::try_from(self.milli.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    pub(super) const fn idle(&self) -> Duration {
        self.idle
    }

    /// Time in which a processor had a task, over all of them: with the time it stood still, as a guest counts it whose hypervisor does not report steal.
    pub(super) const fn busy(&self) -> Duration {
        self.busy
    }

    pub(super) const fn pressure(&self) -> Duration {
        self.pressure
    }

    /// One millisecond from `now`; `done` takes how long each task that ends was there, in microseconds.
    pub(super) fn tick(&mut self, now: Time, rng: &mut Rng, mut done: impl FnMut(Time)) {
        if now.is_multiple_of(PERIOD) {
            self.quota = share(self.milli);
        }
        let runnable = u64::from(self.runnable());
        let working = runnable.min(u64::from(self.online()));
        let idle = u64::from(self.online()) - working;
        self.idle += Duration::from_millis(idle);
        self.busy += Duration::from_millis(working);
        if runnable > working {
            self.pressure += Duration::from_millis(1);
        }
        if working == 0 {
            return;
        }
        let wanted = working * MILLI;
        let executed = if self.is_away(now, rng) { 0 } else { wanted.min(self.quota) };
        self.quota -= executed;
        let each = executed / runnable;
        self.tasks.retain_mut(|task| {
            task.left = task.left.saturating_sub(each);
            if task.left == 0 {
                done(now + MILLI - task.came);
            }
            task.left > 0
        });
    }

    /// Whether other programs have the processor.
    fn is_away(&mut self, now: Time, rng: &mut Rng) -> bool {
        if self.taken == 0 {
            return false;
        }
        if now >= self.away_until.max(self.here_until) {
            let length = rng.between(SLICE / 2, SLICE * 3 / 2);
            if rng.below(100) < self.taken {
                self.away_until = now + length;
            } else {
                self.here_until = now + length;
            }
        }
        now < self.away_until
    }
}

/// CPU time of one period, in microseconds.
const fn share(milli: u64) -> u64 {
    milli * PERIOD / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds until one task of `work` milliseconds is done.
    fn takes(milli: u64, work: u64, taken: u64) -> u64 {
        let mut processor = Processor::new(milli, taken);
        let mut rng = Rng::new(1, 1);
        processor.arrive(0, work * MILLI);
        let mut took = None;
        for tick in 0..100_000 {
            processor.tick(tick * MILLI, &mut rng, |time| took = Some(time / MILLI));
            if let Some(took) = took {
                return took;
            }
        }
        panic!("not done");
    }

    #[test]
    fn a_quota_stretches_what_is_longer_than_its_share_of_a_period() {
        assert_eq!(takes(1000, 30, 0), 30);
        assert_eq!(takes(250, 25, 0), 25);
        assert_eq!(takes(250, 30, 0), 105);
        assert_eq!(takes(250, 100, 0), 325);
    }

    #[test]
    fn other_programs_stretch_work_without_spending_the_quota() {
        let took = takes(1000, 500, 50);
        assert!((800..1300).contains(&took), "{took}");
    }

    #[test]
    fn a_processor_with_a_task_is_busy_also_while_it_stands_still() {
        let mut processor = Processor::new(500, 0);
        let mut rng = Rng::new(1, 1);
        processor.spin(1);
        for tick in 0..1000 {
            processor.tick(tick * MILLI, &mut rng, |_| {});
        }
        assert_eq!((processor.idle(), processor.busy()), (Duration::ZERO, Duration::from_secs(1)));
        assert_eq!(processor.pressure(), Duration::ZERO);
        processor.spin(2);
        processor.tick(1000 * MILLI, &mut rng, |_| {});
        assert_eq!(processor.pressure(), Duration::from_millis(1));
    }
}
