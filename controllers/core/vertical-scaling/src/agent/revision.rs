//! Revisions: numbers of decisions, and how long each took to become visible.

use std::{collections::VecDeque, time::Duration};

use neonvm_types::{Revision, RevisionFlags};
use serde::Serialize;

/// Gives out revisions and remembers when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RevisionSource {
    /// The last value given out.
    last: i64,
    /// When the last ones were given out; the newest at the end.
    pending: VecDeque<(i64, RevisionFlags, Duration)>,
}

/// A value that was observed but never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {0} was never issued")]
pub struct UnknownRevision(pub i64);

impl RevisionSource {
    /// Most revisions that wait to be observed; the oldest is forgotten first.
    pub const MOST_PENDING: usize = 100;

    /// Starts after `start`: what the VM's status shows, or 0.
    #[must_use]
    pub fn new(start: i64) -> Self {
        Self { last: start.max(0), pending: VecDeque::new() }
    }

    #[must_use = "the value is used up"]
    pub fn advance(&mut self, now: Duration, flags: RevisionFlags) -> Revision {
        self.last = self.last.saturating_add(1);
        if self.pending.len() >= Self::MOST_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((self.last, flags, now));
        Revision { value: self.last, flags }
    }

    /// Records that the VM shows `value`. Returns how long that took and the direction of the change, once for each value; older
    /// values are forgotten with it.
    ///
    /// # Errors
    /// [`UnknownRevision`] if the value was never given out.
    pub fn observe(
        &mut self,
        now: Duration,
        value: i64,
    ) -> Result<Option<(Duration, RevisionFlags)>, UnknownRevision> {
        if value > self.last {
            return Err(UnknownRevision(value));
        }
        let found = self.pending.iter().find(|(v, ..)| *v == value).copied();
        if found.is_some() {
            self.pending.retain(|(v, ..)| *v > value);
        }
        Ok(found.map(|(_, flags, at)| (now.saturating_sub(at), flags)))
    }

    /// Continues after `value`, which another agent must have issued.
    pub fn skip_to(&mut self, value: i64) {
        self.last = self.last.max(value);
    }
}

/// A revision on its way through a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stamped {
    /// Revision as it was sent to the peer.
    pub revision: Revision,
    /// When it was sent there.
    pub at: Duration,
}

/// Advances `current` to `target` if that is newer, and returns how long that took.
pub fn propagate(
    now: Duration,
    target: Stamped,
    current: &mut Revision,
) -> Option<(Duration, RevisionFlags)> {
    if current.value >= target.revision.value {
        return None;
    }
    *current = target.revision;
    Some((now.saturating_sub(target.at), target.revision.flags))
}
