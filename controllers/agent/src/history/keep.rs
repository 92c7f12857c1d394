//! What is worth a record. Pure: an idle VM costs a record each few minutes, a busy one a few each minute.

use std::collections::VecDeque;
use std::time::Duration;

use neonvm_types::agent_history::Sample;

/// A load that changes is recorded as often.
const LOAD_EVERY: Duration = Duration::from_secs(15);
/// A VM whose sizes and load stay is recorded as often.
const IDLE_EVERY: Duration = Duration::from_secs(300);
/// Changes of the load average below this are none.
const LOAD_STEP: f64 = 0.05;
/// Changes of the memory in use below this are none, in bytes.
const MEMORY_STEP: u64 = 16 << 20;
/// The same decision is recorded once in so long.
const SAME_EVERY: Duration = Duration::from_secs(60);
/// Different decisions that are remembered.
const TEXTS: usize = 16;

/// What was recorded last of one VM.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    sample: Option<(Duration, Sample)>,
    texts: VecDeque<(Duration, String)>,
}

impl Keep {
    /// Whether a sample is recorded: its sizes changed, or its load did and the last record is old enough.
    pub(crate) fn sample(&mut self, now: Duration, sample: Sample) -> bool {
        let worth = self.sample.is_none_or(|(at, last)| {
            let age = now.saturating_sub(at);
            let sizes = |of: Sample| (of.now, of.goal, of.permit);
            sizes(last) != sizes(sample)
                || age >= IDLE_EVERY
                || (age >= LOAD_EVERY && has_other_load(last, sample))
        });
        if worth {
            self.sample = Some((now, sample));
        }
        worth
    }

    /// Whether a decision is recorded: it differs from those of the last minute.
    pub(crate) fn decision(&mut self, now: Duration, text: &str) -> bool {
        self.texts.retain(|(at, _)| now.saturating_sub(*at) < SAME_EVERY);
        if self.texts.iter().any(|(_, known)| known == text) {
            return false;
        }
        if self.texts.len() >= TEXTS {
            self.texts.pop_front();
        }
        self.texts.push_back((now, text.to_owned()));
        true
    }
}

fn has_other_load(last: Sample, sample: Sample) -> bool {
    let load = match (last.load1, sample.load1) {
        (Some(last), Some(now)) => (last - now).abs() >= LOAD_STEP,
        (last, now) => last.is_some() != now.is_some(),
    };
    let memory = |sample: Sample| sample.memory_used_bytes.unwrap_or(0);
    load || memory(last).abs_diff(memory(sample)) >= MEMORY_STEP
}

#[cfg(test)]
mod tests {
    use neonvm_types::{Bytes, MilliCpu, Resources};

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn sample(cpu: u32, load: f64) -> Sample {
        let now = Resources::new(MilliCpu::new(cpu), Bytes::gib(1));
        Sample { now, goal: now, permit: None, load1: Some(load), memory_used_bytes: None }
    }

    #[test]
    fn sizes_are_recorded_at_once_and_loads_from_time_to_time() {
        let mut keep = Keep::default();
        let mut recorded = |at: u64, cpu: u32, load: f64| keep.sample(seconds(at), sample(cpu, load));
        assert!(recorded(0, 250, 0.1));
        assert!(!recorded(1, 250, 0.1) && !recorded(5, 250, 0.9), "the load is too new");
        assert!(recorded(6, 500, 0.9), "a size");
        assert!(!recorded(20, 500, 1.9));
        assert!(recorded(21, 500, 1.9), "fifteen seconds");
        assert!(!recorded(300, 500, 1.91), "no other load");
        assert!(recorded(321, 500, 1.9), "five minutes");
    }

    #[test]
    fn an_idle_day_costs_few_records_and_a_restless_one_is_bounded() {
        let mut keep = Keep::default();
        let idle = (0..86_400).filter(|at| keep.sample(seconds(*at), sample(250, 0.0))).count();
        assert_eq!(idle, 288);
        let mut keep = Keep::default();
        let restless = (0..86_400_u32)
            .filter(|at| keep.sample(seconds((*at).into()), sample(250, f64::from(*at))))
            .count();
        assert_eq!(restless, 5760);
    }

    #[test]
    fn a_decision_that_repeats_is_recorded_once_a_minute() {
        let mut keep = Keep::default();
        let texts = ["grow", "shrink"];
        let times: Vec<u64> = (0..120)
            .filter(|at| keep.decision(seconds(*at), texts[usize::try_from(at % 2).unwrap()]))
            .collect();
        assert_eq!(times, [0, 1, 60, 61]);
        let many = (0..1000).filter(|at| keep.decision(seconds(200), &at.to_string())).count();
        assert_eq!((many, keep.texts.len()), (1000, TEXTS));
    }
}
