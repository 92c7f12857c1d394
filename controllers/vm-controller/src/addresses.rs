//! Addresses on the overlay network: `IPPool` objects behind a book in memory.
//!
//! One worker handles all requests. It takes those that wait together: the book decides, then each pool that changed
//! is written once, guarded by its version. So a burst of VMs costs a few small writes, and a response means that the
//! address is on record. Reads are from memory.
//!
//! If the outcome of a write is unknown, the book is discarded and read again. A pool that another client deleted or edited is rebuilt from
//! the VMs.

mod changes;
mod load;
mod metrics;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use neonvm_core_overlay::{Book, RangeUsage, Settings};
use neonvm_core_vm_lifecycle::AddressView;
use tokio::sync::{mpsc, oneshot};

use crate::clock::now;

pub(crate) use load::shared;
pub(crate) use metrics::{Action, Ipam};
pub(crate) use worker::Worker;

/// Requests that wait in the queue; further callers wait for room.
const WAITING: usize = 8192;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the settings of the overlay's addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// As given.
    Settings(Box<Settings>),
    /// A JSON file: the configuration of a network attachment, or what stands in its `ipam`.
    File(PathBuf),
    /// A `NetworkAttachmentDefinition`, as upstream has it.
    Attachment {
        /// Namespace of the `NetworkAttachmentDefinition`.
        namespace: String,
        /// Name of the `NetworkAttachmentDefinition`.
        name: String,
    },
}

impl Default for AddressSource {
    fn default() -> Self {
        Self::Settings(Box::default())
    }
}

/// How addresses on the overlay network are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressConfig {
    /// Which there are.
    pub source: AddressSource,
    /// How long an address rests before another machine gets it; whole seconds.
    pub quarantine: Duration,
}

impl Default for AddressConfig {
    fn default() -> Self {
        Self { source: AddressSource::default(), quarantine: Duration::from_secs(60) }
    }
}

/// Addresses on the overlay network.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressUsage {
    pub(crate) held: usize,
    pub(crate) resting: usize,
    /// The same and the total, by range.
    pub(crate) ranges: Vec<RangeUsage>,
}

#[derive(Debug)]
enum Operation {
    Acquire { id: String, wanted: Option<IpAddr> },
    Release { id: String },
}

/// An operation, and the channel for its result; `None` if no caller waits.
#[derive(Debug)]
struct Request {
    operation: Operation,
    answer: Option<oneshot::Sender<Result<(), String>>>,
}

/// The book, if it was read.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Option<Book>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Addresses {
    book: Shared,
    requests: mpsc::Sender<Request>,
    metrics: Arc<Ipam>,
}

impl Addresses {
    /// The addresses, and what the worker takes requests from.
    pub(crate) fn new(config: AddressConfig, namespace: &str, metrics: Arc<Ipam>) -> (Self, Worker) {
        let (requests, inbox) = mpsc::channel(WAITING);
        let book = Shared::default();
        let worker = Worker::new(config, namespace.to_owned(), book.clone(), inbox);
        (Self { book, requests, metrics }, worker)
    }

    /// What a VM has. From memory.
    pub(crate) fn view(&self, id: &str) -> AddressView {
        match &*self.book.lock() {
            None => AddressView::Unknown,
            Some(book) => match book.held(id) {
                None => AddressView::None,
                Some(lease) => AddressView::Held { ip: lease.address, mask: lease.net.mask() },
            },
        }
    }

    /// How many addresses VMs have, how many rest, and how full the ranges are; none until the pools were read.
    pub(crate) fn usage(&self) -> Option<AddressUsage> {
        let book = self.book.lock();
        book.as_ref().map(|book| {
            let (held, resting) = book.counts();
            AddressUsage { held, resting, ranges: book.usage(now().unix()) }
        })
    }

    /// Takes an address for a VM: on record when this returns.
    pub(crate) async fn acquire(&self, id: &str, wanted: Option<IpAddr>) -> Result<(), String> {
        self.ask(Action::Acquire, Operation::Acquire { id: id.to_owned(), wanted }).await
    }

    /// Releases a VM's address: on record when this returns. While the pools cannot be read it returns at once:
    /// reading them ends with a sweep, and this VM will be gone by then.
    pub(crate) async fn release(&self, id: &str) -> Result<(), String> {
        if self.view(id) == AddressView::Unknown {
            return Ok(());
        }
        self.ask(Action::Release, Operation::Release { id: id.to_owned() }).await
    }

    /// The VM is gone, perhaps without having released its address. The next sweep finds what does not fit into the
    /// queue.
    pub(crate) fn gone(&self, id: &str) {
        if matches!(self.view(id), AddressView::Held { .. }) {
            let operation = Operation::Release { id: id.to_owned() };
            let _ = self.requests.try_send(Request { operation, answer: None });
        }
    }

    async fn ask(&self, action: Action, operation: Operation) -> Result<(), String> {
        let timer = self.metrics.start(action);
        let (answer, answered) = oneshot::channel();
        let asked = async {
            let request = Request { operation, answer: Some(answer) };
            self.requests.send(request).await.map_err(|_| "the worker for addresses has ended".to_owned())?;
            answered.await.map_err(|_| "the request was dropped; it is made again".to_owned())?
        };
        let late = |_| Err("the API server does not answer".to_owned());
        let result = tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(late);
        timer.end(result.is_ok());
        result
    }
}
