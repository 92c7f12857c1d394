//! What was sampled lately, and what follows from it.

use std::time::Duration;

use neonvm_types::MilliCpu;

use super::{AVERAGED, Ring, SAMPLE_INTERVAL, STALE_AFTER, SYSTEM_BUFFER};

const KEPT: usize = 10;
/// Samples of the averaged ones that must show saturation: a burst of 200 ms is in three at most.
const SATURATED_SAMPLES: usize = 4;
/// From this share of the CPU on (thousandths), runnable tasks fill it: the load average target of agents.
pub(super) const FULL: u64 = 900;
/// A processor that is busy for less of the time than this (thousandths) contradicts a run queue seen full at instants.
pub(super) const BUSY: u64 = 600;

/// The guest at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Anonymous and shared memory of the workload, in bytes: what cannot be dropped.
    pub anonymous: u64,
    /// Memory the kernel has, in bytes.
    pub total: u64,
    /// Memory that is available without swapping, in bytes.
    pub available: u64,
    /// All memory charged to the workload's control group, with its page cache, in bytes; only if the group may have limits.
    pub current: Option<u64>,
    /// Tasks that run or wait for a processor, but for the monitor's own.
    pub runnable: u32,
    /// Processors that are online.
    pub online: u32,
    /// Idle time of all processors together since boot, if measured.
    pub idle: Option<Duration>,
    /// Time since boot in which some task waited for a processor, if the kernel reports it.
    pub cpu_pressure: Option<Duration>,
    /// Time since boot in which some task waited for memory, if the kernel reports it.
    pub memory_pressure: Option<Duration>,
}

impl Sample {
    /// Whether runnable tasks fill `cpu`.
    pub(super) fn fills(&self, cpu: MilliCpu) -> bool {
        self.runnable > 0 && u64::from(self.runnable) * 1000 >= u64::from(cpu.milli()) * FULL / 1000
    }

    /// Processors that were busy in the time `elapsed` since `first`, in thousandths. `None` if unknown: a processor that came or
    /// went in between took its idle time with it.
    pub(super) fn busy_since(&self, first: &Self, elapsed: Duration) -> Option<u64> {
        let idle = self.idle?.checked_sub(first.idle?)?.as_micros();
        let elapsed = elapsed.as_micros();
        if elapsed == 0 || self.online != first.online {
            return None;
        }
        let idle = u64::try_from(idle * 1000 / elapsed).unwrap_or(u64::MAX);
        Some((u64::from(self.online) * 1000).saturating_sub(idle))
    }
}

/// When, and what.
type Timed = (Duration, Sample);

/// The newest samples with their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History(Ring<Timed, KEPT>);

impl History {
    /// Adds a sample taken at `at`. Times must not go back; one that does counts as the newest time so far.
    pub fn push(&mut self, at: Duration, sample: Sample) {
        let at = self.0.last().map_or(at, |(last, _)| last.max(at));
        self.0.push((at, sample));
    }

