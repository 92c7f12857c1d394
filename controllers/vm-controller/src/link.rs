//! One connection to each runner: its status as a stream. A lost connection is made again, later and later. Thousands
//! of them are open at once, so each holds little: one task, small buffers. A VM in migration has two runners.

mod call;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use neonvm_core_vm_lifecycle::{PodView, RunnerView};
use neonvm_types::runner_protocol::{
    DISKS_PATH, DiskRequest, LIMITS_PATH, LimitRequest, LimitsByDisk, PAUSE_PATH, PauseRequest, RunnerStatus,
    SIZE_PATH, SUSPEND_PATH, SizeRequest, SuspendRequest, server_name,
};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use neonvm_kit::queue::Queue;

use crate::authority::Authority;
use crate::cache::Key;
use crate::clock::now;

pub(crate) use call::Refusal;

/// First pause before a connection is made again; doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Connections being made at the same time.
const CONNECTING: usize = 64;

/// Where a runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) vm: String,
    pub(crate) pod: String,
    /// Name of the pod.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Target {
    /// `None` if the pod's address is none.
    pub(crate) fn new(vm: &str, pod: &PodView, port: u16) -> Option<Self> {
        let ip: IpAddr = pod.ip.parse().ok()?;
        let address = SocketAddr::new(ip, port);
        Some(Self { vm: vm.to_owned(), pod: pod.uid.clone(), name: pod.name.clone(), address })
    }

    fn host(&self) -> String {
        server_name(&self.vm)
    }
}

