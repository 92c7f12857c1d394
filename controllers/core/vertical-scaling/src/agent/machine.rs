//! The VM object: its requested and observed sizes, and the patch in between.

use std::time::Duration;

use neonvm_types::{Bytes, MilliCpu, Resources, Revision};
use serde::Serialize;

use crate::agent::{
    action::{ActionSet, Change, Warning},
    plugin::backoff,
    revision::Stamped,
    settings::Settings,
    vm::Vm,
};

/// A patch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Patching {
    /// Number of the patch.
    pub id: u64,
    /// When it was sent.
    pub since: Duration,
    /// The requested size before.
    pub from: Resources,
    /// The requested size after.
    pub target: Resources,
}

/// Patches that failed, but may have been made all the same, or may still be: what failed may be the way of the reply.
/// Only a later patch that finds the expected size ends the doubt; that nothing was seen of them proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// The smallest size that they request.
    pub least: Resources,
    /// The largest size that they request.
    pub most: Resources,
    /// The time from which none of them can be under way any more, so that another request shows the result.
    pub until: Duration,
}

/// The last patch that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// When its reply came.
    pub at: Duration,
    /// The requested size before.
    pub from: Resources,
    /// Whether the object's generation after the patch is known.
    pub numbered: bool,
}

/// First pause before more is requested again from a node that denied a size; doubled for each denial in a
/// row.
const NODE_RETRY: Duration = Duration::from_secs(30);

/// A size that the VM's node did not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeDenial {
    /// Until when no more than the observed size is requested.
    pub until: Duration,
    /// What it had.
    pub has: Resources,
    /// Denials in a row.
    pub count: u32,
}

/// State of the VM object, as last observed or patched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The requested size.
    pub asked: Resources,
    /// The observed size, with the requested size for fields that the status does not show.
    pub now: Resources,
    /// One step of memory.
    pub slot: Bytes,
    /// The least the VM may have gone to since the observed size was last certain.
    pub low: Resources,
    /// The most it may have gone to since.
    pub high: Resources,
    /// Whether the observed size was ever certain.
    pub certain: bool,
    /// The patch under way.
    pub patching: Option<Patching>,
    /// Patches whose result is unknown.
    pub doubt: Option<Doubt>,
    /// The last patch that was made.
    pub written: Option<Written>,
    /// The highest generation of the object that was seen or written.
    pub generation: Option<i64>,
    /// The last target of a patch, made or not.
    pub tried: Option<Resources>,
    /// When the last patch failed; `None` once one succeeded, or after a conflict once the object was observed again.
    pub failed_at: Option<Duration>,
    pub failures: u32,
    /// Whether the object was not seen since a patch was refused because it had changed.
    pub conflict: bool,
    /// Since when the observed size differs from the requested one, and whether that was already reported as
    /// too long.
    pub differs_since: Option<(Duration, bool)>,
    /// The last size that the node did not give, until the VM has grown again.
    pub node_denial: Option<NodeDenial>,
    /// The revision of the last patch.
    pub target_revision: Stamped,
    /// The revision the status shows.
    pub revision: Revision,
    /// What the last failure was.
    pub error: String,
}

/// What the decision needs beside the VM's own state.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The size to aim at.
    pub desired: Resources,
    /// What the guest agreed to; `None` without a monitor.
    pub agreed: Option<Resources>,
    /// What the scheduler allows of `desired`; `None` before the first permit.
    pub permitted: Option<Resources>,
    /// The amount in the scheduler request that is under way or planned.
    pub scheduler_target: Option<Resources>,
}

impl Machine {
    /// A VM that was just found.
    #[must_use]
    pub fn new(asked: Resources, observed: Option<Resources>, slot: Bytes) -> Self {
        Self {
            asked,
            now: seen(observed, asked),
            slot,
            low: seen(observed, asked).min(asked),
            high: seen(observed, asked).max(asked),
            certain: true,
            patching: None,
            doubt: None,
            written: None,
            generation: None,
            tried: None,
            failed_at: None,
            failures: 0,
            conflict: false,
            differs_since: None,
            node_denial: None,
            target_revision: Stamped::default(),
            revision: Revision::default(),
            error: String::new(),
        }
    }

