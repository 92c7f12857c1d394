//! Sends events somewhere in batches: oldest first, tried again until it works, never more than a stated number kept.

pub(crate) mod batch;
mod s3;
mod target;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::{Push, seconds};
use crate::metrics::Metrics;
use batch::Batches;
pub(crate) use target::{Layout, Target};

/// Events between the one who tells and the queue.
const CHANNEL: usize = 4096;
/// Events kept while they cannot be sent; beyond it the oldest are dropped, and counted.
const MOST: usize = 200_000;
/// Pauses after a failure: first and longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for what is left when the agent ends, and the pause between two tries then.
const LAST: (Duration, Duration) = (Duration::from_secs(8), Duration::from_millis(500));

/// A way to a queue of events, each a line of JSON.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    events: mpsc::Sender<String>,
    client: &'static str,
    names: Names,
    metrics: Arc<Metrics>,
}

/// Names of the metrics of a kind of sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) queue: &'static str,
    pub(crate) took: &'static str,
    pub(crate) errors: &'static str,
    /// Events that were given up.
    pub(crate) dropped: &'static str,
}

impl Sink {
    /// Starts a queue. The task ends, after a last attempt, when all senders are gone.
    pub(crate) fn start(
        target: Target,
        push: Push,
        names: Names,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinHandle<()>) {
        Self::start_with(target, push, names, metrics, MOST)
    }

    fn start_with(
        target: Target,
        push: Push,
        names: Names,
        metrics: Arc<Metrics>,
        limit: usize,
    ) -> (Self, JoinHandle<()>) {
        let (events, waiting) = mpsc::channel(CHANNEL);
        let most = usize::try_from(push.max_batch_size).unwrap_or(1);
        let client = target.name();
        let batches = Batches::new(most, limit);
        let queue = Queue { target, push, names, metrics: Arc::clone(&metrics), batches };
        (Self { events, client, names, metrics }, tokio::spawn(queue.run(waiting)))
    }

    /// One whose events stay where a test can see them.
    #[cfg(test)]
    pub(crate) fn for_tests(most: usize) -> (Self, mpsc::Receiver<String>) {
        let names = Names { queue: "queue", took: "took", errors: "errors", dropped: "dropped" };
        let (events, waiting) = mpsc::channel(most);
        (Self { events, client: "http", names, metrics: Arc::default() }, waiting)
    }

    /// Takes an event. If the channel is full the event waits: nothing is lost between here and the queue.
    pub(crate) async fn tell(&self, event: String) {
        let _ = self.events.send(event).await;
    }

    /// As [`Sink::tell`], from where nothing may wait; `false`, and counted, if it could not be taken.
    pub(crate) fn try_tell(&self, event: String) -> bool {
        let taken = self.events.try_send(event).is_ok();
        if !taken {
            self.metrics.count(self.names.dropped, &[("client", self.client)]);
        }
        taken
    }
}

struct Queue {
    target: Target,
    push: Push,
    names: Names,
    metrics: Arc<Metrics>,
    batches: Batches,
}

impl Queue {
    async fn run(mut self, mut events: mpsc::Receiver<String>) {
        let every = seconds(self.push.push_every_seconds);
        let mut close_at = Instant::now() + every;
        let mut pause = PAUSES.0;
        let mut try_at = None;
        loop {
            let event = tokio::select! {
                event = events.recv() => match event {
                    None => break,
                    Some(event) => Some(event),
                },
                // A timer of its own: upstream tries again only when the next batch is full.
                () = tokio::time::sleep_until(try_at.unwrap_or(close_at)) => None,
            };
            if let Some(event) = event {
                self.push(event);
                if !self.batches.is_ready() || try_at.is_some() {
                    continue;
                }
            }
            if Instant::now() >= close_at {
                self.batches.close();
                close_at = Instant::now() + every;
            }
            try_at = None;
            match self.send_all().await {
                Ok(()) => pause = PAUSES.0,
                Err(error) => {
                    tracing::warn!(
                        client = self.target.name(),
                        error,
                        waiting = self.batches.len(),
                        "events cannot be sent"
                    );
                    try_at = Some(Instant::now() + pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
        self.batches.close();
        let sent = tokio::time::timeout(LAST.0, async {
            while self.send_all().await.is_err() {
                tokio::time::sleep(LAST.1).await;
            }
        });
        if sent.await.is_err() {
            let lost = self.batches.len();
            tracing::error!(
                client = self.target.name(),
                lost,
                "the agent ends and these events could not be sent"
            );
        }
    }

    fn push(&mut self, event: String) {
        let dropped = self.batches.push(event);
        if dropped > 0 {
            let total = self.batches.dropped();
            tracing::error!(
                client = self.target.name(),
                dropped,
                total,
                "too many events wait: the oldest are dropped"
            );
            self.metrics.count_many(self.names.dropped, &[("client", self.target.name())], dropped);
        }
    }

    /// Sends all closed batches, until one cannot be.
    async fn send_all(&mut self) -> Result<(), String> {
        let sent = self.send_closed().await;
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        let waiting = self.batches.len() as f64;
        self.metrics.set(self.names.queue, &[("client", self.target.name())], waiting);
        sent
    }

    async fn send_closed(&mut self) -> Result<(), String> {
        let client = [("client", self.target.name())];
        while let Some(batch) = self.batches.first() {
            let started = Instant::now();
            let within = seconds(self.push.push_request_timeout_seconds);
            let sent = tokio::time::timeout(within, self.target.send(batch)).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", within.as_secs())));
            if let Err(error) = sent {
                let labels =
                    [("client", self.target.name()), ("cause", error.split(':').next().unwrap_or(""))];
                self.metrics.count(self.names.errors, &labels);
                self.metrics.set(self.names.took, &client, 0.0);
                return Err(error);
            }
            self.batches.sent();
            self.metrics.set(self.names.took, &client, started.elapsed().as_secs_f64().max(1e-6));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
