//! One open watch stream, read by a task of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Long enough to notice an event too many.
const AFTERTHOUGHT: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
struct WatchedEvents {
    events: Vec<Value>,
    ended: bool,
}

#[derive(Debug)]
pub(crate) struct Watch {
    seen: Arc<Mutex<WatchedEvents>>,
    changed: Arc<Notify>,
    reader: JoinHandle<()>,
}

impl Watch {
    /// Reads a body until it ends; bookmarks in between are kept only if they are asked for.
    pub(crate) fn new(body: Incoming, bookmarks: bool) -> Self {
        let (seen, changed) = (Arc::<Mutex<WatchedEvents>>::default(), Arc::<Notify>::default());
        let reader = tokio::spawn(read(body, bookmarks, Arc::clone(&seen), Arc::clone(&changed)));
        Self { seen, changed, reader }
    }

    /// All events since the last call, once `count` came (for 0: any), the stream ended or time is up.
    pub(crate) async fn take(&self, count: usize, limit: Duration, to_the_end: bool) -> Vec<Value> {
        let done = || {
            let seen = self.seen.lock();
            seen.ended || (!to_the_end && seen.events.len() >= count.max(1))
        };
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if done() {
                    return;
                }
                changed.await;
            }
        };
        // Too few in time shows in what is returned.
        let _ = tokio::time::timeout(limit, wait).await;
        if !to_the_end && count > 0 {
            tokio::time::sleep(AFTERTHOUGHT).await;
        }
        std::mem::take(&mut self.seen.lock().events)
    }

    /// Whether the server has ended the stream.
    pub(crate) fn ended(&self) -> bool {
        self.seen.lock().ended
    }

    pub(crate) fn close(&self) {
        self.reader.abort();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.close();
    }
}

async fn read(mut body: Incoming, bookmarks: bool, seen: Arc<Mutex<WatchedEvents>>, changed: Arc<Notify>) {
    let mut buffer: Vec<u8> = Vec::new();
    let add = |event: Value| seen.lock().events.push(event);
    loop {
        let chunk: Bytes = match body.frame().await {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => {
                add(json!({"type": "BROKEN STREAM"}));
                break;
            }
            None => break,
        };
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                add(json!({"type": "BROKEN STREAM"}));
                continue;
            };
            let marks_start = String::from_utf8_lossy(&line).contains("initial-events-end");
            // A server may send the others whenever it likes.
            if event.get("type").is_none_or(|kind| kind != "BOOKMARK") || bookmarks || marks_start {
                add(event);
            }
        }
        changed.notify_one();
    }
    seen.lock().ended = true;
    changed.notify_one();
}
