//! The session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::error::QmpError;
use super::lines::{Lines, Next};
use super::wire::{self, Event, Greeting, Message};

/// Time limit of a command whose caller sets no other.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Events kept for a slow receiver; the number of lost ones is reported to it.
pub const EVENT_BUFFER: usize = 256;
/// Commands that wait to be written.
const COMMAND_BUFFER: usize = 64;

type Waiting = BTreeMap<u64, oneshot::Sender<Result<Value, wire::Refusal>>>;

/// What callers and the reader share.
#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    next: AtomicU64,
    late: AtomicU64,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session with a monitor. Commands may be sent by many at once. Its tasks end when it is dropped.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    lines: mpsc::Sender<Vec<u8>>,
    events: broadcast::Sender<Event>,
    ended: watch::Receiver<Option<QmpError>>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

/// Forgets a command whose caller no longer waits.
struct Wait<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.id);
    }
}

impl Session {
    /// Reads the greeting and agrees on no further capability. The receiver gets every event from the first on.
    ///
    /// # Errors
    /// If that is not done within `deadline`, the stream ends, or it is no monitor.
    pub async fn open<S>(
        stream: S,
        deadline: Duration,
    ) -> Result<(Self, Greeting, broadcast::Receiver<Event>), QmpError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let until = Instant::now() + deadline;
        let (read, write) = tokio::io::split(stream);
        let mut lines = Lines::new(read);
        let timeout = || QmpError::Timeout { command: "greeting".to_owned(), deadline };
        let greeting = match timeout_at(until, lines.next()).await.map_err(|_| timeout())? {
            Next::Line(line) => match wire::parse(&line)? {
                Message::Greeting(greeting) => greeting,
                _ => return Err(QmpError::Garbage(wire::excerpt(&line))),
            },
            Next::End(reason) => return Err(QmpError::Closed(reason)),
            Next::TooLong => return Err(QmpError::Garbage("a greeting without an end".to_owned())),
        };
        let shared = Arc::new(Shared::default());
        let (events, first) = broadcast::channel(EVENT_BUFFER);
        let (ended_sender, ended) = watch::channel(None);
        let (sender, receiver) = mpsc::channel(COMMAND_BUFFER);
        let reader = tokio::spawn(read_all(lines, Arc::clone(&shared), events.clone(), ended_sender));
        let writer = tokio::spawn(write_all(write, receiver));
        let session = Self { shared, lines: sender, events, ended, reader, writer };
        let left = until.saturating_duration_since(Instant::now());
        session.execute_within("qmp_capabilities", Value::Null, left).await?;
        Ok((session, greeting, first))
    }

    /// Events from now on. A receiver that is too slow loses the oldest and gets an error.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Runs a command within [`DEADLINE`]; `Value::Null` means no arguments.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, DEADLINE).await
    }

    /// Runs a command.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn execute_within(
        &self,
        command: &str,
        arguments: Value,
        deadline: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.waiting().insert(id, sender);
        let _wait = Wait { shared: &self.shared, id };
        // Only now: the reader sets it before it drops those that wait.
        if let Some(error) = self.end() {
            return Err(error);
        }
        let line = wire::render(id, command, &arguments);
        let answer = async {
            let closed = || self.end().unwrap_or_else(|| QmpError::Closed("it was written to".to_owned()));
            self.lines.send(line).await.map_err(|_| closed())?;
            receiver.await.map_err(|_| closed())
        };
        match tokio::time::timeout(crate::patience::scaled(deadline), answer).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(wire::Refusal { class, desc }))) => {
                Err(QmpError::Command { command: command.to_owned(), class, description: desc })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(QmpError::Timeout { command: command.to_owned(), deadline }),
        }
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<QmpError> {
        self.ended.borrow().clone()
    }

    /// Waits until the session has ended; returns the reason. All events that came before have been sent by then.
    pub async fn ended(&self) -> QmpError {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.unwrap_or_else(|| QmpError::Closed("its reader is gone".to_owned()))
    }

    /// Number of answers that came after their caller had stopped waiting.
    #[must_use]
    pub fn late_answers(&self) -> u64 {
        self.shared.late.load(Ordering::Relaxed)
    }
}

async fn read_all<S: AsyncRead>(
    mut lines: Lines<ReadHalf<S>>,
    shared: Arc<Shared>,
    events: broadcast::Sender<Event>,
    ended: watch::Sender<Option<QmpError>>,
) {
    let end = loop {
        let line = match lines.next().await {
            Next::Line(line) => line,
            Next::End(reason) => break QmpError::Closed(reason),
            Next::TooLong => break QmpError::Garbage("a message without an end".to_owned()),
        };
        match wire::parse(&line) {
            // Having no receiver is no error.
            Ok(Message::Event(event)) => drop(events.send(event)),
            Ok(Message::Answer { id, result }) => {
                let waiting = id.and_then(|id| shared.waiting().remove(&id));
                let taken = waiting.is_some_and(|waiting| waiting.send(result).is_ok());
                if !taken {
                    shared.late.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(Message::Greeting(_)) => {}
            Err(error) => break error,
        }
    };
    // First the reason, then those that wait for it.
    ended.send_replace(Some(end));
    shared.waiting().clear();
}

async fn write_all<S: AsyncWrite>(mut stream: WriteHalf<S>, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        // The reader notices the end as well and reports the reason.
        if stream.write_all(&line).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}
