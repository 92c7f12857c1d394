//! Waiting for a condition with a deadline. Tests wait for nothing else.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time until a condition must hold. It is long, because a failing test may take it and a passing one does not: computers that
/// run many tests at once give a test no CPU for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two evaluations of a condition.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two evaluations without a runtime.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What a look at a condition results in: `true`, `Some` and `Ok` end the wait. The text of an `Err` is part of the message when the
/// condition is not met in time.
pub trait Look {
    /// What a condition that is met evaluates to.
    type Found;

    /// # Errors
    /// If the condition is not met: what there is instead, or nothing.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(String::new)
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| format!("; last: {error}"))
    }
}

/// Waits until a condition is met; what it evaluates to. With a paused clock of tokio the time is virtual.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    eventually_within(PATIENCE, || what.to_owned(), look).await
}

/// [`eventually`] with a limit, and a message that is made when the limit has passed.
///
/// # Panics
/// After `limit`, with the message.
pub async fn eventually_within<L: Look>(
    limit: Duration,
    what: impl Fn() -> String,
    mut look: impl AsyncFnMut() -> L,
) -> L::Found {
    let deadline = Instant::now() + limit;
    loop {
        match look().await.found() {
            Ok(found) => return found,
            Err(last) => {
                assert!(Instant::now() < deadline, "{}: not within {} s{last}", what(), limit.as_secs_f64());
            }
        }
        sleep(PAUSE).await;
    }
}

/// [`eventually`] for tests without an async runtime, with a message that is made when the time has passed.
///
/// # Panics
/// After [`PATIENCE`], with the message.
pub fn eventually_blocking<L: Look>(what: impl Fn() -> String, look: impl FnMut() -> L) -> L::Found {
    eventually_blocking_within(PATIENCE, what, look)
}

/// [`eventually_blocking`] with a limit. The pauses grow, because a look may start a process.
///
/// # Panics
/// After `limit`, with the message.
pub fn eventually_blocking_within<L: Look>(
    limit: Duration,
    what: impl Fn() -> String,
    mut look: impl FnMut() -> L,
) -> L::Found {
    let deadline = std::time::Instant::now() + limit;
    let mut pause = PAUSE;
    loop {
        let last = match look().found() {
            Ok(found) => return found,
            Err(last) => last,
        };
        let in_time = std::time::Instant::now() < deadline;
        assert!(in_time, "{}: not within {} s{last}", what(), limit.as_secs_f64());
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_becomes_true_ends_the_wait() {
        let start = Instant::now();
        let found = eventually("three looks", async || (start.elapsed() >= PAUSE * 2).then_some(7)).await;
        assert_eq!(found, 7);
        assert_eq!(start.elapsed(), PAUSE * 2);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "never: not within 3 s; last: 2 pods")]
    async fn a_condition_that_stays_false_fails_the_test_with_what_there_is() {
        let look = async || Err::<(), _>("2 pods");
        eventually_within(Duration::from_secs(3), || "never".to_owned(), look).await;
    }
}