    /// Every size that `spec` may come to have without further actions: the requested size, and the targets
    /// of patches whose result is unknown.
    fn possible(&self) -> impl Iterator<Item = Resources> {
        let (least, most) = self.doubt.map(|doubt| (doubt.least, doubt.most)).unzip();
        let patching = self.patching.map(|patching| patching.target);
        [Some(self.asked), patching, least, most].into_iter().flatten()
    }

    /// What patches with an unknown result may add: their targets, zero in a field that none of them
    /// increases.
    #[must_use]
    pub fn growing(&self) -> Resources {
        grown(self.asked, self.possible().fold(self.asked, Resources::max))
    }

    /// Whether it is time to check the result of patches whose result is unknown.
    #[must_use]
    pub fn doubtful(&self, now: Duration) -> bool {
        self.patching.is_none() && self.doubt.is_some_and(|doubt| now >= doubt.until)
    }

    /// The most the VM has or may come to have: the scheduler must not be sent less.
    #[must_use]
    pub fn most(&self) -> Resources {
        self.possible().fold(self.high, Resources::max)
    }

    /// The least it may come to have: the monitor must not be sent more.
    #[must_use]
    pub fn least(&self) -> Resources {
        self.possible().fold(self.asked, Resources::min)
    }

    /// Until when a failed patch is not repeated.
    #[must_use]
    pub fn failed_until(&self, settings: &Settings) -> Option<Duration> {
        let wait = backoff(settings.neonvm_retry_wait, self.failures);
        self.failed_at.map(|at| at.saturating_add(wait))
    }

    /// The size to patch to, or nothing; adds a wait to `set` if a failure is too recent.
    ///
    /// A field grows at most to the permitted size, and shrinks at most to the size that the monitor agreed
    /// to. The requested size itself as the result means a patch that changes nothing: it succeeds only if no
    /// patch in doubt was made.
    pub fn plan(
        &self,
        now: Duration,
        limits: &Limits,
        settings: &Settings,
        set: &mut ActionSet,
    ) -> Option<Resources> {
        let asked = self.asked;
        let lower = limits.agreed.unwrap_or(asked).min(asked);
        let upper = limits.permitted.unwrap_or(asked).max(asked);
        let target = limits.desired.max(lower).min(upper);
        if target == asked && !self.doubtful(now) {
            return None;
        }
        if let Some(patching) = &self.patching {
            if patching.target != target {
                set.warnings.push(Warning::NeonVmBusy);
            }
            return None;
        }
        if limits.scheduler_target.is_some_and(|sent| sent.any_less(target)) {
            set.warnings.push(Warning::NeonVmAwaitsPlugin);
            return None;
        }
        if let Some(until) = self.failed_until(settings).filter(|until| now < *until) {
            set.warnings.push(Warning::NeonVmFailedRecently);
            set.wait_for(until.saturating_sub(now));
            return None;
        }
        Some(target)
    }

    /// A patch went out.
    pub fn started(&mut self, now: Duration, id: u64, change: &Change) {
        self.patching = Some(Patching { id, since: now, from: change.current, target: change.target });
        self.tried = Some(change.target);
        self.low = self.low.min(change.current).min(change.target);
        self.target_revision = Stamped { revision: change.revision, at: now };
    }

    /// The patch was made: the requested size is the target. The observed size stays until an observation
    /// changes it.
    pub fn patched(&mut self, now: Duration, generation: Option<i64>) -> Option<Patching> {
        let patching = self.patching.take()?;
        self.asked = patching.target;
        self.high = self.high.max(patching.target);
        self.failed_at = None;
        self.failures = 0;
        self.conflict = false;
        self.doubt = None;
        self.written = Some(Written { at: now, from: patching.from, numbered: generation.is_some() });
        self.generation = self.generation.max(generation);
        self.mark(now);
        Some(patching)
    }

    /// The object had changed before the patch, so the patch was not made; an earlier one that seemed to have
    /// failed may have been. The requested size is unknown until the object is observed again.
    pub fn conflicted(&mut self, now: Duration) {
        self.patching = None;
        self.count(now, "the object had changed".to_owned());
        self.conflict = true;
    }

    /// The patch failed; for `within` it may still be under way.
    pub fn failed(&mut self, now: Duration, within: Duration, error: String) {
        if let Some(Patching { target, .. }) = self.patching.take() {
            let until = now.saturating_add(within);
            let before = self.doubt.unwrap_or(Doubt { least: target, most: target, until });
            let (least, most) = (before.least.min(target), before.most.max(target));
            self.doubt = Some(Doubt { least, most, until });
        }
        self.count(now, error);
    }

