//! Sends events somewhere in batches: oldest first, tried again until it works, never more than a stated number kept.

pub(crate) mod batch;
mod s3;
mod target;

use std::time::Duration;

use neonvm_kit::metrics::double;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::{Push, seconds};
pub(crate) use crate::metrics::ExporterNames as Names;
use crate::metrics::{ExporterMetrics, Metrics};
use batch::Batches;
pub(crate) use target::{Layout, Target};

/// Events between their senders and the queue.
const CHANNEL: usize = 4096;
/// Events kept while they cannot be sent; beyond it the oldest are dropped, and counted.
const MOST: usize = 200_000;
/// Pauses after a failure: first and longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for what is left when the agent ends, and the pause between two tries then.
const LAST: (Duration, Duration) = (Duration::from_secs(8), Duration::from_millis(500));

/// A way to a queue of events, each a line of JSON.
#[derive(Clone, Debug)]
pub(crate) struct Exporter {
    events: mpsc::Sender<String>,
    client: &'static str,
    metrics: ExporterMetrics,
}

impl Exporter {
    /// Starts a queue. The task ends, after a last attempt, when all senders are gone.
    pub(crate) fn start(
        target: Target,
        push: Push,
        names: Names,
        metrics: &Metrics,
    ) -> (Self, JoinHandle<()>) {
        Self::start_with(target, push, metrics.exporter(names), MOST)
    }

    fn start_with(
        target: Target,
        push: Push,
        metrics: ExporterMetrics,
        limit: usize,
    ) -> (Self, JoinHandle<()>) {
        let (events, waiting) = mpsc::channel(CHANNEL);
        let most = usize::try_from(push.max_batch_size).unwrap_or(1);
        let client = target.name();
        let batches = Batches::new(most, limit);
        let queue = Queue { target, push, metrics: metrics.clone(), batches };
        (Self { events, client, metrics }, tokio::spawn(queue.run(waiting)))
    }

    /// An exporter with events that a test can read.
    #[cfg(test)]
    pub(crate) fn for_tests(most: usize) -> (Self, mpsc::Receiver<String>) {
        let names = Names { queue: "queue", took: "took", errors: "errors", dropped: "dropped" };
        let (events, waiting) = mpsc::channel(most);
        (Self { events, client: "http", metrics: Metrics::default().exporter(names) }, waiting)
    }

    /// Takes an event. If the channel is full the event waits: nothing is lost between here and the queue.
    pub(crate) async fn send(&self, event: String) {
        let _ = self.events.send(event).await;
    }

    /// As [`Exporter::send`], from where nothing may wait; `false`, and counted, if it could not be taken.
    pub(crate) fn try_send(&self, event: String) -> bool {
        let taken = self.events.try_send(event).is_ok();
        if !taken {
            self.metrics.dropped.with([self.client]).inc();
        }
        taken
    }
}

struct Queue {
    target: Target,
    push: Push,
    metrics: ExporterMetrics,
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
                // A separate timer: upstream tries again only when the next batch is full.
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
            self.metrics.dropped.with([self.target.name()]).add(double(dropped));
        }
    }

    /// Sends all closed batches, until one cannot be.
    async fn send_all(&mut self) -> Result<(), String> {
        let sent = self.send_closed().await;
        self.metrics.queue.with([self.target.name()]).set(double(self.batches.len() as u64));
        sent
    }

    async fn send_closed(&mut self) -> Result<(), String> {
        let client = self.target.name();
        while let Some(batch) = self.batches.first() {
            let started = Instant::now();
            let within = seconds(self.push.push_request_timeout_seconds);
            let sent = tokio::time::timeout(within, self.target.send(batch)).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", within.as_secs())));
            if let Err(error) = sent {
                self.metrics.errors.with([client, error.split(':').next().unwrap_or("")]).inc();
                self.metrics.took.with([client]).set(0.0);
                return Err(error);
            }
            self.batches.sent();
            self.metrics.took.with([client]).set(started.elapsed().as_secs_f64().max(1e-6));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
