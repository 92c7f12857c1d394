//! How fast a lease is renewed, released and taken over.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long others wait after the last sign of life of the leader: whole seconds, because a `Lease` has no others.
    pub duration: Duration,
    /// How long the leader tries to renew before it stops leading; shorter than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two tries; shorter than `renew_deadline`.
    pub retry: Duration,
}

/// Times that do not keep two replicas from leading at once, or end a lead for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The duration is not valid.
    #[error("the duration of a lease is {0:?}; use whole seconds, at least one")]
    Duration(Duration),
    /// The leader would stop leading only after another has taken over.
    #[error(
        "a leader gives up after {deadline:?}, and another takes over after {duration:?}; make the first shorter"
    )]
    Deadline {
        /// After which the leader stops leading.
        deadline: Duration,
        /// After which another takes over.
        duration: Duration,
    },
    /// One try that fails would be the last.
    #[error(
        "the pause between two tries is {retry:?}, and a leader gives up after {deadline:?}; make the first shorter"
    )]
    Retry {
        /// Between two tries.
        retry: Duration,
        /// After which the leader stops leading.
        deadline: Duration,
    },
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(10), renew_deadline: seconds(7), retry: seconds(2) }
    }
}

impl Times {
    /// For a program of which each node has one: 500 of them renew 100 times a second. Another takes over later than with the
    /// default, which matters only where a pod was deleted by force: one that ends gives its lease back, and one that starts again in
    /// its pod has the same identity.
    #[must_use]
    pub const fn of_each_node() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(12),
            retry: Duration::from_secs(5),
        }
    }

    /// Longest time from the end of a leader to the next one, if the API server responds at once. A leader that ends right after it
    /// has renewed is seen to have done so a pause later; the lease expires after its duration, and that is noticed a pause later.
    #[must_use]
    pub fn takeover(&self) -> Duration {
        self.duration + self.retry * 2
    }

    /// Whether they fit together.
    ///
    /// # Errors
    /// The first thing that does not, and what to change.
    pub fn check(&self) -> Result<(), Invalid> {
        let Self { duration, renew_deadline: deadline, retry } = *self;
        if duration < Duration::from_secs(1) || duration.subsec_nanos() != 0 {
            return Err(Invalid::Duration(duration));
        }
        if deadline >= duration {
            return Err(Invalid::Deadline { deadline, duration });
        }
        if retry.is_zero() || retry >= deadline {
            return Err(Invalid::Retry { retry, deadline });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(duration: u64, deadline: u64, retry: u64) -> Times {
        let millis = Duration::from_millis;
        Times { duration: millis(duration), renew_deadline: millis(deadline), retry: millis(retry) }
    }

    #[test]
    fn another_leads_within_fifteen_seconds() {
        assert_eq!((Times::default().check(), Times::of_each_node().check()), (Ok(()), Ok(())));
        assert!(Times::default().takeover() <= Duration::from_secs(15));
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused() {
        for (bad, word) in [
            (times(500, 300, 100), "whole seconds"),
            (times(2500, 300, 100), "whole seconds"),
            (times(5000, 5000, 100), "takes over"),
            (times(5000, 4000, 4000), "pause"),
            (times(5000, 4000, 0), "pause"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
