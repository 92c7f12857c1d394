//! Connections that endpoints keep open from one reading to the next: a new one costs several times what a reading does.
//!
//! One for each endpoint, so many in all. When there is no room a newcomer is closed: in a sweep over more endpoints than
//! there are places, keeping the newest would keep none long enough to be used.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::http::Endpoint;

/// Most connections that are kept, each with half a KiB here.
const MOST: u64 = 32_768;
/// Time after which one that was not used is closed; longer than the longest period of an object.
const LONGEST: Duration = Duration::from_secs(330);
/// Time between two looks for those.
const LOOK: Duration = Duration::from_secs(60);

/// A connection that may have been closed by the other side while nobody read it.
pub(crate) trait Kept {
    /// Whether there is silence: neither an end nor something that nobody asked for.
    fn is_silent(&self) -> bool;
}

impl Kept for tokio::net::TcpStream {
    fn is_silent(&self) -> bool {
        let mut byte = [0];
        self.try_read(&mut byte).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl<S: Kept> Kept for tokio_rustls::client::TlsStream<S> {
    fn is_silent(&self) -> bool {
        self.get_ref().0.is_silent()
    }
}

/// Connections that wait to be used again.
#[derive(Debug)]
pub(crate) struct Idle<S> {
    inner: Mutex<Inner<S>>,
    most: usize,
}

#[derive(Debug)]
struct Inner<S> {
    kept: HashMap<Endpoint, (S, Instant)>,
    looked: Instant,
}

impl<S: Kept> Idle<S> {
    /// Room for `most` of them.
    pub(crate) fn new(most: usize) -> Self {
        let inner = Inner { kept: HashMap::new(), looked: Instant::now() };
        Self { inner: Mutex::new(inner), most }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one to this endpoint, if it is still of use.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Option<S> {
        let (stream, since) = self.lock().kept.remove(endpoint)?;
        (since.elapsed() < LONGEST && stream.is_silent()).then_some(stream)
    }

    /// Keeps one for the next reading.
    pub(crate) fn put(&self, endpoint: &Endpoint, stream: S) {
        let now = Instant::now();
        let mut inner = self.lock();
        if now.duration_since(inner.looked) >= LOOK {
            inner.looked = now;
            inner
                .kept
                .retain(|_, (stream, since)| now.duration_since(*since) < LONGEST && stream.is_silent());
        }
        if inner.kept.len() < self.most || inner.kept.contains_key(endpoint) {
            inner.kept.insert(endpoint.clone(), (stream, now));
        }
    }
}

/// How many connections may be kept: half of the files that the process may open, so that all else has room. What the
/// administrator allows is taken whole first, because usual soft limits are meant for programs that use `select`.
pub(crate) fn places() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    usize::try_from(limit.current.map_or(MOST, |files| (files / 2).min(MOST))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(bool);

    impl Kept for Line {
        fn is_silent(&self) -> bool {
            self.0
        }
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint { tls: false, host: "a".to_owned(), port, path: "/".to_owned() }
    }

    #[test]
    fn the_kept_are_used_once_and_newcomers_wait_for_room() {
        let idle = Idle::new(2);
        for port in 1..=3 {
            idle.put(&endpoint(port), Line(true));
        }
        assert!(idle.take(&endpoint(3)).is_none());
        assert!(idle.take(&endpoint(1)).is_some() && idle.take(&endpoint(1)).is_none());
        idle.put(&endpoint(3), Line(true));
        assert!(idle.take(&endpoint(3)).is_some() && idle.take(&endpoint(2)).is_some());
    }

    #[test]
    fn what_the_endpoint_closed_is_not_used() {
        let idle = Idle::new(2);
        idle.put(&endpoint(1), Line(false));
        assert!(idle.take(&endpoint(1)).is_none());
    }
}
