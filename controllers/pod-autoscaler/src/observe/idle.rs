//! Connections that endpoints keep open from one reading to the next: a new one costs several times what a reading does.
//!
//! One for each endpoint, so many in all. When there is no room a newcomer is closed: in a sweep over more endpoints than
//! there are places, keeping the newest would keep none long enough to be used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::Endpoint;

/// Most connections that are kept, each with half a KiB here.
const MOST: u64 = 32_768;
/// Files for all else: connections to the API server, requests for health and metrics.
const OTHERS: u64 = 1_024;
/// Time after which one that was not used is closed; longer than the longest period of an object.
const LONGEST: Duration = Duration::from_secs(330);
/// Time between two looks for those.
const LOOK: Duration = Duration::from_secs(60);

/// A connection that the other side may have closed while it was idle.
pub(crate) trait IdleStream {
    /// Whether the peer has neither closed it nor sent anything.
    fn is_silent(&self) -> bool;
}

impl IdleStream for tokio::net::TcpStream {
    fn is_silent(&self) -> bool {
        let mut byte = [0];
        self.try_read(&mut byte).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl<S: IdleStream> IdleStream for tokio_rustls::client::TlsStream<S> {
    fn is_silent(&self) -> bool {
        self.get_ref().0.is_silent()
    }
}

/// Room for connections, shared by the parts that keep some.
#[derive(Debug)]
pub(crate) struct Room(AtomicUsize);

impl Room {
    /// For so many.
    pub(crate) const fn new(places: usize) -> Self {
        Self(AtomicUsize::new(places))
    }

    /// Takes a place, if there is one.
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |places| places.checked_sub(1)).is_ok()
    }

    fn give(&self, places: usize) {
        self.0.fetch_add(places, Ordering::Relaxed);
    }
}

/// Connections that wait to be used again.
#[derive(Debug)]
pub(crate) struct Idle<S> {
    inner: Mutex<Inner<S>>,
    most: usize,
    room: Arc<Room>,
}

#[derive(Debug)]
struct Inner<S> {
    kept: HashMap<Endpoint, (S, Instant)>,
    looked: Instant,
}

impl<S: IdleStream> Idle<S> {
    /// At most `most` of them, and no more than there is room.
    pub(crate) fn new(most: usize, room: Arc<Room>) -> Self {
        let inner = Inner { kept: HashMap::new(), looked: Instant::now() };
        Self { inner: Mutex::new(inner), most, room }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one to this endpoint, if it is still of use.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Option<S> {
        let (stream, since) = self.lock().kept.remove(endpoint)?;
        self.room.give(1);
        (since.elapsed() < LONGEST && stream.is_silent()).then_some(stream)
    }

    /// Keeps one for the next reading.
    pub(crate) fn put(&self, endpoint: &Endpoint, stream: S) {
        let now = Instant::now();
        let mut inner = self.lock();
        if now.duration_since(inner.looked) >= LOOK {
            inner.looked = now;
            let before = inner.kept.len();
            let of_use =
                |(stream, since): &(S, Instant)| now.duration_since(*since) < LONGEST && stream.is_silent();
            inner.kept.retain(|_, kept| of_use(kept));
            self.room.give(before - inner.kept.len());
        }
        if let Some(kept) = inner.kept.get_mut(endpoint) {
            *kept = (stream, now);
        } else if inner.kept.len() < self.most && self.room.take() {
            inner.kept.insert(endpoint.clone(), (stream, now));
        }
    }
}

/// How many connections may be kept when so many endpoints are read at the same time: what the process may open, less those
/// readings and all else. The process has taken all that the administrator allows.
pub(crate) fn places(reading: usize) -> usize {
    free(getrlimit(Resource::Nofile).current, reading)
}

/// Of so many files; `None`: there is no limit.
fn free(files: Option<u64>, reading: usize) -> usize {
    let taken = OTHERS.saturating_add(u64::try_from(reading).unwrap_or(u64::MAX));
    // With a small limit no more than half, so that those that are read and all else have the other.
    let free = files.map_or(MOST, |files| files.saturating_sub(taken).max(files / 2));
    usize::try_from(free.min(MOST)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(bool);

    impl IdleStream for Line {
        fn is_silent(&self) -> bool {
            self.0
        }
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint { named: false, tls: false, host: "a".to_owned(), port, path: "/".to_owned() }
    }

    fn idle(most: usize, places: usize) -> Idle<Line> {
        Idle::new(most, Arc::new(Room::new(places)))
    }

    #[test]
    fn the_kept_are_used_once_and_newcomers_wait_for_room() {
        for (most, places) in [(2, 100), (100, 2)] {
            let idle = idle(most, places);
            for port in 1..=3 {
                idle.put(&endpoint(port), Line(true));
            }
            assert!(idle.take(&endpoint(3)).is_none());
            assert!(idle.take(&endpoint(1)).is_some() && idle.take(&endpoint(1)).is_none());
            idle.put(&endpoint(3), Line(true));
            // One in the place of another to the same endpoint takes no room.
            idle.put(&endpoint(3), Line(true));
            assert!(idle.take(&endpoint(3)).is_some() && idle.take(&endpoint(2)).is_some());
            assert_eq!(idle.room.0.load(Ordering::Relaxed), places);
        }
    }

    #[test]
    fn room_is_shared() {
        let room = Arc::new(Room::new(1));
        let (one, other) = (Idle::new(9, Arc::clone(&room)), Idle::new(9, room));
        one.put(&endpoint(1), Line(true));
        other.put(&endpoint(1), Line(true));
        assert!(other.take(&endpoint(1)).is_none() && one.take(&endpoint(1)).is_some());
        other.put(&endpoint(1), Line(true));
        assert!(other.take(&endpoint(1)).is_some());
    }

    #[test]
    fn files_are_left_for_all_else() {
        assert_eq!(free(Some(20_000), 512), 18_464);
        // Too few for all: half of them.
        assert_eq!(free(Some(1_024), 512), 512);
        assert_eq!((free(Some(1 << 20), 512), free(None, 512)), (32_768, 32_768));
    }

    #[test]
    fn what_the_endpoint_closed_is_not_used() {
        let idle = idle(2, 2);
        idle.put(&endpoint(1), Line(false));
        assert!(idle.take(&endpoint(1)).is_none());
        assert_eq!(idle.room.0.load(Ordering::Relaxed), 2);
    }
}
