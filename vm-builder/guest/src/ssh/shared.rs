//! What the parts of a connection share.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use tokio::sync::{Notify, watch};

/// Where the two ends of the connection are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Addresses {
    pub(super) peer: Option<SocketAddr>,
    pub(super) local: Option<SocketAddr>,
}

impl Addresses {
    pub(super) fn from_stream(stream: &std::net::TcpStream, peer: Option<SocketAddr>) -> Self {
        Self { peer: stream.peer_addr().ok().or(peer), local: stream.local_addr().ok() }
    }
}

/// What the parts of a connection share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) authenticated: watch::Sender<bool>,
    children: Mutex<Vec<Pid>>,
    connection: OwnedFd,
    /// Outputs that wait for the client or for the session's loop.
    stalled: AtomicUsize,
    pub(super) progress: Notify,
}

impl Shared {
    pub(super) fn new(connection: OwnedFd) -> (Arc<Self>, watch::Receiver<bool>) {
        let (authenticated, receiver) = watch::channel(false);
        let shared = Self {
            authenticated,
            children: Mutex::default(),
            connection,
            stalled: AtomicUsize::new(0),
            progress: Notify::new(),
        };
        (Arc::new(shared), receiver)
    }

    pub(super) fn add(&self, child: Pid) {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }

    pub(super) fn remove(&self, child: Pid) {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != child);
    }

    /// Whether this child has not been waited for, so that its number is still its own.
    pub(super) fn runs(&self, child: Pid) -> bool {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).contains(&child)
    }

    /// Sends SIGHUP to everything that still runs, because the client has gone.
    pub(super) fn hang_up(&self) {
        for child in self.children.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            hang_up(child);
        }
    }

    /// Awaits a hand-over of output; meanwhile input is taken beyond what is requested, see [`super::pump`].
    pub(super) async fn stall<T>(&self, hand_over: impl Future<Output = T>) -> T {
        self.stalled.fetch_add(1, Ordering::Relaxed);
        self.progress.notify_one();
        let result = hand_over.await;
        self.stalled.fetch_sub(1, Ordering::Relaxed);
        result
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) > 0
    }

    /// Whether the connection has ended, according to the kernel.
    pub(super) fn is_broken(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = PollFlags::ERR | PollFlags::HUP;
        rustix::event::poll(&mut polled, Some(&now)).is_ok()
            && polled.iter().any(|fd| fd.revents().intersects(ended))
    }
}

/// How often a client that is being waited for is looked after.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(5);

/// Requests a session's processes to end, stopped ones too.
pub(super) fn hang_up(child: Pid) {
    for signal in [Signal::HUP, Signal::CONT] {
        let _ = rustix::process::kill_process_group(child, signal);
    }
}
