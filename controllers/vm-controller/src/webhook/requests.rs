//! Requests for evictions: recorded by the webhook, processed by the controller. The queue and the number of requests in process
//! are bounded, so that a caller of the webhook, however fast, costs the API server a few reads at a time.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use kube::Client;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

/// Requests that wait. A drain repeats one for each VM of its node every 5 s.
const WAITING: usize = 64;
/// Requests that are worked on at the same time.
const AT_ONCE: usize = 8;
/// How long the webhook waits for an answer: less than the 10 s that the API server waits for the webhook.
const PATIENCE: Duration = Duration::from_secs(8);

/// The content of a webhook's request. Only `proved` is trusted, which TLS has verified.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// The eviction is a dry run: nothing is to be done.
    pub(super) dry_run: bool,
    /// The API server has sent the request.
    pub(super) proved: bool,
}

type Entry = (Request, oneshot::Sender<Word>);

/// Where requests are recorded.
#[derive(Debug)]
pub(super) struct Requests(mpsc::Sender<Entry>);

pub(super) struct Worker {
    client: Client,
    entries: Mutex<mpsc::Receiver<Entry>>,
}

/// No request waits.
pub(super) fn channel(client: Client) -> (Requests, Worker) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Requests(sender), Worker { client, entries: Mutex::new(receiver) })
}

impl Requests {
    /// Records a request, and waits for what the controller makes of it.
    pub(super) async fn record(&self, request: Request) -> Word {
        let (answer, answered) = oneshot::channel();
        if self.0.try_send((request, answer)).is_err() {
            return Word::Later("too many evictions are requested at once; try again".to_owned());
        }
        match timeout(PATIENCE, answered).await {
            Ok(Ok(word)) => word,
            _ => Word::Later("the eviction is being looked at; try again".to_owned()),
        }
    }
}

impl Worker {
    /// Passes each request to `word`, which verifies it against the API and does what follows from it; never returns.
    pub(super) async fn run(&self, word: impl AsyncFn(&Client, &Request) -> Word) {
        let mut entries = self.entries.lock().await;
        let entries = stream::poll_fn(|context| entries.poll_recv(context));
        entries
            .for_each_concurrent(AT_ONCE, async |(request, answer): Entry| {
                // The client may have disconnected: the eviction is requested all the same.
                let _ = answer.send(word(&self.client, &request).await);
            })
            .await;
        // All senders are gone only when the webhooks are.
        std::future::pending::<()>().await;
    }
}

/// What is answered to an eviction.
pub(super) enum Word {
    /// The pod may go.
    Pass,
    /// Not yet.
    Later(String),
}
