//! CPU that the guest used lately: what it needs, without the long memory of a load average.
//!
//! A load average shows a burst for minutes after its end, and under a quota it counts tasks that only wait for the next period.
//! The time that the processors were busy shows both at once, as long as they are not busy all the time. It is used where the
//! guest's monitor requests CPU by itself (protocol v2.0), so that growth does not depend on metrics.

use std::time::Duration;

use neonvm_types::MilliCpu;
use serde::Serialize;

use crate::agent::{caution::Caution, units};

/// Intervals between scrapes that count: the busiest of them decides.
const INTERVALS: usize = 2;
/// Share of a size up to which its CPU may have been used after shrinking to it. Lower than the share from which on a VM
/// grows, so that it does not swing. [`Caution`] reduces it for a VM that swings all the same.
const SHRINK: f64 = 0.7;
/// The same for the last interval alone: use that is so low is the end of a load, not a pause. One interval at a size is enough for it.
const SHRINK_AT_ONCE: f64 = 0.35;
/// From this share of the size on, what is used does not show what is needed.
const SATURATED: f64 = 0.9;

/// Use of the CPU while the VM's CPU stayed the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// The last scrape: when, seconds that all CPUs were busy since boot, and the VM's CPU.
    last: Option<(Duration, f64, MilliCpu)>,
    /// CPUs in use in the last intervals, the newest first.
    cpus: [Option<f64>; INTERVALS],
    /// When the newest interval began.
    since: Option<Duration>,
    caution: Caution,
}

/// What the use of the CPU calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CpuNeed {
    /// The guest does not show it.
    Unknown,
    /// The CPU changed a moment ago; the next scrapes show it.
    Pending,
    /// All CPU is used: more may be needed.
    Saturated,
    Enough(MilliCpu),
}

impl Usage {
    /// Takes in a scrape while the VM has `cpu`. What was before another amount, or before a restart of the guest, does not count.
    pub fn observe(&mut self, now: Duration, busy_seconds: Option<f64>, cpu: MilliCpu) {
        let before = self.last;
        self.caution.pass(now);
        self.since = before.map(|(at, ..)| at);
        self.last = busy_seconds.map(|busy| (now, busy, cpu));
        let (Some((at, old, had)), Some(new)) = (before, busy_seconds) else {
            self.cpus = Default::default();
            return;
        };
        let elapsed = now.saturating_sub(at).as_secs_f64();
        if had != cpu || new < old || elapsed <= 0.0 {
            self.cpus = Default::default();
            return;
        }
        self.cpus.rotate_right(1);
        if let Some(newest) = self.cpus.first_mut() {
            *newest = Some((new - old) / elapsed);
        }
    }

    /// The VM was given another amount of CPU because of its load.
    pub fn resized(&mut self, now: Duration, from: MilliCpu, to: MilliCpu) {
        let is_pause = self.newest().is_some_and(|used| used < to.as_f64() * SHRINK_AT_ONCE);
        self.caution.resized(now, u64::from(from.milli()), u64::from(to.milli()), is_pause);
    }

    /// Whether the CPU does not shrink at `now`, unless it is almost unused, because it turned too soon.
    #[must_use]
    pub fn holds(&self, now: Duration) -> bool {
        self.caution.holds(now)
    }

    /// CPUs in use, in the busiest of the last intervals; `None` before there are enough of them.
    #[must_use]
    pub fn most(&self) -> Option<f64> {
        self.cpus.iter().copied().reduce(|a, b| Some(a?.max(b?))).flatten()
    }

    /// CPUs in use in the newest interval; `None` if the CPU changed in it.
    fn newest(&self) -> Option<f64> {
        self.cpus.first().copied().flatten()
    }

    /// Whether the newest interval began after `at`, and with it what was needed then is seen.
    #[must_use]
    pub fn is_after(&self, at: Duration) -> bool {
        self.newest().is_some() && self.since.is_some_and(|since| since >= at)
    }

    /// What a VM that has `cpu` needs. Not what was requested counts but what the guest has: it may never take the rest.
    #[must_use]
    pub fn need(&self, cpu: MilliCpu) -> CpuNeed {
        let Some((at, _, had)) = self.last else { return CpuNeed::Unknown };
        let size = cpu.as_f64();
        let enough = |used: f64, share: f64| units::ceil_milli(used / share);
        let Some(newest) = self.newest().filter(|_| had == cpu) else { return CpuNeed::Pending };
        match self.most() {
            None if newest < size * SHRINK_AT_ONCE => CpuNeed::Enough(enough(newest, SHRINK_AT_ONCE)),
            None => CpuNeed::Pending,
            // Under a quota a CPU is busy while it stands still.
            Some(used) if used >= size * SATURATED => CpuNeed::Saturated,
            Some(used) => {
                let at_once = enough(newest, SHRINK_AT_ONCE);
                let kept =
                    if self.caution.holds(at) { cpu } else { enough(used, self.caution.reduce(SHRINK)) };
                CpuNeed::Enough(kept.min(at_once))
            }
        }
    }
}

