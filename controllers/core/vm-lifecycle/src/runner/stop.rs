//! Stopping: the power button, pressed again until the guest reports that it shuts down; then force.

use std::time::Duration;

use neonvm_types::runner_protocol::{Problem, ProblemReason};

use super::Action;

/// A guest that has not come so far that it sees the button loses a press.
const PRESS_AGAIN: Duration = Duration::from_secs(1);
/// So many presses without an answer are a problem.
const IGNORED: u32 = 5;
/// Time left for the runner to end by itself when the guest does not.
const RESERVE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stop {
    deadline: Option<Duration>,
    press_at: Option<Duration>,
    presses: u32,
    killed: bool,
    noticed: bool,
}

impl Stop {
    /// A second request may shorten the time, never lengthen it.
    pub(crate) fn begin(&mut self, now: Duration, grace: Duration) {
        let end = now + grace.saturating_sub(RESERVE.min(grace / 2));
        self.press_at = self.press_at.or(Some(now));
        self.deadline = Some(self.deadline.map_or(end, |old| old.min(end)));
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.deadline.is_some()
    }

    /// Ends it now: the guest cannot shut down.
    pub(crate) fn give_up(&mut self) -> Option<Action> {
        (!std::mem::replace(&mut self.killed, true)).then_some(Action::Kill)
    }

    /// `still`: the guest's CPUs stand still, so it does not see the button yet.
    pub(crate) fn tend(&mut self, now: Duration, noticed: bool, still: bool) -> Option<Action> {
        self.noticed |= noticed;
        if self.killed {
            return None;
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.killed = true;
            return Some(Action::Kill);
        }
        if self.noticed || still || self.press_at.is_some_and(|at| at > now) {
            return None;
        }
        self.press_at = Some(now + PRESS_AGAIN);
        self.presses += 1;
        Some(Action::PressPowerButton)
    }

    pub(crate) fn wake_at(&self, still: bool) -> Option<Duration> {
        if self.killed {
            return None;
        }
        let press = self.press_at.filter(|_| !self.noticed && !still);
        [self.deadline, press].into_iter().flatten().min()
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        (self.presses >= IGNORED && !self.noticed).then(|| Problem {
            reason: ProblemReason::PowerButtonIgnored,
            message: format!(
                "the power button was pressed {} times and the guest does not shut down",
                self.presses
            ),
        })
    }
}