    fn count(&mut self, now: Duration, error: String) {
        self.failed_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.conflict = false;
        self.error = error;
    }

    /// Whether an observation is older than the current state, above all than the agent's own last patch.
    /// With generations that is certain. Without, what looks as before the patch is taken for older, as long
    /// as a slow watch could be the reason.
    #[must_use]
    pub fn is_stale(
        &self,
        now: Duration,
        asked: Resources,
        generation: Option<i64>,
        settings: &Settings,
    ) -> bool {
        let numbers = generation.zip(self.generation);
        if numbers.is_some_and(|(seen, known)| seen < known) {
            return true;
        }
        self.written.as_ref().is_some_and(|written| {
            let certain = written.numbered && numbers.is_some();
            let recent = now < written.at.saturating_add(settings.neonvm_retry_wait);
            !certain && recent && asked == written.from && asked != self.asked
        })
    }

    /// Takes in an observation that is not stale. Returns whether another client changed the requested size.
    pub fn observed(
        &mut self,
        now: Duration,
        asked: Resources,
        vm: &Vm,
        status_generation: Option<i64>,
    ) -> bool {
        self.generation = self.generation.max(vm.generation);
        let ours = asked == self.asked || self.tried == Some(asked);
        self.asked = asked;
        self.now = seen(vm.observed, asked);
        self.slot = vm.info.mem.slot_size;
        // A status from before the last change hides what was done about the ones before it.
        if vm.status_is_old(status_generation) {
            self.low = self.low.min(self.now).min(asked);
            self.high = self.high.max(self.now).max(asked);
        } else {
            self.certain = true;
            self.low = self.now.min(asked);
            self.high = self.now.max(asked);
        }
        // There was one in doubt, and it was made.
        self.doubt = self.doubt.filter(|doubt| doubt.least != asked || doubt.most != asked);
        if self.conflict && self.failures < 3 {
            self.failed_at = None;
        }
        self.conflict = false;
        self.mark(now);
        !ours
    }

    /// Records whether the node denies the requested size. Returns whether that is news.
    pub fn node_answers(&mut self, now: Duration, denies: bool) -> bool {
        if self.node_denial.is_some_and(|denial| self.now.any_greater(denial.has)) {
            self.node_denial = None;
        }
        let in_force = self.node_denial.is_some_and(|denial| now < denial.until);
        if !denies || in_force || !self.asked.any_greater(self.now) {
            return false;
        }
        let count = self.node_denial.map_or(0, |denial| denial.count).saturating_add(1);
        let until = now.saturating_add(backoff(NODE_RETRY, count));
        self.node_denial = Some(NodeDenial { until, has: self.now, count });
        true
    }

    /// What the VM must not go beyond, because its node has denied more.
    #[must_use]
    pub fn room(&self, now: Duration) -> Option<Resources> {
        self.node_denial.filter(|denial| now < denial.until).map(|denial| denial.has)
    }

    /// Whether the VM has the requested size. Of memory that it gives back, the guest may keep less than one step.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        let rest = self.now.mem.saturating_sub(self.asked.mem);
        let is_within = rest == Bytes::ZERO || rest < self.slot;
        self.now.vcpus == self.asked.vcpus && self.now.mem >= self.asked.mem && is_within
    }

    /// Records since when the observed size differs from the requested one.
    pub fn mark(&mut self, now: Duration) {
        if self.has_arrived() {
            self.differs_since = None;
        } else if self.differs_since.is_none() {
            self.differs_since = Some((now, false));
        }
    }
}

/// The fields of `to` that are larger than before, the others zero.
#[must_use]
pub fn grown(from: Resources, to: Resources) -> Resources {
    let mut grown = to;
    if to.vcpus <= from.vcpus {
        grown.vcpus = MilliCpu::ZERO;
    }
    if to.mem <= from.mem {
        grown.mem = Bytes::ZERO;
    }
    grown
}

/// The observed size: what the status shows, and the requested size for a field that it does not show.
fn seen(observed: Option<Resources>, asked: Resources) -> Resources {
    let mut now = observed.unwrap_or(asked);
    if now.vcpus.milli() == 0 {
        now.vcpus = asked.vcpus;
    }
    if now.mem.get() == 0 {
        now.mem = asked.mem;
    }
    now
}
