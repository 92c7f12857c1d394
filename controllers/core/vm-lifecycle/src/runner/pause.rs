//! Pause: the guest's CPUs stand still on request. QEMU is ordered once, and again only if it has refused.

use std::time::Duration;

use neonvm_types::runner_protocol::{PauseStatus, Problem, ProblemReason};

use super::Action;

/// Before an order that QEMU did not carry out is repeated.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct Pause {
    wanted: bool,
    applied: bool,
    /// The order that QEMU has not answered.
    sent: Option<bool>,
    retry: Option<Duration>,
    problem: Option<String>,
}

impl Pause {
    pub(crate) fn want(&mut self, paused: bool) {
        if self.wanted != paused {
            (self.wanted, self.retry, self.problem) = (paused, None, None);
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the guest's CPUs stand still, or may do so any moment.
    pub(crate) fn is_still(&self) -> bool {
        self.applied || self.sent.is_some()
    }

    /// QEMU has carried out an order.
    pub(crate) fn reached(&mut self, paused: bool) {
        if self.sent.take().is_some() {
            (self.applied, self.retry, self.problem) = (paused, None, None);
        }
    }

    /// QEMU has not carried out the order.
    pub(crate) fn failed(&mut self, now: Duration, why: String) {
        if let Some(paused) = self.sent.take()
            && paused != self.applied
        {
            (self.retry, self.problem) = (Some(now + RETRY), Some(why));
        }
    }

    /// The order that is due. `may`: whether the guest may be paused now; if not, a paused guest is continued.
    pub(crate) fn tend(&mut self, now: Duration, may: bool) -> Option<Action> {
        let goal = self.wanted && may;
        if self.sent.is_some() || self.retry.is_some_and(|at| at > now) && goal != self.applied {
            return None;
        }
        if goal == self.applied {
            // What has failed is not wanted any more.
            (self.retry, self.problem) = (None, None);
            return None;
        }
        (self.sent, self.retry) = (Some(goal), None);
        Some(if goal { Action::Pause } else { Action::Continue })
    }

    /// QEMU stopped the guest by itself, and may continue it; a guest that is paused on request stands still.
    pub(crate) fn room(&mut self) -> Option<Action> {
        if self.is_still() {
            return None;
        }
        self.sent = Some(false);
        Some(Action::Continue)
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.retry.filter(|_| self.sent.is_none())
    }

    pub(crate) fn status(&self) -> PauseStatus {
        PauseStatus { asked: self.wanted, applied: self.applied }
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        let what = if self.applied { "continue" } else { "pause" };
        self.problem.as_ref().map(|why| Problem {
            reason: ProblemReason::PauseFailed,
            message: format!("QEMU does not {what} the guest: {why}"),
        })
    }
}
