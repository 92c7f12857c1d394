//! Evidence that the guest needs more CPU: for how long its run queue was full, and what came of earlier requests.
//!
//! Under the quota of a small VM, 30 ms of work look like a full run queue for more than 100 ms. A request therefore needs a run
//! queue that stays full for [`LEAST`], and asks for the next size. Only a run queue that fills the next size as well, or that
//! stays full without a growth, is evidence for a jump. If the CPU that came was not used, the request was a false alarm, and
//! the next one needs twice as long; a real need resets that.

use std::time::Duration;

use neonvm_types::MilliCpu;

use super::Sample;
use super::history::{BUSY, FULL, milli};

/// How long the run queue must be full before a request, if the last one was no false alarm. Under a quota the guest, and the
/// monitor in it, stands still for most of each 100 ms: what lasts for three of its periods is seen in the fourth.
pub(super) const LEAST: Duration = Duration::from_millis(280);
/// What a VM without any CPU would add to it; one of a whole CPU or more adds nothing. In the same time a quota of a quarter does a quarter of
/// the work: on a busy host, what an idle guest of a quarter does by itself fills its run queue for 400 ms.
const FRACTION: Duration = Duration::from_millis(243);
/// In how many samples. On a busy host the guest stands still between few samples, and its processors count as busy.
const SAMPLES: u64 = 5;
/// The same time for the second request, shortly after a growth.
const SECOND: Duration = Duration::from_millis(180);
/// What the first false alarm adds to both, and what all of them add at most.
const ALARM: Duration = Duration::from_millis(700);
const MOST: Duration = Duration::from_millis(2800);
/// A run queue that was full for so long, or fills the size it just got, is evidence for a jump of several units.
const JUMP: Duration = Duration::from_secs(1);
/// How long a growth counts as recent, in which a full run queue is the second evidence.
const RECENT: Duration = Duration::from_secs(3);
/// How much earlier than its first sample a run can have begun at most. While an agent is connected, samples are closer together.
const EARLIER: Duration = Duration::from_millis(150);
/// How long the run queue may be seen not full within a run.
const GAP: Duration = Duration::from_millis(60);
/// How long after memory has come the kernel's own work for it does not count.
const ARRIVING: Duration = Duration::from_millis(150);
/// Time after a growth in which the CPU must be used.
const TRIAL: Duration = Duration::from_secs(2);
/// For so long after the first sample the load is that of the start: what came of a growth then shows nothing of the workload.
const STARTING: Duration = Duration::from_secs(10);
/// After so long without a false alarm, half of what was learned from them is forgotten.
const FORGET: Duration = Duration::from_secs(30 * 60);
/// Tasks that waited for less of the time than this (thousandths) were above the number of processors by chance.
const WAITED: u64 = 100;

/// A run queue that is full.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    since: Duration,
    /// How long it lasted before its first sample: the time for which the processors were busy since the sample before.
    before: Duration,
    first: Sample,
    last: Duration,
    newest: Sample,
    cpu: MilliCpu,
    /// Runnable tasks, summed over so many samples.
    tasks: u64,
    samples: u64,
}

/// A growth that was requested, and whether it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trial {
    at: Duration,
    /// CPU before.
    from: MilliCpu,
    /// The first sample with the processors as they are now.
    since: Option<(Duration, Sample)>,
}

/// CPU that is to be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// CPU of the whole VM.
    pub(super) cpu: MilliCpu,
    /// Runnable tasks on average, in thousandths.
    pub(super) tasks: MilliCpu,
    /// How long the run queue was full.
    pub(super) lasted: Duration,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Evidence {
    run: Option<Run>,
    /// The newest sample; none since memory came.
    newest: Option<(Duration, Sample)>,
    /// Time of the first sample.
    begun: Option<Duration>,
    trial: Option<Trial>,
    grown_at: Option<Duration>,
    /// When memory came the last time.
    memory_at: Option<Duration>,
    /// What false alarms have added to [`LEAST`].
    extra: Duration,
    learned_at: Duration,
}

/// How long the run queue of a VM of this size must be full before its first request.
fn least(cpu: MilliCpu) -> Duration {
    LEAST + FRACTION * 1000_u32.saturating_sub(cpu.milli()) / 1000
}

impl Run {
    fn new(now: Duration, sample: Sample, cpu: MilliCpu) -> Self {
        let tasks = u64::from(sample.runnable);
        let before = Duration::ZERO;
        Self { since: now, before, first: sample, last: now, newest: sample, cpu, tasks, samples: 1 }
    }

    /// The same, if `earlier` is the sample before: it began when the processors became busy.
    fn after(self, earlier: Option<(Duration, Sample)>) -> Self {
        let Some((at, earlier)) = earlier else { return self };
        let elapsed = self.since.saturating_sub(at);
        let busy = self.first.busy_since(&earlier, elapsed).unwrap_or(0);
        let share = (busy * 1000 / self.reached().max(1)).min(1000);
        Self { before: elapsed.min(EARLIER).mul_f64(share as f64 / 1000.0), ..self }
    }

    /// How long samples were taken in it.
    fn seen(&self) -> Duration {
        self.last.saturating_sub(self.since)
    }

