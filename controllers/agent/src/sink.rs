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
/// Time for what is left when the agent ends.
const LAST: Duration = Duration::from_secs(8);

/// A way to a queue of events, each a line of JSON.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    events: mpsc::Sender<String>,
}

/// Names of the metrics of a kind of sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) queue: &'static str,
    pub(crate) took: &'static str,
    pub(crate) errors: &'static str,
}

impl Sink {
    /// Starts a queue. The task ends, after a last attempt, when all senders are gone.
    pub(crate) fn start(
        target: Target,
        push: Push,
        names: Names,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinHandle<()>) {
        let (events, waiting) = mpsc::channel(CHANNEL);
        let most = usize::try_from(push.max_batch_size).unwrap_or(1);
        let queue = Queue { target, push, names, metrics, batches: Batches::new(most, MOST) };
        (Self { events }, tokio::spawn(queue.run(waiting)))
    }

    /// Takes an event. If the channel is full the event waits: nothing is lost between here and the queue.
    pub(crate) async fn tell(&self, event: String) {
        let _ = self.events.send(event).await;
    }

    /// As [`Sink::tell`], from where nothing may wait; `false` if it could not be taken.
    pub(crate) fn try_tell(&self, event: String) -> bool {
        self.events.try_send(event).is_ok()
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
                self.batches.push(event);
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
        let sent = tokio::time::timeout(LAST, self.send_all()).await;
        if !matches!(sent, Ok(Ok(()))) {
            let lost = self.batches.len();
            tracing::error!(
                client = self.target.name(),
                lost,
                "the agent ends and these events could not be sent"
            );
        }
    }

    async fn send_all(&mut self) -> Result<(), String> {
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
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        self.metrics.set(self.names.queue, &client, self.batches.len() as f64);
        Ok(())
    }
}
