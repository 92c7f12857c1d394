//! When what ended is started again. Pure.

use std::time::Duration;

use neonvm_types::guest::RestartPolicy;

/// First pause before a restart.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(10);
/// After a life this long the pauses start from the shortest again.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status, 0–255.
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// As a shell reports it: the code, or 128 and the signal.
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is started again after this pause.
    Restart(Duration),
    PowerOff,
}

/// The pause before the next restart: doubled each time, bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after a life of this length.
    pub fn after(&mut self, lived: Duration) -> Duration {
        if lived >= SETTLED {
            self.failures = 0;
        }
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

/// What follows the end of the workload.
pub fn decide(policy: RestartPolicy, exit: Exit, lived: Duration, backoff: &mut Backoff) -> Next {
    match policy {
        RestartPolicy::Never => Next::PowerOff,
        RestartPolicy::OnFailure if exit == Exit::Code(0) => Next::PowerOff,
        RestartPolicy::Always | RestartPolicy::OnFailure => Next::Restart(backoff.after(lived)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_policy_meets_every_end() {
        let pause = |policy, exit| decide(policy, exit, SETTLED, &mut Backoff::default());
        let again = Next::Restart(FIRST);
        for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(9)] {
            assert_eq!(pause(RestartPolicy::Always, exit), again);
            assert_eq!(pause(RestartPolicy::Never, exit), Next::PowerOff);
        }
        assert_eq!(pause(RestartPolicy::OnFailure, Exit::Code(0)), Next::PowerOff);
        assert_eq!(pause(RestartPolicy::OnFailure, Exit::Code(1)), again);
        assert_eq!(pause(RestartPolicy::OnFailure, Exit::Signal(15)), again);
        assert_eq!(Exit::Signal(9).status(), 137);
    }

    proptest! {
        #[test]
        fn pauses_grow_to_their_bound_and_start_again(lives in proptest::collection::vec(0_u64..9_999, 0..40)) {
            let mut backoff = Backoff::default();
            let mut last = Duration::ZERO;
            for life in lives {
                let pause = backoff.after(Duration::from_millis(life));
                prop_assert!((FIRST..=LONGEST).contains(&pause));
                prop_assert!(pause == LONGEST || pause > last);
                last = pause;
            }
            prop_assert_eq!(backoff.after(SETTLED), FIRST);
        }
    }
}