    /// Whether a sample at `now` is one to keep: the newest is not younger than the interval over which averages count.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        self.0.last().is_none_or(|(at, _)| now.saturating_sub(at) >= SAMPLE_INTERVAL.mul_f64(0.8))
    }

    /// How many samples there are, 10 at most.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn last(&self) -> Option<Sample> {
        self.0.last().map(|(_, sample)| sample)
    }

    /// Whether there are samples, and the newest is too old to judge by.
    #[must_use]
    pub fn is_stale(&self, now: Duration) -> bool {
        self.0.last().is_some_and(|(at, _)| now.saturating_sub(at) > STALE_AFTER)
    }

    /// Average of [`Sample::anonymous`] over the last 5 samples or as many as there are, rounded down. 0 for none.
    #[must_use]
    pub fn average(&self) -> u64 {
        let samples = self.0.newest(AVERAGED);
        let count = samples.len().max(1) as u128;
        let sum: u128 = samples.map(|(_, sample)| u128::from(sample.anonymous)).sum();
        u64::try_from(sum / count).unwrap_or(u64::MAX)
    }

    /// Memory in use by any process, without what the kernel may have for itself, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        let of = |sample: Sample| {
            sample.total.saturating_sub(sample.available).saturating_sub(SYSTEM_BUFFER).max(sample.anonymous)
        };
        self.last().map_or(0, of)
    }

    /// How fast anonymous memory grows over the last 5 samples, in bytes a second. 0 when a single step makes up the growth:
    /// a program that started is no trend. With three steps or more, what was before the first of them does not count.
    #[must_use]
    pub fn growth(&self) -> u64 {
        let Some([first, last]) = self.ends(AVERAGED) else { return 0 };
        let grown = |since: Sample| last.1.anonymous.saturating_sub(since.anonymous);
        let intervals = self.0.newest(AVERAGED).len().saturating_sub(1).max(1) as u64;
        // A step counts from a quarter of the mean on.
        let least = (grown(first.1) / intervals / 4).max(1);
        let steps = || self.0.newest(AVERAGED).zip(self.0.newest(AVERAGED).skip(1));
        let carries = |(from, to): &(Timed, Timed)| to.1.anonymous.saturating_sub(from.1.anonymous) >= least;
        let since = match steps().filter(carries).count() {
            0 | 1 => return 0,
            2 => first,
            _ => steps().find(carries).map_or(first, |(from, _)| from),
        };
        per_second(grown(since.1), last.0.saturating_sub(since.0))
    }

    /// How many tasks could run, in thousandths, if `cpu` is less than the guest could use: at least 4 of the last 5 samples
    /// show runnable tasks for 90 % of it, and the processors were not idle in between. It is the average of those samples,
    /// without one from before the load began. If the kernel reports that no task waited for a processor, runnable tasks above
    /// the number of processors were sampled by chance and do not count. None if `cpu` suffices.
    #[must_use]
    pub fn saturation(&self, cpu: MilliCpu) -> Option<MilliCpu> {
        let level = u64::from(cpu.milli()) * FULL / 1000;
        let full = || self.0.newest(AVERAGED).filter(|(_, sample)| sample.fills(cpu));
        let count = full().count();
        let online = u64::from(self.last()?.online.max(1)) * 1000;
        let reached = online.min(level);
        let idle = self.busy(AVERAGED).is_some_and(|busy| u64::from(busy.milli()) < reached * BUSY / 1000);
        if count < SATURATED_SAMPLES || idle {
            return None;
        }
        let sum: u64 = full().map(|(_, sample)| u64::from(sample.runnable)).sum();
        let average = (sum * 1000).div_ceil(count as u64);
        let no_waits = self.share(|sample| sample.cpu_pressure).is_some_and(|share| share < 100);
        Some(milli(if no_waits { average.min(online) } else { average }))
    }

    /// Processors that were not idle, on average over all samples kept. `None` if unknown.
    #[must_use]
    pub fn busy_cpus(&self) -> Option<MilliCpu> {
        self.busy(KEPT)
    }

    /// Share of the time of the last 5 samples in which some task waited for memory, in thousandths. `None`
    /// if unknown.
    #[must_use]
    pub fn memory_stall(&self) -> Option<u64> {
        self.share(|sample| sample.memory_pressure)
    }

    /// Whether nothing runs and memory hardly changes.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        const STEP: u64 = 1 << 20;
        let mut samples = self.0.newest(AVERAGED);
        let newest = self.last().map_or(0, |sample| sample.anonymous);
        samples.len() == AVERAGED
            && samples.all(|(_, sample)| sample.runnable == 0 && sample.anonymous.abs_diff(newest) < STEP)
    }

    /// The oldest and the newest of the last `count` samples.
    fn ends(&self, count: usize) -> Option<[Timed; 2]> {
        Some([self.0.newest(count).next()?, self.0.last()?])
    }

    fn busy(&self, count: usize) -> Option<MilliCpu> {
        let [(since, first), (until, last)] = self.ends(count)?;
        let steady = self.0.newest(count).all(|(_, sample)| sample.online == last.online);
        let busy = last.busy_since(&first, until.saturating_sub(since));
        busy.filter(|_| steady).map(milli)
    }

    fn share(&self, total: impl Fn(&Sample) -> Option<Duration>) -> Option<u64> {
        let [(since, first), (until, last)] = self.ends(AVERAGED)?;
        let elapsed = until.saturating_sub(since).as_micros();
        let waited = total(&last)?.checked_sub(total(&first)?)?.as_micros();
        (elapsed > 0).then(|| u64::try_from(waited * 1000 / elapsed).unwrap_or(u64::MAX).min(1000))
    }
}

fn per_second(amount: u64, time: Duration) -> u64 {
    let milliseconds = time.as_millis();
    if milliseconds == 0 {
        return 0;
    }
    u64::try_from(u128::from(amount) * 1000 / milliseconds).unwrap_or(u64::MAX)
}

pub(super) fn milli(value: u64) -> MilliCpu {
    MilliCpu::new(u32::try_from(value).unwrap_or(u32::MAX))
}
