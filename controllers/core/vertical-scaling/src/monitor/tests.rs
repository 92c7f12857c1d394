//! The vectors of the formulas, the behaviour of v1.0 and v2.0, and laws.

mod informant_rules;
mod laws;
mod limits;
mod v1;
mod v2;

use std::time::Duration;

use neonvm_types::guest::MemoryLimits;
use neonvm_types::monitor_protocol::{AgentMessage, Allocation, MonitorMessage};
use neonvm_types::version::MonitorProtoVersion;

use super::*;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// A policy on a clock that the test advances.
pub(super) struct Guest {
    pub(super) policy: Policy,
    pub(super) now: Duration,
    pub(super) sample: Sample,
}

impl Guest {
    pub(super) fn new(total: u64, cpus: u32) -> Self {
        Self::with(total, cpus, false)
    }

    pub(super) fn with(total: u64, cpus: u32, file_cache: bool) -> Self {
        let settings = Settings { file_cache, measures: true, most_cpus: 8, limits: MemoryLimits::Off };
        let sample = Sample { total, available: total, online: cpus, ..Sample::default() };
        Self { policy: Policy::new(settings), now: Duration::from_secs(100), sample }
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        self.policy.step(self.now, event).actions
    }

    pub(super) fn connect(&mut self, version: MonitorProtoVersion) -> Vec<Action> {
        let total = self.sample.total;
        self.step(Event::Connected { version, total })
    }

    /// A sample 100 ms later; processors are as busy as tasks are runnable.
    pub(super) fn tick(&mut self) -> Vec<Action> {
        self.now += SAMPLE_INTERVAL;
        let idle = self.sample.online.saturating_sub(self.sample.runnable);
        self.sample.idle = Some(self.sample.idle.unwrap_or_default() + SAMPLE_INTERVAL * idle);
        self.step(Event::Sample(Some(self.sample)))
    }

    pub(super) fn ticks(&mut self, count: usize) -> Vec<Action> {
        (0..count).flat_map(|_| self.tick()).collect()
    }

    pub(super) fn down(&mut self, cpu: f64, mem: u64) -> Vec<Action> {
        let target = Allocation { cpu, mem };
        self.step(Event::Message { id: 4, message: AgentMessage::DownscaleRequest { target } })
    }

    pub(super) fn up(&mut self, cpu: f64, mem: u64) -> Vec<Action> {
        let granted = Allocation { cpu, mem };
        self.step(Event::Message { id: 2, message: AgentMessage::UpscaleNotification { granted } })
    }
}

/// The verdict and its text, when that is all there is.
pub(super) fn verdict(actions: &[Action]) -> (bool, String) {
    match actions {
        [Action::Send { id: 4, message: MonitorMessage::DownscaleResult { ok, status } }] => {
            (*ok, status.clone())
        }
        other => panic!("no verdict: {other:?}"),
    }
}

#[test]
fn file_cache_sizes_are_those_of_the_table() {
    let sizes = [
        (256, 0),
        (512, 232),
        (924, 607),
        (1024, 698),
        (1948, 1461),
        (2048, 1536),
        (3996, 2997),
        (4096, 3072),
        (8092, 6069),
        (16284, 12213),
    ];
    for (total, size) in sizes {
        assert_eq!(file_cache_size(total * MIB), size * MIB, "{total}");
    }
    assert_eq!(file_cache_size(0), 0);
}

#[test]
fn thresholds_are_those_of_the_table() {
    for (usable, limit) in
        [(924, 823_551_590), (1948, 1_736_232_140), (3996, 3_561_593_241), (8092, 7_212_315_443)]
    {
        assert_eq!(threshold(usable * MIB), limit, "{usable}");
    }
}

#[test]
fn rings_give_the_newest_oldest_first() {
    let vectors: [(usize, usize, &[usize]); 7] = [
        (0, 1, &[0]),
        (3, 4, &[0, 1, 2, 3]),
        (9, 4, &[6, 7, 8, 9]),
        (7, 4, &[4, 5, 6, 7]),
        (0, 4, &[7, 8, 9, 0]),
        (2, 4, &[9, 0, 1, 2]),
        (2, 10, &[3, 4, 5, 6, 7, 8, 9, 0, 1, 2]),
    ];
    for (last, count, expected) in vectors {
        let mut ring = Ring::<usize, 10>::default();
        (0..10).chain(0..=last).for_each(|value| ring.push(value));
        assert_eq!(ring.newest(count).collect::<Vec<_>>(), expected, "{last} {count}");
    }
    let mut short = Ring::<usize, 10>::default();
    assert!(short.is_empty() && short.last().is_none());
    short.push(7);
    assert_eq!((short.newest(4).collect::<Vec<_>>(), short.len()), (vec![7], 1));
}

#[test]
fn amounts_are_similar_within_an_eighth_or_128_mib() {
    const TIB: u64 = 1 << 40;
    assert!(!is_similar(64, 72) && is_similar(64, 71) && is_similar(71, 64));
    assert!(!is_similar(TIB, TIB + 128 * MIB) && is_similar(TIB, TIB + 128 * MIB - 1));
}
