//! Keys that need work. A key is worked on by one worker at a time; what happens meanwhile is one more turn after that.
//! Failures wait, longer each time, at most a minute. At most one entry for each key.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// First pause after a failure; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Ready,
    Running,
    /// To be run again when the worker is done.
    Dirty,
}

#[derive(Debug, Default)]
struct Entry {
    state: State,
    due: Option<Instant>,
    failures: u32,
}

#[derive(Debug)]
struct Inner<K> {
    ready: VecDeque<K>,
    entries: HashMap<K, Entry>,
    timers: BTreeSet<(Instant, K)>,
}

/// The queue.
#[derive(Debug)]
pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    changed: Notify,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Well; look again then, if ever.
    Done(Option<Duration>),
    /// Badly; look again after a pause.
    Failed,
    /// There is no such thing any more.
    Gone,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Nothing needs work.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner { ready: VecDeque::new(), entries: HashMap::new(), timers: BTreeSet::new() };
        Self { inner: Mutex::new(inner), changed: Notify::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key needs work now.
    pub fn add(&self, key: &K) {
        let mut inner = self.lock();
        inner.make_ready(key);
        drop(inner);
        self.changed.notify_one();
    }

    /// The next key; waits for one. Meant for one caller.
    async fn next(&self) -> K {
        loop {
            let next_timer = {
                let mut inner = self.lock();
                inner.run_timers(Instant::now());
                if let Some(key) = inner.ready.pop_front() {
                    inner.entries.entry(key.clone()).or_default().state = State::Running;
                    return key;
                }
                inner.timers.first().map(|(due, _)| *due)
            };
            match next_timer {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// A worker is done with the key.
    fn finish(&self, key: &K, turn: Turn) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(entry) = inner.entries.get_mut(key) else { return };
        let dirty = entry.state == State::Dirty;
        entry.state = State::Idle;
        let pause = match turn {
            Turn::Gone if !dirty => {
                if let Some(due) = entry.due {
                    inner.timers.remove(&(due, key.clone()));
                }
                inner.entries.remove(key);
                return;
            }
            Turn::Gone => Some(Duration::ZERO),
            Turn::Done(wake) => {
                entry.failures = 0;
                if dirty { Some(Duration::ZERO) } else { wake }
            }
            Turn::Failed => {
                let pause = pause(entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                // News may be the cure; but not at once, or two sides could keep each other busy.
                Some(if dirty { pause.min(FIRST_PAUSE) } else { pause })
            }
        };
        match pause {
            None => inner.disarm(key),
            Some(Duration::ZERO) => inner.make_ready(key),
            Some(pause) => inner.arm(key, Instant::now() + pause),
        }
        self.changed.notify_one();
    }

    /// Works on the keys, on so many at a time (at least one). Never returns; when it is dropped, so is all that is under way.
    pub async fn serve<F>(&self, places: usize, mut turn: impl FnMut(K) -> F)
    where
        K: Send + 'static,
        F: Future<Output = Turn> + Send + 'static,
    {
        let mut working = JoinSet::new();
        loop {
            tokio::select! {
                key = self.next(), if working.len() < places.max(1) => {
                    let turn = turn(key.clone());
                    working.spawn(async move { (key, turn.await) });
                }
                Some(result) = working.join_next() => match result {
                    Ok((key, turn)) => self.finish(&key, turn),
                    Err(error) => tracing::error!(%error, "a worker ended before its time"),
                },
            }
        }
    }

    /// Keys that wait to be worked on.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

impl<K: Clone + Eq + Hash + Ord> Inner<K> {
    fn make_ready(&mut self, key: &K) {
        self.disarm(key);
        let entry = self.entries.entry(key.clone()).or_default();
        match entry.state {
            State::Idle => {
                entry.state = State::Ready;
                self.ready.push_back(key.clone());
            }
            State::Running => entry.state = State::Dirty,
            State::Ready | State::Dirty => {}
        }
    }

    fn disarm(&mut self, key: &K) {
        if let Some(due) = self.entries.get_mut(key).and_then(|entry| entry.due.take()) {
            self.timers.remove(&(due, key.clone()));
        }
    }

    fn arm(&mut self, key: &K, at: Instant) {
        self.disarm(key);
        self.entries.entry(key.clone()).or_default().due = Some(at);
        self.timers.insert((at, key.clone()));
    }

    fn run_timers(&mut self, now: Instant) {
        while let Some((due, key)) = self.timers.first().cloned() {
            if due > now {
                return;
            }
            self.make_ready(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time_and_again_if_it_changed() {
        let queue = Queue::new();
        queue.add(&1);
        queue.add(&1);
        assert_eq!(queue.next().await, 1);
        queue.add(&1);
        assert!(tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err());
        queue.finish(&1, Turn::Done(None));
        assert_eq!(queue.next().await, 1);
        queue.finish(&1, Turn::Done(None));
        assert!(tokio::time::timeout(Duration::from_secs(99), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_timers_ring() {
        let queue = Queue::new();
        queue.add(&1);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            assert_eq!(queue.next().await, 1);
            pauses.push(start.elapsed().as_millis());
            queue.finish(&1, Turn::Failed);
        }
        assert_eq!(pauses[..4], [0, 100, 200, 400]);
        assert_eq!(pauses[11], 60_000);
        queue.next().await;
        queue.finish(&1, Turn::Done(Some(Duration::from_secs(7))));
        let start = Instant::now();
        queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(7));
        queue.finish(&1, Turn::Gone);
        assert!(queue.lock().entries.is_empty() && queue.lock().timers.is_empty());
    }
}
