//! A work queue of a controller. A key is reconciled by one worker at a time; changes in the meantime cause one more reconcile after
//! that. Failures are requeued with backoff, at most a minute. There is at most one entry for each key.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::supervise::panic_of;

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

/// Work queue with one entry per key.
#[derive(Debug)]
pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    changed: Notify,
    panics: AtomicU64,
}

/// Result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; requeue after the duration, if any.
    Done(Option<Duration>),
    /// Failed; requeue with backoff.
    Failed,
    /// The object does not exist any more; the key is forgotten.
    Gone,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner { ready: VecDeque::new(), entries: HashMap::new(), timers: BTreeSet::new() };
        Self { inner: Mutex::new(inner), changed: Notify::new(), panics: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a key to be reconciled now.
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

    /// A reconcile of the key has ended.
    fn finish(&self, key: &K, outcome: Outcome) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(entry) = inner.entries.get_mut(key) else { return };
        let dirty = entry.state == State::Dirty;
        entry.state = State::Idle;
        let pause = match outcome {
            Outcome::Gone if !dirty => {
                if let Some(due) = entry.due {
                    inner.timers.remove(&(due, key.clone()));
                }
                inner.entries.remove(key);
                return;
            }
            Outcome::Gone => Some(Duration::ZERO),
            Outcome::Done(wake) => {
                entry.failures = 0;
                if dirty { Some(Duration::ZERO) } else { wake }
            }
            Outcome::Failed => {
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

    /// Reconciles the keys, up to `workers` (at least one) at a time. Never returns; when it is dropped, reconciles under way are
    /// aborted. A panic in a reconcile is a failure of that key alone.
    pub async fn serve<F>(&self, workers: usize, mut reconcile: impl FnMut(K) -> F)
    where
        K: Debug,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut working = JoinSet::new();
        // A task that panics returns nothing: its key is kept here.
        let mut keys = HashMap::new();
        loop {
            tokio::select! {
                key = self.next(), if working.len() < workers.max(1) => {
                    let task = working.spawn(reconcile(key.clone()));
                    keys.insert(task.id(), key);
                }
                Some(ended) = working.join_next_with_id() => {
                    let (task, outcome) = match ended {
                        Ok((task, outcome)) => (task, Ok(outcome)),
                        Err(error) => (error.id(), Err(error)),
                    };
                    let Some(key) = keys.remove(&task) else { continue };
                    let outcome = outcome.unwrap_or_else(|error| {
                        self.panics.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(?key, panic = panic_of(error), "a reconcile panicked; it is tried again");
                        Outcome::Failed
                    });
                    self.finish(&key, outcome);
                }
            }
        }
    }

    /// Reconciles that panicked since the start.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Keys that wait for a worker.
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
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time_and_again_if_it_changed() {
        let queue = Queue::new();
        queue.add(&1);
        queue.add(&1);
        assert_eq!(queue.next().await, 1);
        queue.add(&1);
        assert!(tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err());
        queue.finish(&1, Outcome::Done(None));
        assert_eq!(queue.next().await, 1);
        queue.finish(&1, Outcome::Done(None));
        assert!(tokio::time::timeout(Duration::from_secs(99), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_whose_reconcile_panics_is_requeued_with_backoff() {
        let queue = Arc::new(Queue::new());
        queue.add(&1);
        let started = Instant::now();
        let times = Arc::new(Mutex::new(Vec::new()));
        let (called, mut calls) = tokio::sync::watch::channel(0_usize);
        let reconcile = {
            let times = Arc::clone(&times);
            move |_| {
                times.lock().unwrap().push(started.elapsed().as_millis());
                called.send_modify(|calls| *calls += 1);
                let panics = *called.borrow() < 3;
                async move {
                    assert!(!panics, "planted");
                    Outcome::Done(None)
                }
            }
        };
        let serving = Arc::clone(&queue);
        let serving = tokio::spawn(async move { serving.serve(1, reconcile).await });
        let all = calls.wait_for(|calls| *calls >= 3);
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("the key is lost").unwrap();
        assert_eq!(*times.lock().unwrap(), [0, 100, 300]);
        // A later change finds it idle.
        queue.add(&1);
        let next = calls.wait_for(|calls| *calls >= 4);
        tokio::time::timeout(Duration::from_secs(60), next).await.expect("the key is stuck").unwrap();
        assert_eq!(queue.panics(), 2);
        serving.abort();
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
            queue.finish(&1, Outcome::Failed);
        }
        assert_eq!(pauses[..4], [0, 100, 200, 400]);
        assert_eq!(pauses[11], 60_000);
        queue.next().await;
        queue.finish(&1, Outcome::Done(Some(Duration::from_secs(7))));
        let start = Instant::now();
        queue.next().await;
        assert_eq!(start.elapsed(), Duration::from_secs(7));
        queue.finish(&1, Outcome::Gone);
        assert!(queue.lock().entries.is_empty() && queue.lock().timers.is_empty());
    }
}
