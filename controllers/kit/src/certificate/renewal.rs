//! When a certificate is renewed: at two thirds of its life, a little earlier by an amount that differs for each
//! certificate, and again with backoff until it succeeds.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::validity::Validity;

/// Pauses between attempts: the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The clock is checked this often: timers are suspended while a computer sleeps, certificates still expire.
const LOOK: Duration = Duration::from_secs(60);

/// Renews a certificate for as long as `once` makes another one and puts it to use; returns when `once` returns none. `clock`
/// returns the time in seconds since 1970.
pub async fn renew<E, F>(mut validity: Validity, clock: impl Fn() -> i64, mut once: impl FnMut() -> F)
where
    E: Display,
    F: Future<Output = Result<Option<Validity>, E>>,
{
    loop {
        loop {
            let left = validity.renewal().saturating_sub(clock());
            let Ok(left @ 1..) = u64::try_from(left) else { break };
            sleep(Duration::from_secs(left).min(LOOK)).await;
        }
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        validity = loop {
            let error = match once().await {
                Ok(Some(next)) => break next,
                Ok(None) => return,
                Err(error) => error,
            };
            let left = validity.until.saturating_sub(clock());
            tracing::warn!(%error, left, "a certificate could not be renewed; it is tried again");
            sleep(backoff.pause().min(longest_pause(left))).await;
        };
        // One that is due at once, by a clock that is far off, must not be requested without a pause.
        sleep(PAUSES.0).await;
    }
}

/// Longest pause while a certificate has `left` seconds to live: many attempts fit into them, and one that has ended is renewed soon
/// after the API server is back.
fn longest_pause(left: i64) -> Duration {
    Duration::from_secs(u64::try_from(left / 60).unwrap_or(0)).max(PAUSES.0 * 2)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;

    proptest! {
        #[test]
        fn renewals_are_spread_before_two_thirds(from in -1_000_i64..1 << 33, life in 0_i64..1 << 30, spread: u8) {
            let validity = Validity { from, until: from + life, spread };
            let part = validity.renewal() - from;
            prop_assert!(part <= life / 3 * 2);
            prop_assert!(part >= life / 3 * 2 - life / 10);
            prop_assert!(part * 2 >= life - 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_renewed_before_its_end_although_attempts_fail() {
        let started = Instant::now();
        let clock = move || i64::try_from(started.elapsed().as_secs()).unwrap();
        let made = RefCell::new(Vec::new());
        let mut attempts = 0;
        let first = Validity { from: 0, until: 900, spread: 128 };
        let renewing = renew(first, clock, || {
            attempts += 1;
            if attempts % 3 != 0 {
                return ready(Err("not now"));
            }
            let now = clock();
            made.borrow_mut().push(now);
            let next = Validity { from: now, until: now + 900, spread: 0 };
            ready(Ok((made.borrow().len() < 4).then_some(next)))
        });
        renewing.await;
        let made = made.into_inner();
        // Two failures cost one and two seconds; a pause of one follows each renewal.
        assert_eq!(made, [558, 1161, 1764, 2367]);
    }

    /// The API server was away for a day: the certificate has ended, and is renewed within seconds of its return.
    #[tokio::test(start_paused = true)]
    async fn an_ended_certificate_is_renewed_soon_after_the_api_server_is_back() {
        let started = Instant::now();
        let clock = move || i64::try_from(started.elapsed().as_secs()).unwrap();
        renew(Validity { from: 0, until: 3600, spread: 0 }, clock, || {
            ready(if clock() < 86_400 { Err("away") } else { Ok(None) })
        })
        .await;
        assert!(clock() <= 86_402, "{}", clock());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_is_noticed() {
        let started = Instant::now();
        let sleeps = RefCell::new(false);
        // The computer sleeps for a day after ten minutes.
        let clock = || {
            let awake = i64::try_from(started.elapsed().as_secs()).unwrap();
            if awake >= 600 {
                sleeps.replace(true);
            }
            awake + if *sleeps.borrow() { 86_400 } else { 0 }
        };
        let first = Validity { from: 0, until: 43_200, spread: 0 };
        renew(first, clock, || ready(Ok::<_, &str>(None))).await;
        assert!(started.elapsed() <= Duration::from_secs(600) + LOOK);
    }
}
