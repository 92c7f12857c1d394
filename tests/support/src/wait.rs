//! Waiting for a condition with a deadline. Tests wait for nothing else.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time until a condition must hold. It is long, because a failing test may take it and a passing one does not: computers that
/// run many tests at once give a test no CPU for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two evaluations of a condition.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `look` returns a value. With a paused clock of tokio the time is virtual.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, || what.to_owned(), look).await
}

/// [`eventually`] with a limit, and a message that is made when the limit has passed.
///
/// # Panics
/// After `limit`, with the message.
pub async fn eventually_within<T>(
    limit: Duration,
    what: impl Fn() -> String,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{}: not within {} s", what(), limit.as_secs_f64());
        sleep(PAUSE).await;
    }
}

/// [`eventually`] for tests without an async runtime.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub fn eventually_blocking<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "{}: not within {} s", what(), PATIENCE.as_secs());
        std::thread::sleep(PAUSE);
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
    #[should_panic(expected = "never: not within 3 s")]
    async fn a_condition_that_stays_false_fails_the_test() {
        eventually_within(Duration::from_secs(3), || "never".to_owned(), async || None::<()>).await;
    }
}
