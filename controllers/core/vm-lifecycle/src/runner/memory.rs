//! Memory: QEMU gets the size that the guest should have; the guest changes it in its own time, or does not.

use std::time::Duration;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Problem, ProblemReason};

use super::Action;

/// Without progress for so long, the guest does not do it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before QEMU gets the size again, which makes the guest try at once; doubled up to [`RETRY_LONGEST`].
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LONGEST: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub(crate) struct Memory {
    asked: Bytes,
    actual: Bytes,
    up: bool,
    /// When it is read again, if it is not the requested one by then.
    look: Option<Duration>,
    retry: Duration,
    stuck: bool,
}

impl Memory {
    pub(crate) fn new(asked: Bytes) -> Self {
        Self { asked, actual: Bytes::ZERO, up: false, look: None, retry: RETRY_FIRST, stuck: false }
    }

    pub(crate) fn ask(&mut self, now: Duration, asked: Bytes) -> Option<Action> {
        if asked == self.asked {
            return None;
        }
        self.asked = asked;
        self.fresh(now);
        Some(Action::SetMemory(asked))
    }

    fn fresh(&mut self, now: Duration) {
        self.stuck = false;
        self.retry = RETRY_FIRST;
        self.look = (self.up && self.actual != self.asked).then(|| now + PATIENCE);
    }

    /// Until the guest is up nothing is expected of it.
    pub(crate) fn guest_is_up(&mut self, now: Duration) {
        self.up = true;
        self.fresh(now);
    }

    /// The guest runs again.
    pub(crate) fn restart(&mut self, now: Duration) {
        self.fresh(now);
    }

    pub(crate) fn observe(&mut self, now: Duration, actual: Bytes) {
        if actual != self.actual {
            self.actual = actual;
            if self.stuck && actual != self.asked {
                // The size changes again; the next look shows whether by enough.
                self.look = Some(now + PATIENCE);
            } else {
                self.fresh(now);
            }
        }
    }

    pub(crate) fn tend(&mut self, now: Duration) -> Option<Action> {
        if self.look.is_none_or(|at| at > now) {
            return None;
        }
        self.stuck = true;
        self.look = Some(now + self.retry);
        self.retry = (self.retry * 2).min(RETRY_LONGEST);
        Some(Action::SetMemory(self.asked))
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.look
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.actual == self.asked
    }

    pub(crate) fn actual(&self) -> Bytes {
        self.actual
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        let (asked, actual) = (self.asked, self.actual);
        (self.stuck && actual != asked).then(|| {
            if actual > asked {
                let message = format!("the guest has given memory back down to {actual}, not to {asked}");
                Problem { reason: ProblemReason::MemoryNotReleased, message }
            } else {
                let message = format!("the guest has taken memory up to {actual}, not to {asked}");
                Problem { reason: ProblemReason::MemoryNotTaken, message }
            }
        })
    }
}
