//! Memory: when to request more, what to release.

use std::time::Duration;

use super::change::Refusal;
use super::formula::mib;
use super::policy::Policy;
use super::{DOWNSCALE_BUFFER, SYSTEM_BUFFER, needed_total, threshold, usable};

/// How far ahead growth is extrapolated before more is requested: the second in which the next request may follow, the quarter of a second
/// until the memory is there on a busy host, and half a second so that a guest that takes memory slowly does not request it later than a fast one.
const HORIZON: Duration = Duration::from_millis(1750);
/// How long the requested amount must last: until the next request may be sent and its reply has arrived.
const LASTS: Duration = Duration::from_secs(2);
/// Share of time lost waiting for memory (thousandths) from which the guest thrashes, while less than a tenth of the
/// memory is available.
const STALLED: u64 = 100;

impl Policy {
    /// What is usable now, in bytes: of what was granted, as far as the kernel has it. None before anything was seen.
    pub(super) fn usable_now(&self) -> Option<u64> {
        let total = self.total?;
        Some(self.granted.map_or_else(|| usable(total), |granted| usable(granted.mem.get()).min(total)))
    }

    /// Bytes of the VM's size that are not usable. The kernel's own tables grow with the VM; memory that is still on its way
    /// is not taken for them.
    fn overhead(&self) -> u64 {
        let (Some(granted), Some(total)) = (self.granted, self.total) else { return SYSTEM_BUFFER };
        let size = granted.mem.get();
        size.saturating_sub(total).clamp(SYSTEM_BUFFER, (size / 20).max(SYSTEM_BUFFER))
    }

    /// v1.0: whether the average reached the threshold.
    pub(super) fn memory_short(&self) -> Option<(u64, String)> {
        let limit = threshold(self.usable_now()?);
        let average = self.history.average();
        let reason = || format!("memory: {} in use, threshold {}", mib(average), mib(limit));
        (average >= limit && !self.history.is_empty())
            .then(|| (needed_total(average, self.overhead()), reason()))
    }

    /// v2.0: also when it will be reached soon, when the kernel itself needs it, and when the guest thrashes.
    pub(super) fn memory_wanted(&self) -> Option<(u64, String)> {
        let last = self.history.last()?;
        let limit = threshold(self.usable_now()?);
        let used = self.history.used().max(self.history.average());
        let projected = self.projected(used, HORIZON);
        let stall = self.history.memory_stall().unwrap_or_default();
        let thrashes = stall >= STALLED && last.available < last.total / 10;
        if projected < limit && !thrashes {
            return None;
        }
        let lasting = needed_total(self.projected(used, LASTS), self.overhead());
        let step = if thrashes { last.total.saturating_add(last.total / 8) } else { 0 };
        let mut reason = format!("memory: {} in use, threshold {}", mib(used), mib(limit));
        let growth = self.history.growth();
        if growth > 0 {
            reason.push_str(&format!(", growing by {} a second", mib(growth)));
        }
        if thrashes {
            reason.push_str(&format!(", {}.{} % of the time lost waiting for it", stall / 10, stall % 10));
        }
        Some((lasting.max(step), reason))
    }

    fn projected(&self, used: u64, ahead: Duration) -> u64 {
        let more = u128::from(self.history.growth()) * ahead.as_millis() / 1000;
        used.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    /// Why there is no judging by the samples.
    pub(super) fn judgeable(&self, now: Duration) -> Result<(), Refusal> {
        if self.history.is_stale(now) {
            return Err(Refusal::Unknown("the newest sample of memory is too old to judge by".to_owned()));
        }
        if self.history.len() <= 1 {
            return Err(Refusal::No("too few samples of memory yet".to_owned()));
        }
        Ok(())
    }

    /// Why the VM must not shrink to `target` bytes; what is in use and what is to spare if it may.
    pub(super) fn memory_refusal(&self, now: Duration, target: u64) -> Result<String, Refusal> {
        if !self.settings.measures {
            return Ok("memory cannot be measured here".to_owned());
        }
        self.judgeable(now)?;
        let average = self.history.average();
        let limit = threshold(usable(target));
        let (shown, at) = (mib(average), mib(limit));
        if limit < average.saturating_add(DOWNSCALE_BUFFER) {
            let buffer = mib(DOWNSCALE_BUFFER);
            return Err(Refusal::No(format!(
                "memory: {shown} in use and {buffer} to spare exceed threshold {at}"
            )));
        }
        let newest = self.history.last().map_or(average, |sample| sample.anonymous.max(average));
        let projected = self.projected(newest, HORIZON);
        if self.speaks_of_amounts() && projected >= limit {
            let growth = mib(self.history.growth());
            return Err(Refusal::No(format!(
                "memory: {shown} in use, growing by {growth} a second, would reach threshold {at}"
            )));
        }
        Ok(format!("memory: {shown} in use, threshold {at}"))
    }
}
