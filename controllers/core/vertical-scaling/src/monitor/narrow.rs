//! Where the policy and the limits of the control group meet.

use std::time::Duration;

use neonvm_types::guest::MemoryLimits;

use super::change::Refusal;
use super::formula::mib;
use super::limits::LimitChange;
use super::outcome::{Action, Outcome};
use super::policy::Policy;
use super::{LIMIT_BUFFER, SYSTEM_BUFFER, file_cache_size, informant_file_cache_size, needed_total, usable};

impl Policy {
    /// Size of the file cache in bytes by the rule that holds.
    pub(super) const fn file_cache(&self, usable: u64) -> u64 {
        if self.informant { informant_file_cache_size(usable) } else { file_cache_size(usable) }
    }

    /// What the control group may use of `usable` bytes: the file cache counts as memory outside of it.
    fn for_group(&self, usable: u64) -> u64 {
        let cache = if self.settings.file_cache { self.file_cache(usable) } else { 0 };
        usable.saturating_sub(cache)
    }

    /// What is usable for limits, in bytes: also the memory that the kernel keeps of the VM's size for itself is not.
    fn usable_for_limits(&self) -> Option<u64> {
        Some(self.usable_now()?.min(usable(self.total?)))
    }

    /// Memory of the VM's size that the kernel does not report, in bytes. What is still on its way is not taken for it.
    fn kernel_share(&self) -> u64 {
        let missing =
            self.granted.zip(self.total).map(|(granted, total)| granted.mem.get().saturating_sub(total));
        missing.unwrap_or_default().min(SYSTEM_BUFFER)
    }

    /// Use of the control group in bytes, if the group is there.
    fn charged(&self) -> Option<u64> {
        self.history.last().and_then(|sample| sample.current)
    }

    /// Use of the control group in bytes. 0 if unknown: limits do not wait for it.
    fn current(&self) -> u64 {
        self.charged().unwrap_or_default()
    }

    fn change(change: LimitChange, outcome: &mut Outcome) {
        if change.lift {
            outcome.actions.push(Action::SetLimits(None));
        }
        outcome.actions.extend(change.set.map(|values| Action::SetLimits(Some(values))));
        if change.freeze {
            outcome.actions.push(Action::Freeze);
        }
        if change.thaw {
            outcome.actions.push(Action::Thaw);
        }
    }

    /// Limits that are off by the settings are the informant's while an agent with its protocol is the current one.
    pub(super) fn follow_mode(&mut self, outcome: &mut Outcome) {
        let served = self.informant && self.version.is_some() && self.charged().is_some();
        let mode = match self.settings.limits {
            MemoryLimits::Off if served => MemoryLimits::HighAndMax,
            configured => configured,
        };
        Self::change(self.limits.switch(mode), outcome);
    }

    /// There is a sample. Memory that the kernel got is there for the group at once, whatever was granted before; memory that
    /// it lost is not.
    pub(super) fn follow_memory(&mut self, grown: bool, outcome: &mut Outcome) {
        self.follow_mode(outcome);
        let (Some(total), Some(now)) = (self.total, self.usable_for_limits()) else { return };
        let usable = if grown { now.max(super::usable(total)) } else { now };
        let change = self.limits.resize(self.for_group(usable), self.current(), false);
        Self::change(change, outcome);
        let most = self.for_group(super::usable(total));
        if self.limits.available().is_some_and(|available| available > most) {
            Self::change(self.limits.resize(most, self.current(), true), outcome);
        }
    }

    /// The agent has granted memory. As much of it counts as the kernel has.
    pub(super) fn follow_grant(&mut self, outcome: &mut Outcome) {
        let Some(now) = self.usable_for_limits() else { return };
        Self::change(self.limits.resize(self.for_group(now), self.current(), false), outcome);
        self.release(outcome);
    }

    /// A smaller size was consented to.
    pub(super) fn narrow(&mut self, outcome: &mut Outcome) {
        let Some(now) = self.usable_for_limits() else { return };
        Self::change(self.limits.resize(self.for_group(now), self.current(), true), outcome);
    }

    /// The text for a consent to a VM of `target` bytes: by what is in use and by the limits of the control group. By the
    /// informant's rule only the limits count, if the group is there.
    pub(super) fn judge_memory(&self, now: Duration, target: u64) -> Result<String, Refusal> {
        if let Some(charged) = self.charged().filter(|_| self.informant) {
            self.judgeable(now)?;
            self.limit_refusal(target)?;
            return Ok(format!("memory: the control group uses {}", mib(charged)));
        }
        let status = self.memory_refusal(now, target)?;
        self.limit_refusal(target).map(|()| status)
    }

    /// Why the limits of a VM of `target` bytes are too low.
    fn limit_refusal(&self, target: u64) -> Result<(), Refusal> {
        let usable = usable(target).saturating_sub(self.kernel_share());
        self.limits.consent(self.for_group(usable), self.charged()).map_err(Refusal::No)
    }

    /// The group is at its limit.
    pub(super) fn press(&mut self, now: Duration, outcome: &mut Outcome) {
        let change = self.limits.press(now, self.current(), self.version.is_some());
        Self::change(change, outcome);
        self.ask(now, outcome);
    }

    /// What is to be requested, and why: more if the group is at its limit, then an eighth more than there is at least.
    pub(super) fn or_at_limit(&self, now: Duration, wanted: Option<(u64, String)>) -> Option<(u64, String)> {
        if !self.limits.is_pressed(now) {
            return wanted;
        }
        let total = self.granted.map(|granted| granted.mem.get()).max(self.total)?;
        let step = total.saturating_add((total / 8).max(LIMIT_BUFFER));
        let used = self.history.used().max(self.current());
        let reason = "memory: the control group is at memory.high".to_owned();
        let at_limit = (needed_total(used, SYSTEM_BUFFER).max(step), reason);
        wanted.filter(|wanted| wanted.0 > at_limit.0).or(Some(at_limit))
    }

    /// Thaws what was frozen long enough.
    pub(super) fn elapse(&mut self, now: Duration, outcome: &mut Outcome) {
        if self.limits.elapse(now) {
            outcome.actions.push(Action::Thaw);
        }
    }

    /// Thaws what is frozen: the answer to wait for does not come.
    pub(super) fn release(&mut self, outcome: &mut Outcome) {
        if self.limits.release() {
            outcome.actions.push(Action::Thaw);
        }
    }
}
