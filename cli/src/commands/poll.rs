//! Reading again and again until something is so, with one backoff.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Result;

/// First pause between two reads.
const FIRST: Duration = Duration::from_millis(50);
/// Longest pause.
const LONGEST: Duration = Duration::from_millis(500);

/// Calls `look` until it returns something; returns nothing if that takes longer than `limit`.
///
/// # Errors
/// Those of `look`, at once.
pub(super) async fn until<T>(
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = Instant::now() + limit;
    let mut pause = FIRST;
    loop {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_what_was_found_or_at_the_deadline() {
        let mut reads = 0;
        let found = until(Duration::from_secs(60), async || {
            reads += 1;
            Ok((reads == 5).then_some("it"))
        });
        assert_eq!(found.await.unwrap(), Some("it"));
        let begun = Instant::now();
        assert_eq!(until(Duration::from_secs(3), async || Ok(None::<()>)).await.unwrap(), None);
        assert!(begun.elapsed() >= Duration::from_secs(3) && begun.elapsed() < Duration::from_secs(4));
    }
}
