//! What the parts of the service share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use neonvm_core_scheduling::permits::{Event, State};
use neonvm_kit::supervise::Health;
use tokio::sync::{Notify, RwLock};

use crate::config::Config;
use crate::metrics::Metrics;

/// What the parts of the service share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    /// Whether all background tasks run.
    pub(crate) health: Health,
    state: Mutex<State>,
    start: Instant,
    /// Whether we hold the lease. Nothing is permitted and nothing is written without it.
    leading: AtomicBool,
    /// Whether the process begins to stop.
    stopping: AtomicBool,
    /// Until when the lease is certainly ours, in milliseconds from `start`: a process that was suspended for a while
    /// finds this time passed before it reads that another leads.
    valid_until: AtomicU64,
    /// Milliseconds from `start` to the last thing that was taken in, plus one; 0: nothing yet.
    last_event: AtomicU64,
    /// Read-locked by each binding in progress; write-locked to wait for all of them.
    pub(crate) binding: RwLock<()>,
    /// A waiting pod may find a node now.
    pub(crate) place: Notify,
    /// There is something to write, or a time to wait for.
    pub(crate) write: Notify,
}

impl Shared {
    pub(crate) fn new(config: Config, client: Client) -> Self {
        Self {
            state: Mutex::new(State::new(config.settings.clone())),
            config,
            client,
            metrics: Metrics::default(),
            health: Health::default(),
            start: Instant::now(),
            leading: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            valid_until: AtomicU64::new(0),
            last_event: AtomicU64::new(0),
            binding: RwLock::new(()),
            place: Notify::new(),
            write: Notify::new(),
        }
    }

    /// Time as the state counts it.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The point in time at which the state's clock shows this.
    pub(crate) fn instant(&self, at: Duration) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.start + at)
    }

    /// The state. A panic while it is locked leaves it consistent: each change is made in one piece.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire) && millis(self.now()) < self.valid_until.load(Ordering::Acquire)
    }

    /// The lease was renewed by a request that began at `since`.
    pub(crate) fn renewed(&self, since: Duration) {
        self.valid_until.store(millis(since + self.config.lease.duration), Ordering::Release);
    }

    pub(crate) fn lead(&self, leading: bool) {
        self.leading.store(leading, Ordering::Release);
    }

    /// The process begins to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether we lead and have listed all nodes and pods.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_leading() && self.state().is_listed()
    }

    /// Applies an event to the state and wakes the tasks that have something to do because of it.
    pub(crate) fn step(&self, event: Event) {
        let now = self.now();
        let (place, write) = {
            let mut state = self.state();
            (state.step(now, event), state.wake_at().is_some())
        };
        self.last_event.store(millis(now).saturating_add(1), Ordering::Relaxed);
        if place {
            self.place.notify_one();
        }
        if write {
            self.write.notify_one();
        }
    }

    /// Milliseconds since something was taken in.
    pub(crate) fn last_event_ms(&self) -> Option<u64> {
        let last = self.last_event.load(Ordering::Relaxed).checked_sub(1)?;
        Some(millis(self.now()).saturating_sub(last))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