/// CPU's part of the goal, in compute units: `load` is that of the load average, `has` what the VM has.
#[must_use]
pub fn cpu_units(load: f64, need: CpuNeed, has: u32, unit: MilliCpu) -> f64 {
    let has = f64::from(has);
    match need {
        CpuNeed::Unknown => load,
        CpuNeed::Pending => has,
        // One unit at a time: what is used with it shows whether more is needed.
        CpuNeed::Saturated => load.clamp(has, has + 1.0),
        CpuNeed::Enough(cpu) => f64::from(cpu.milli().div_ceil(unit.milli().max(1))).min(has),
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::MilliCpu;
    use proptest::prelude::*;

    use super::*;

    const UNIT: MilliCpu = MilliCpu::new(250);

    fn cpus(units: u32) -> MilliCpu {
        MilliCpu::new(250 * units)
    }

    /// The same in whole compute units.
    fn need(usage: &Usage, cpu: MilliCpu) -> CpuNeed {
        match usage.need(cpu) {
            CpuNeed::Enough(cpu) => CpuNeed::Enough(cpus(cpu.milli().div_ceil(250))),
            other => other,
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_busiest_of_the_last_intervals_decides() {
        let size = cpus(4);
        let mut usage = Usage::default();
        assert_eq!(need(&usage, size), CpuNeed::Unknown);
        // CPUs in use: 0.4, 0.2, 0.1, 0.02, and then all.
        let scrapes = [100.0, 102.0, 103.0, 103.5, 103.6, 108.3];
        let units = [None, None, Some(3), Some(2), Some(1), None];
        for (at, (busy, units)) in scrapes.into_iter().zip(units).enumerate() {
            usage.observe(seconds(5 * at as u64), Some(busy), size);
            let expected = match units {
                Some(units) => CpuNeed::Enough(cpus(units)),
                None if at < 2 => CpuNeed::Pending,
                None => CpuNeed::Saturated,
            };
            assert_eq!(need(&usage, size), expected, "{at}");
        }
    }

    #[test]
    fn what_was_before_another_size_or_a_restart_does_not_count() {
        let (one, two) = (cpus(1), cpus(2));
        let mut usage = Usage::default();
        for (at, busy) in [0.0, 0.5, 1.0].into_iter().enumerate() {
            usage.observe(seconds(5 * at as u64), Some(busy), one);
        }
        assert_eq!(need(&usage, one), CpuNeed::Enough(cpus(1)));
        assert_eq!(need(&usage, two), CpuNeed::Pending);
        for (at, busy, expected) in [
            (15, Some(2.0), CpuNeed::Pending),
            (20, Some(2.5), CpuNeed::Enough(cpus(2))),
            (25, Some(3.0), CpuNeed::Enough(cpus(1))),
            (30, Some(0.1), CpuNeed::Pending),
            (35, None, CpuNeed::Unknown),
        ] {
            usage.observe(seconds(at), busy, two);
            assert_eq!(need(&usage, two), expected, "{at}");
        }
    }

    #[test]
    fn one_interval_shows_the_end_of_a_burst() {
        let (one, four) = (cpus(1), cpus(4));
        let mut usage = Usage::default();
        usage.observe(seconds(0), Some(0.0), one);
        // It grew for a burst that ends before the next scrape.
        usage.observe(seconds(5), Some(2.0), four);
        assert_eq!(need(&usage, four), CpuNeed::Pending);
        usage.observe(seconds(10), Some(2.1), four);
        assert_eq!(need(&usage, four), CpuNeed::Enough(cpus(1)));
        assert!(usage.is_after(seconds(5)) && !usage.is_after(seconds(6)));
    }

    #[test]
    fn a_vm_that_swings_between_two_sizes_stays_at_the_larger_one() {
        let (one, two) = (cpus(1), cpus(2));
        let (mut usage, mut now, mut busy) = (Usage::default(), 0, 0.0);
        let mut shrinks = 0;
        // 34 % of the larger size, 68 % of the smaller one: below the share for shrinking, with peaks above.
        for _ in 0..10 {
            let scrape = |usage: &mut Usage, size, now: &mut u64, busy: &mut f64| {
                (*now, *busy) = (*now + 5, *busy + 5.0 * 0.17);
                usage.observe(seconds(*now), Some(*busy), size);
                need(usage, size)
            };
            for _ in 0..3 {
                scrape(&mut usage, two, &mut now, &mut busy);
            }
            if scrape(&mut usage, two, &mut now, &mut busy) == CpuNeed::Enough(cpus(1)) {
                shrinks += 1;
                usage.resized(seconds(now), two, one);
                scrape(&mut usage, one, &mut now, &mut busy);
                usage.resized(seconds(now), one, two);
            }
        }
        assert_eq!(shrinks, 1);
    }

    #[test]
    fn a_vm_grows_by_one_unit_at_a_time_and_only_if_its_cpu_is_used() {
        assert_eq!(cpu_units(7.0, CpuNeed::Saturated, 2, UNIT), 3.0);
        assert_eq!(cpu_units(1.0, CpuNeed::Saturated, 2, UNIT), 2.0);
        assert_eq!(cpu_units(7.0, CpuNeed::Enough(cpus(1)), 2, UNIT), 1.0);
        assert_eq!(cpu_units(7.0, CpuNeed::Enough(cpus(3)), 2, UNIT), 2.0);
        assert_eq!(cpu_units(0.0, CpuNeed::Pending, 2, UNIT), 2.0);
        assert_eq!(cpu_units(0.4, CpuNeed::Unknown, 2, UNIT), 0.4);
    }

    proptest! {
        #[test]
        fn any_sequence_of_scrapes_gives_a_finite_use(scrapes in prop::collection::vec((0_u64..100, prop::option::of(0.0..1e9_f64), 1_u32..4), 0..30)) {
            let mut usage = Usage::default();
            let mut now = 0;
            for (wait, busy, units) in scrapes {
                now += wait;
                usage.observe(seconds(now), busy, cpus(units));
                prop_assert!(usage.most().is_none_or(|cpus| cpus.is_finite() && cpus >= 0.0));
            }
        }
    }
}
