//! One connection to each runner: its status as a stream. A lost connection is made again, later and later. Thousands of them
//! are open at once, so each holds little: one task, small buffers.

mod call;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use neonvm_core_lifecycle::RunnerView;
use neonvm_types::runner_protocol::{RunnerStatus, SizeRequest, server_name};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::authority::Authority;
use crate::cache::Key;
use crate::context::now;
use crate::queue::Queue;

/// First pause before a connection is made again; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Connections being made at the same time.
const CONNECTING: usize = 64;

/// Where a runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// UID of the machine.
    pub(crate) vm: String,
    /// UID of the pod.
    pub(crate) pod: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Target {
    /// `None` if the pod's address is none.
    pub(crate) fn new(vm: &str, pod: &str, ip: &str, port: u16) -> Option<Self> {
        let ip: IpAddr = ip.parse().ok()?;
        Some(Self { vm: vm.to_owned(), pod: pod.to_owned(), address: SocketAddr::new(ip, port) })
    }

    fn name(&self) -> String {
        server_name(&self.vm)
    }
}

#[derive(Debug)]
struct Link {
    target: Target,
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Box<RunnerStatus>>,
    lost_since: Option<neonvm_types::Timestamp>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Links {
    links: Mutex<HashMap<Key, Link>>,
    queue: Arc<Queue<Key>>,
    authority: Arc<Authority>,
    connecting: Arc<Semaphore>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    pub(crate) fn new(queue: Arc<Queue<Key>>, authority: Arc<Authority>) -> Self {
        let connecting = Arc::new(Semaphore::new(CONNECTING));
        Self { links: Mutex::default(), queue, authority, connecting }
    }

    /// Listens to this runner; if another was listened to under the key, no longer to that.
    pub(crate) fn open(&self, key: &Key, target: Target) {
        let mut links = lock(&self.links);
        if links.get(key).is_some_and(|link| link.target == target) {
            return;
        }
        let seen = Arc::<Mutex<Seen>>::default();
        let listener = Listener {
            key: Arc::clone(key),
            target: target.clone(),
            seen: Arc::clone(&seen),
            queue: Arc::clone(&self.queue),
            authority: Arc::clone(&self.authority),
            connecting: Arc::clone(&self.connecting),
        };
        let task = tokio::spawn(listener.run()).abort_handle();
        links.insert(Arc::clone(key), Link { target, seen, task });
    }

    /// Listens to this machine's runner no longer.
    pub(crate) fn close(&self, key: &Key) {
        lock(&self.links).remove(key);
    }

    /// What is known of the runner in the pod with this UID.
    pub(crate) fn view(&self, key: &Key, pod: &str) -> RunnerView {
        let links = lock(&self.links);
        let Some(link) = links.get(key).filter(|link| link.target.pod == pod) else {
            return RunnerView::Unknown;
        };
        let seen = lock(&link.seen);
        match (seen.lost_since, &seen.last) {
            (Some(since), last) => RunnerView::Unreachable { since, last: last.clone() },
            (None, Some(status)) => RunnerView::Seen(status.clone()),
            (None, None) => RunnerView::Unknown,
        }
    }

    /// The last words of the runner that was listened to last, whatever its pod is now.
    pub(crate) fn last_view(&self, key: &Key) -> RunnerView {
        let pod = lock(&self.links).get(key).map(|link| link.target.pod.clone());
        pod.map_or(RunnerView::Unknown, |pod| self.view(key, &pod))
    }

    /// Asks the runner for a size.
    pub(crate) async fn set_size(&self, key: &Key, size: SizeRequest) -> Result<(), String> {
        let found = lock(&self.links).get(key).map(|link| (link.target.clone(), Arc::clone(&link.seen)));
        let Some((target, seen)) = found else { return Err("the runner is not connected".to_owned()) };
        let status = call::put_size(&target, self.authority.client(), size).await?;
        accept(&seen, status);
        Ok(())
    }
}

/// Keeps a document unless a newer one is known. Whether it is news.
fn accept(seen: &Mutex<Seen>, status: RunnerStatus) -> bool {
    let mut seen = lock(seen);
    let lost = seen.lost_since.take().is_some();
    match &seen.last {
        Some(last) if last.sequence >= status.sequence => lost,
        _ => {
            seen.last = Some(Box::new(status));
            true
        }
    }
}

struct Listener {
    key: Key,
    target: Target,
    seen: Arc<Mutex<Seen>>,
    queue: Arc<Queue<Key>>,
    authority: Arc<Authority>,
    connecting: Arc<Semaphore>,
}

impl Listener {
    async fn run(self) {
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            let result = {
                let (seen, queue, key) = (&self.seen, &self.queue, &self.key);
                call::listen(&self.target, self.authority.client(), &self.connecting, |status| {
                    let ended = status.exit.is_some();
                    if accept(seen, status) {
                        queue.add(key);
                    }
                    !ended
                })
                .await
            };
            if result == Ok(()) {
                // The last document was read: there will be no more.
                return;
            }
            if let Err(error) = &result {
                tracing::debug!(vm = %self.key, %error, "the runner's stream ended");
            }
            failures = if started.elapsed() > LONGEST_PAUSE { 0 } else { failures.saturating_add(1) };
            self.lost();
            tokio::time::sleep(self.pause(failures)).await;
        }
    }

    fn lost(&self) {
        let mut seen = lock(&self.seen);
        if seen.lost_since.is_none() {
            seen.lost_since = Some(now());
            drop(seen);
            self.queue.add(&self.key);
        }
    }

    /// Doubling, with up to a quarter more so that a thousand links do not move in step.
    fn pause(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(9)).min(LONGEST_PAUSE);
        let spread =
            self.target.pod.bytes().fold(failures, |sum, byte| sum.wrapping_mul(31) ^ u32::from(byte));
        pause + pause * (spread % 256) / 1024
    }
}
