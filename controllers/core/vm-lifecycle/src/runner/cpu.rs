//! CPU: a quota on the vCPU threads, in force at once, and the number of CPUs on line, which the guest changes.

use std::time::Duration;

use neonvm_types::MilliCpu;
use neonvm_types::runner_protocol::{Problem, ProblemReason};

use super::Action;

/// First pause before the number of CPUs is sent to the guest again; doubled up to [`RETRY_LONGEST`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(30);
/// How long a lower quota waits for the guest to give CPUs and memory back, which it does faster with the CPU it has.
const LOWER: Duration = Duration::from_secs(3);
/// Until a quota that the kernel has refused is set again: a cgroup above that allowed less may have grown.
const QUOTA_RETRY: Duration = Duration::from_secs(1);
/// Unanswered for so long, it is reported as a problem.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    asked: MilliCpu,
    /// CPUs online, once the guest has reported them.
    online: Option<u32>,
    /// Quota in force; none if it cannot be set.
    quota: Option<MilliCpu>,
    quota_problem: Option<String>,
    /// When one that was refused is set again.
    quota_retry: Option<Duration>,
    /// When a lower quota is set at the latest.
    lower_by: Option<Duration>,
    /// What was sent to the guest and has no answer yet.
    sent: Option<MilliCpu>,
    /// Since when the guest has not done what it should.
    unmet_since: Option<Duration>,
    retry: (Duration, Option<Duration>),
    problem: Option<String>,
}

impl Cpu {
    pub(crate) fn new(asked: MilliCpu) -> Self {
        Self {
            asked,
            online: None,
            quota: None,
            quota_problem: None,
            quota_retry: None,
            lower_by: None,
            sent: None,
            unmet_since: None,
            retry: (RETRY_FIRST, None),
            problem: None,
        }
    }

    /// The VM starts with the requested quota, or with a problem that was reported before.
    pub(crate) fn booted(&mut self) {
        if self.quota_problem.is_none() && self.quota.is_none() {
            self.quota = Some(self.asked);
        }
    }

    /// Returns what is to be done at once: more CPU is given before the guest uses it.
    pub(crate) fn ask(&mut self, now: Duration, asked: MilliCpu) -> Option<Action> {
        self.asked = asked;
        self.unmet_since = self.is_unmet().then_some(now);
        self.retry = (RETRY_FIRST, None);
        self.problem = None;
        self.quota_retry = None;
        let lower = self.quota.is_some_and(|quota| asked < quota) && self.online.is_some();
        self.lower_by = lower.then(|| now + LOWER);
        (!lower).then_some(Action::SetQuota(asked))
    }

    /// The lower quota, when the guest has given back what it should or the time is up; or one that was refused, again.
    pub(crate) fn lower(&mut self, now: Duration, memory_is_settled: bool) -> Option<Action> {
        if self.quota_retry.is_some_and(|at| at <= now) {
            (self.quota_retry, self.lower_by) = (None, None);
            return Some(Action::SetQuota(self.asked));
        }
        let by = self.lower_by?;
        if now < by && (self.is_unmet() || !memory_is_settled) {
            return None;
        }
        self.lower_by = None;
        Some(Action::SetQuota(self.asked))
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.online.is_some()
    }

    pub(crate) fn answered(&mut self, now: Duration, online: u32) {
        let sent = self.sent.take();
        self.online = Some(online);
        if !self.is_unmet() {
            self.unmet_since = None;
            self.retry = (RETRY_FIRST, None);
            self.problem = None;
        } else if sent.is_some_and(|sent| sent == self.asked) {
            // It answered and did not do it.
            self.again(now, &format!("{online} CPUs are on line"));
        }
    }

    pub(crate) fn silent(&mut self, now: Duration, why: &str) {
        // What was sent may not be wanted any more.
        if self.sent.take().is_some() && self.is_unmet() {
            self.again(now, why);
        }
    }

    fn again(&mut self, now: Duration, why: &str) {
        let since = *self.unmet_since.get_or_insert(now);
        self.retry = ((self.retry.0 * 2).min(RETRY_LONGEST), Some(now + self.retry.0));
        if now.saturating_sub(since) >= PATIENCE {
            let wanted = self.asked.cpus_rounded_up();
            self.problem = Some(format!("the guest has not brought {wanted} CPUs on line: {why}"));
        }
    }

    /// The guest stands still, or runs again: what was sent to it is sent again when it runs, and its patience begins then.
    pub(crate) fn restart(&mut self, now: Duration) {
        self.sent = None;
        self.unmet_since = self.is_unmet().then_some(now);
        self.retry = (RETRY_FIRST, None);
        self.problem = None;
    }

    /// A quota is in force, or was refused: then the one before still is.
    pub(crate) fn quota(&mut self, now: Duration, set: Result<MilliCpu, String>) {
        match set {
            Ok(quota) => (self.quota, self.quota_problem, self.quota_retry) = (Some(quota), None, None),
            Err(problem) => {
                self.quota_problem = Some(problem);
                self.quota_retry = self.quota.map(|_| now + QUOTA_RETRY);
            }
        }
    }

    fn is_unmet(&self) -> bool {
        self.online.is_some_and(|online| online != self.asked.cpus_rounded_up())
    }

    /// Sends the number of CPUs to the guest if it differs from the guest's and is not being sent.
    pub(crate) fn tend(&mut self, now: Duration) -> Option<Action> {
        if !self.is_unmet() || self.sent.is_some() || self.retry.1.is_some_and(|at| at > now) {
            return None;
        }
        self.unmet_since.get_or_insert(now);
        self.retry.1 = None;
        self.sent = Some(self.asked);
        Some(Action::SetCpus(self.asked))
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let retry = self.retry.1.filter(|_| self.sent.is_none() && self.is_unmet());
        [retry, self.lower_by, self.quota_retry].into_iter().flatten().min()
    }

    /// CPU in force, CPUs on line.
    pub(crate) fn observed(&self) -> (MilliCpu, u32) {
        let Some(online) = self.online else { return (MilliCpu::ZERO, 0) };
        let most = MilliCpu::new(online.saturating_mul(1000));
        (self.quota.unwrap_or(self.asked).min(most), online)
    }

    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        let quota = self
            .quota_problem
            .clone()
            .map(|message| Problem { reason: ProblemReason::CpuNotLimited, message });
        let guest =
            self.problem.clone().map(|message| Problem { reason: ProblemReason::CpuNotScaled, message });
        quota.into_iter().chain(guest)
    }
}
