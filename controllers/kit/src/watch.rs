//! A watch that is always restarted.

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::watcher::ExponentialBackoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::error::causes;

/// First pause after an error of a watch, without its random part; the same as that of client-go.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
/// Longest pause, without its random part. After an outage a watch fails twice more: it waits to connect, then its version is
/// [too old](https://kubernetes.io/docs/reference/using-api/api-concepts/#410-gone-responses), and two pauses are to take less than
/// 5 s.
const LONGEST_PAUSE: Duration = Duration::from_millis(1200);

/// Pauses between attempts of every watch of every service: from 0.8 s to 1.2 s, each increased by a random part of up to its own
/// length.
///
/// After any outage of an API server a service continues within 5 s. With the pauses of client-go, which grow to 30 s, it would take
/// up to as long again as the API server was away. Each watch of a node's services selects what is on that node, so that the lists
/// of many nodes stay small.
#[must_use]
pub fn retry() -> ExponentialBackoff {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    pauses.into()
}

/// Counts the watches that have listed once.
pub type Listed = watch::Sender<usize>;

/// Calls `on` for every object of a kind, now and at each change. After the first whole list, that is counted. A
/// cluster without an `optional` kind has no objects of it: no task waits for the list.
///
/// Errors of the server are retried with backoff. If this returns, the stream has ended, which it should not: run it as a task of
/// [`crate::supervise::Tasks`], which reports that.
pub async fn each<K>(
    what: &str,
    api: Api<K>,
    config: watcher::Config,
    (listed, optional): (&Listed, bool),
    mut on: impl FnMut(watcher::Event<K>),
) where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api, config).backoff(retry()).boxed();
    let mut first = true;
    loop {
        let whole = match events.try_next().await {
            Ok(Some(event)) => {
                let whole = matches!(event, watcher::Event::InitDone);
                on(event);
                whole
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(error = causes(&error), "{what} cannot be watched");
                optional && is_unknown(&error)
            }
        };
        if whole && std::mem::take(&mut first) {
            listed.send_modify(|count| *count += 1);
        }
    }
}

/// Whether the cluster does not have the kind.
fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_a_watch_stay_below_five_seconds_and_begin_again_after_a_success() {
        use kube::runtime::utils::Backoff as _;
        let mut pauses = retry();
        let all: Vec<_> = pauses.by_ref().take(1000).collect();
        assert_eq!(all.len(), 1000, "a watch is never given up");
        assert!(all.iter().all(|pause| (FIRST_PAUSE..=2 * LONGEST_PAUSE).contains(pause)), "{all:?}");
        assert!(all.iter().skip(2).all(|pause| *pause >= LONGEST_PAUSE), "{all:?}");
        let twice = |pair: &[Duration]| pair.iter().sum::<Duration>() < Duration::from_secs(5);
        assert!(all.windows(2).all(twice), "{all:?}");
        pauses.reset();
        assert!(pauses.next().is_some_and(|pause| pause <= 2 * FIRST_PAUSE));
    }
}