#[derive(Debug)]
struct Link {
    target: Target,
    seen: Arc<Mutex<RunnerReports>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct RunnerReports {
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
    links: Mutex<HashMap<Key, Vec<Link>>>,
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

    /// Listens to this runner.
    pub(crate) fn open(&self, key: &Key, target: Target) {
        let mut links = lock(&self.links);
        let links = links.entry(Arc::clone(key)).or_default();
        if links.iter().any(|link| link.target == target) {
            return;
        }
        links.retain(|link| link.target.name != target.name);
        let seen = Arc::<Mutex<RunnerReports>>::default();
        let listener = Listener {
            key: Arc::clone(key),
            target: target.clone(),
            seen: Arc::clone(&seen),
            queue: Arc::clone(&self.queue),
            authority: Arc::clone(&self.authority),
            connecting: Arc::clone(&self.connecting),
        };
        let task = tokio::spawn(listener.run()).abort_handle();
        links.push(Link { target, seen, task });
    }

    /// Listens to this machine's runners no longer.
    pub(crate) fn close(&self, key: &Key) {
        lock(&self.links).remove(key);
    }

    /// Listens only to the VM's runners in the pods with these names.
    pub(crate) fn retain(&self, key: &Key, keep: impl Fn(&str) -> bool) {
        let mut links = lock(&self.links);
        let Some(own) = links.get_mut(key) else { return };
        own.retain(|link| keep(&link.target.name));
        if own.is_empty() {
            links.remove(key);
        }
    }

    /// The last reported state of the runner in the pod with this UID.
    pub(crate) fn view(&self, key: &Key, pod: &str) -> RunnerView {
        self.find(key, |target| target.pod == pod).map_or(RunnerView::Unknown, |(_, seen)| view(&seen))
    }

    /// The last report of the runner in the pod with this name, whatever that pod is now.
    pub(crate) fn last_view(&self, key: &Key, pod: &str) -> RunnerView {
        self.find(key, |target| target.name == pod).map_or(RunnerView::Unknown, |(_, seen)| view(&seen))
    }

    fn find(&self, key: &Key, is: impl Fn(&Target) -> bool) -> Option<(Target, Arc<Mutex<RunnerReports>>)> {
        let links = lock(&self.links);
        let link = links.get(key)?.iter().find(|link| is(&link.target))?;
        Some((link.target.clone(), Arc::clone(&link.seen)))
    }

    pub(crate) async fn set_size(&self, key: &Key, pod: &str, size: SizeRequest) -> Result<(), String> {
        let body = serde_json::to_vec(&size).map_err(|error| error.to_string())?;
        let answered = self.ask(key, |target| target.name == pod, (Method::PUT, SIZE_PATH), body).await;
        answered.map_err(|refusal| match refusal.status {
            Some(status) => format!("the runner refused the size ({status}): {}", refusal.message),
            None => refusal.message,
        })
    }

    /// Requests from the runner in the pod with this name that a disk grows with its volume.
    pub(crate) async fn grow_disk(&self, key: &Key, pod: &str, request: &DiskRequest) -> Result<(), String> {
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        let answered = self.ask(key, |target| target.name == pod, (Method::PUT, DISKS_PATH), body).await;
        answered.map_err(|refusal| match refusal.status {
            Some(status) => format!("the runner refused the disk's size ({status}): {}", refusal.message),
            None => refusal.message,
        })
    }

    /// Requests from the runner in the pod with this name that disks have these limits, and no others.
    pub(crate) async fn limit_disks(
        &self,
        key: &Key,
        pod: &str,
        limits: &LimitsByDisk,
    ) -> Result<(), String> {
        let body = serde_json::to_vec(&LimitRequest { limits: limits.clone() });
        let body = body.map_err(|error| error.to_string())?;
        let answered = self.ask(key, |target| target.name == pod, (Method::PUT, LIMITS_PATH), body).await;
        answered.map_err(|refusal| match refusal.status {
            Some(status) => format!("the runner refused the limits of disks ({status}): {}", refusal.message),
            None => refusal.message,
        })
    }

    /// Requests from the runner in the pod with this name that the guest's CPUs stand still, or run.
    pub(crate) async fn set_paused(&self, key: &Key, pod: &str, paused: bool) -> Result<(), String> {
        let body = serde_json::to_vec(&PauseRequest { paused }).map_err(|error| error.to_string())?;
        let answered = self.ask(key, |target| target.name == pod, (Method::PUT, PAUSE_PATH), body).await;
        let what = if paused { "pause" } else { "resume" };
        answered.map_err(|refusal| match refusal.status {
            Some(http::StatusCode::NOT_FOUND) => {
                format!("the runner is of a version that cannot {what} a VM; restart or migrate the VM for a newer one")
            }
            Some(status) => format!("the runner refused to {what} the VM ({status}): {}", refusal.message),
            None => refusal.message,
        })
    }

    /// Requests from the runner in the pod with this name that the VM is suspended, now or when it is idle, or runs.
    pub(crate) async fn set_suspended(
        &self,
        key: &Key,
        pod: &str,
        request: &SuspendRequest,
    ) -> Result<(), String> {
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        let answered = self.ask(key, |target| target.name == pod, (Method::PUT, SUSPEND_PATH), body).await;
        answered.map_err(|refusal| match refusal.status {
            Some(http::StatusCode::NOT_FOUND) => {
                "the runner is of a version that cannot suspend a VM; restart or migrate the VM for a newer one".to_owned()
            }
            Some(status) => format!("the runner refused to suspend the VM ({status}): {}", refusal.message),
            None => refusal.message,
        })
    }

    /// Sends an order to one of the VM's runners. If the answer is a status, it is taken as such.
    pub(crate) async fn ask(
        &self,
        key: &Key,
        is: impl Fn(&Target) -> bool,
        what: (Method, &str),
        body: Vec<u8>,
    ) -> Result<(), Refusal> {
        let Some((target, seen)) = self.find(key, is) else {
            return Err(Refusal { status: None, message: "the runner is not connected".to_owned() });
        };
        let answer = call::ask(&target, self.authority.client(), what, body).await?;
        // A status that was never sent in the stream has no number.
        if let Ok(status) = serde_json::from_slice::<RunnerStatus>(&answer)
            && status.sequence > 0
        {
            accept(&seen, status);
        }
        Ok(())
    }
}

fn view(seen: &Mutex<RunnerReports>) -> RunnerView {
    let seen = lock(seen);
    match (seen.lost_since, &seen.last) {
        (Some(since), last) => RunnerView::Unreachable { since, last: last.clone() },
        (None, Some(status)) => RunnerView::Seen(status.clone()),
        (None, None) => RunnerView::Unknown,
    }
}

/// Keeps a document unless a newer one was received. Returns whether it changed.
fn accept(seen: &Mutex<RunnerReports>, status: RunnerStatus) -> bool {
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
    seen: Arc<Mutex<RunnerReports>>,
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

    /// Doubling, with up to a quarter more so that a thousand links do not reconnect at the same time.
    fn pause(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(9)).min(LONGEST_PAUSE);
        let spread =
            self.target.pod.bytes().fold(failures, |sum, byte| sum.wrapping_mul(31) ^ u32::from(byte));
        pause + pause * (spread % 256) / 1024
    }
}
