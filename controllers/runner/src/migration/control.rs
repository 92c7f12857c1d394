//! The source's side of the connection for orders.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use neonvm_types::runner_protocol::{MigrationAnswer, MigrationChannel, MigrationOrder};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::LINE;
use super::carrier::Guarded;
use super::connect::{Client, Connector, write};

/// Orders that wait.
const QUEUE: usize = 4;

type Asked = (MigrationOrder, oneshot::Sender<Result<MigrationAnswer, String>>);

/// The connection; closed when dropped.
#[derive(Debug)]
pub(super) struct Control {
    orders: mpsc::Sender<Asked>,
    words: Arc<Mutex<String>>,
    _task: Guarded,
}

impl Control {
    /// Connects. `lost` is called once if the connection is lost, with the reason.
    pub(super) async fn open(
        connector: &Connector,
        lost: impl FnOnce(String) + Send + 'static,
    ) -> Result<Self, String> {
        let stream = connector.open(MigrationChannel::Control).await?;
        let (orders, asked) = mpsc::channel(QUEUE);
        let words = Arc::new(Mutex::new(String::new()));
        let own = Arc::clone(&words);
        let task = tokio::spawn(async move {
            let why = serve(stream, asked, &own).await;
            if let Some(why) = why {
                lost(why);
            }
        });
        Ok(Self { orders, words, _task: task.into() })
    }

    /// Gives an order and waits for its answer. An answer with an error is an error.
    pub(super) async fn order(
        &self,
        order: MigrationOrder,
        within: Duration,
    ) -> Result<MigrationAnswer, String> {
        let (sender, answer) = oneshot::channel();
        let lost = || "the connection to the target is lost".to_owned();
        let asked = async {
            self.orders.send((order, sender)).await.map_err(|_| lost())?;
            answer.await.map_err(|_| lost())?
        };
        let answer = tokio::time::timeout(within, asked).await;
        let answer =
            answer.map_err(|_| format!("the target did not answer within {} s", within.as_secs()))??;
        if answer.error.is_empty() { Ok(answer) } else { Err(format!("the target: {}", answer.error)) }
    }

    /// Whether it is still there.
    pub(super) fn is_open(&self) -> bool {
        !self.orders.is_closed()
    }

    /// Why the target failed, as it reported without a request.
    pub(super) fn words(&self) -> String {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Until the connection ends; `None` if it was closed on purpose.
async fn serve(stream: Client, mut asked: mpsc::Receiver<Asked>, words: &Mutex<String>) -> Option<String> {
    let (read, mut to) = tokio::io::split(stream);
    let mut from = BufReader::new(read);
    let mut waiting: Option<oneshot::Sender<Result<MigrationAnswer, String>>> = None;
    let mut line = Vec::new();
    loop {
        tokio::select! {
            order = asked.recv(), if waiting.is_none() => {
                let (order, sender) = order?;
                if let Err(error) = write(&mut to, &order).await {
                    let _ = sender.send(Err(error.to_string()));
                    return Some(format!("the connection to the target broke: {error}"));
                }
                waiting = Some(sender);
            }
            answer = answer(&mut from, &mut line) => match answer {
                Ok(answer) => match waiting.take() {
                    Some(waiting) => drop(waiting.send(Ok(answer))),
                    None if !answer.error.is_empty() => {
                        words.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&answer.error);
                        return Some(format!("the target: {}", answer.error));
                    }
                    None => {}
                },
                Err(error) => {
                    let why = format!("the connection to the target broke: {error}");
                    if let Some(waiting) = waiting.take() {
                        let _ = waiting.send(Err(why.clone()));
                    }
                    return Some(why);
                }
            },
        }
    }
}

/// The next answer. May be dropped at any time: what was read is kept in `line`.
async fn answer<R: tokio::io::AsyncBufRead + Unpin>(
    from: &mut R,
    line: &mut Vec<u8>,
) -> std::io::Result<MigrationAnswer> {
    let left = u64::try_from(LINE.saturating_sub(line.len())).unwrap_or(0);
    let count = from.take(left).read_until(b'\n', line).await?;
    if line.last() != Some(&b'\n') {
        let why = if count == 0 { "closed" } else { "a line without an end" };
        return Err(std::io::Error::other(why));
    }
    let answer = serde_json::from_slice(line).map_err(std::io::Error::other);
    line.clear();
    answer
}