    fn lasted(&self) -> Duration {
        self.before.saturating_add(self.seen())
    }

    /// Processors, in thousandths, that are busy while the run queue is full.
    fn reached(&self) -> u64 {
        let level = u64::from(self.cpu.milli()) * FULL / 1000;
        (u64::from(self.newest.online.max(1)) * 1000).min(level)
    }

    /// Whether processors were idle although the run queue looked full.
    fn is_contradicted(&self) -> bool {
        let busy = self.newest.busy_since(&self.first, self.seen());
        busy.is_some_and(|busy| busy < self.reached() * BUSY / 1000)
    }

    /// Runnable tasks on average, in thousandths. If the kernel reports that no task waited for a processor, there were no
    /// more of them than processors.
    fn tasks(&self) -> MilliCpu {
        let average = (self.tasks * 1000).div_ceil(self.samples.max(1));
        let waited = self.newest.cpu_pressure.zip(self.first.cpu_pressure);
        let waited = waited.and_then(|(now, then)| now.checked_sub(then)).map(|time| time.as_micros());
        let is_chance = waited.is_some_and(|time| time * 1000 < self.seen().as_micros() * u128::from(WAITED));
        milli(if is_chance { average.min(u64::from(self.newest.online.max(1)) * 1000) } else { average })
    }
}

impl Evidence {
    /// Takes in a sample of a guest that has `cpu`.
    pub(super) fn sample(&mut self, now: Duration, sample: Sample, cpu: MilliCpu) {
        self.begun.get_or_insert(now);
        self.judge(now, sample);
        if self.extra > Duration::ZERO && now.saturating_sub(self.learned_at) >= FORGET {
            (self.extra, self.learned_at) = (self.extra / 2, now);
        }
        // The kernel makes a large block of memory usable in one go; that would look like load.
        let is_arriving = self.memory_at.is_some_and(|at| now.saturating_sub(at) < ARRIVING);
        let fills = sample.fills(cpu) && !is_arriving;
        let run = self.run.filter(|run| run.cpu == cpu && run.newest.online == sample.online);
        self.run = match run {
            Some(mut run) if fills => {
                (run.last, run.newest) = (now, sample);
                run.tasks = run.tasks.saturating_add(u64::from(sample.runnable));
                run.samples = run.samples.saturating_add(1);
                let is_over = run.lasted() >= LEAST && run.is_contradicted();
                Some(if is_over { Run::new(now, sample, cpu) } else { run })
            }
            Some(run) if now.saturating_sub(run.last) <= GAP => Some(run),
            _ => fills.then(|| Run::new(now, sample, cpu).after(self.newest)),
        };
        self.newest = Some((now, sample));
    }

    /// Whether the run queue is full now, for however short a time: samples are to be taken often.
    pub(super) fn is_suspected(&self) -> bool {
        self.run.is_some()
    }

    /// What is to be requested.
    pub(super) fn need(&self, now: Duration) -> Option<Need> {
        let run = self.run.as_ref()?;
        let lasted = run.lasted();
        let grew = self.grown_at.is_some_and(|at| now.saturating_sub(at) < RECENT);
        let (least, samples) = if grew { (SECOND, 1) } else { (least(run.cpu), SAMPLES) };
        if lasted < least + self.extra || run.samples < samples {
            return None;
        }
        let tasks = run.tasks();
        let next = run.cpu.milli().saturating_add(1);
        let cpu = if grew || lasted >= JUMP + self.extra {
            // So much that the tasks are 90 % of it.
            let whole = (u64::from(tasks.milli()) * 1000).div_ceil(FULL);
            u32::try_from(whole).unwrap_or(u32::MAX).max(next)
        } else {
            next
        };
        Some(Need { cpu: MilliCpu::new(cpu), tasks, lasted })
    }

    /// The VM has grown from one amount of CPU after a request.
    pub(super) fn grown(&mut self, now: Duration, from: MilliCpu) {
        self.grown_at = Some(now);
        let is_starting = self.begun.is_none_or(|begun| now.saturating_sub(begun) < STARTING);
        self.trial = (!is_starting).then_some(Trial { at: now, from, since: None });
        self.run = None;
    }

    /// The kernel has more memory than before.
    pub(super) fn memory_came(&mut self, now: Duration) {
        self.memory_at = Some(now);
        (self.run, self.newest) = (None, None);
    }

    /// Finds out whether the last growth is used.
    fn judge(&mut self, now: Duration, sample: Sample) {
        let Some(trial) = &mut self.trial else { return };
        let Some((since, first)) = trial.since.filter(|(_, first)| first.online == sample.online) else {
            trial.since = Some((now, sample));
            return;
        };
        if now.saturating_sub(trial.at) < TRIAL {
            return;
        }
        let busy = sample.busy_since(&first, now.saturating_sub(since));
        let needed = u64::from(trial.from.milli()) * FULL / 1000;
        self.trial = None;
        if busy.is_some_and(|busy| busy < needed) {
            self.extra = (self.extra * 2).clamp(ALARM, MOST);
        } else {
            self.extra = Duration::ZERO;
        }
        self.learned_at = now;
    }
}
