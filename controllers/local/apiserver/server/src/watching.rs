//! Streams of watch events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use neonvm_apiserver_engine::watch::{Batch, Watch, error_event};
use neonvm_kit::metrics::Held;
use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, sleep_until};

use crate::faults::Faults;
use crate::state::{State, unwritten};

/// Without `timeoutSeconds` a watch lasts between half an hour and an hour, as on a real server.
const DEFAULT_SECONDS: u64 = 1800;
/// Bookmarks come this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Chunks that may wait for a slow reader; then the watch itself waits, its cursor stops, and nothing is rendered for
/// it.
const CHUNKS: usize = 1;
/// A reader that takes nothing for this long is cut off.
const STALLED: Duration = Duration::from_secs(300);

/// A response body fed by a task.
#[derive(Debug)]
pub(crate) struct Stream {
    chunks: mpsc::Receiver<Bytes>,
    _open: Held,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.chunks.poll_recv(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Starts streaming. The stream ends when `stopped` becomes true: a watch has no end of its own that a server which stops could
/// wait for.
pub(crate) fn start(
    state: Arc<State>,
    watch: Watch,
    (faults, mut stopped): (Arc<Faults>, channel::Receiver<bool>),
    open: Held,
) -> Stream {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    tokio::spawn(async move {
        tokio::select! {
            () = run(state, watch, sender, faults) => {}
            // The sender is gone with the server, which was dropped then.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    });
    Stream { chunks, _open: open }
}

async fn run(state: Arc<State>, mut watch: Watch, sender: mpsc::Sender<Bytes>, faults: Arc<Faults>) {
    let spread = u64::try_from(state.context().seed % u128::from(DEFAULT_SECONDS)).unwrap_or(0);
    let seconds = watch.timeout().filter(|s| *s > 0).unwrap_or(DEFAULT_SECONDS + spread);
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let mut marks = Marks::new(start, end);
    let mut changed = state.disk().follow(watch.table());
    // Events that are not on disk yet stay unseen: after a crash they would never have happened. A watch may begin
    // with the present state, which has to be there before it is sent.
    let mut first = true;
    loop {
        // In this order: what becomes durable after the look is a change that is still to be noticed.
        changed.borrow_and_update();
        let upto = state.disk().durable();
        loop {
            let Ok(Ok(place)) = tokio::time::timeout(STALLED, sender.reserve()).await else { return };
            let now = jiff::Timestamp::now();
            let (batch, present) =
                state.with(|engine| (watch.next(engine.store(), upto, now), engine.store().revision()));
            let Batch { lines, ended, more } = batch;
            if std::mem::take(&mut first)
                && let Err(failed) = state.disk().wait(present).await
            {
                place.send(error_event(&unwritten(&failed)));
                return;
            }
            if !lines.is_empty() {
                let Some(lines) = faults.watch_lines(lines).await else { return };
                place.send(lines);
            }
            if ended {
                return;
            }
            if !more {
                break;
            }
        }
        tokio::select! {
            // The times first: changes without a pause must not put them off.
            biased;
            () = sleep_until(marks.next()), if watch.bookmarks() => {
                marks.sent(Instant::now());
                if sender.send(watch.bookmark()).await.is_err() {
                    return;
                }
            }
            () = sleep_until(end) => return,
            () = sender.closed() => return,
            result = changed.changed() => {
                if result.is_err() {
                    // What came after the last event will never be on disk.
                    if let (Err(failed), Ok(Ok(place))) =
                        (state.disk().check(), tokio::time::timeout(STALLED, sender.reserve()).await)
                    {
                        place.send(error_event(&unwritten(&failed)));
                    }
                    return;
                }
            }
        }
    }
}

/// When bookmarks are due. The last one stays due until it was sent, however late the task looks.
struct Marks {
    next: Instant,
    last: Option<Instant>,
}

impl Marks {
    fn new(start: Instant, end: Instant) -> Self {
        let last = end.checked_sub(BOOKMARK_BEFORE_END).filter(|at| *at > start);
        Self { next: start + BOOKMARK_EVERY, last }
    }

    fn next(&self) -> Instant {
        self.last.map_or(self.next, |last| self.next.min(last))
    }

    fn sent(&mut self, now: Instant) {
        self.next = now + BOOKMARK_EVERY;
        self.last = self.last.filter(|last| now < *last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_last_bookmark_is_due_until_it_was_sent() {
        let start = Instant::now();
        let mut marks = Marks::new(start, start + 3 * SECOND);
        assert_eq!(marks.next(), start + SECOND);
        // The disk was slow: it is checked again after that time only.
        marks.sent(start + 2 * SECOND);
        assert_eq!(marks.next(), start + 2 * SECOND + BOOKMARK_EVERY, "it was sent once");
    }

    #[test]
    fn a_long_watch_has_bookmarks_at_intervals_and_a_last_one() {
        let start = Instant::now();
        let mut marks = Marks::new(start, start + 90 * SECOND);
        assert_eq!(marks.next(), start + BOOKMARK_EVERY);
        marks.sent(start + BOOKMARK_EVERY);
        assert_eq!(marks.next(), start + 88 * SECOND);
        marks.sent(start + 88 * SECOND);
        assert_eq!(marks.next(), start + 148 * SECOND);
    }

    #[test]
    fn a_watch_of_a_moment_has_none_before_its_end() {
        let start = Instant::now();
        assert_eq!(Marks::new(start, start + 2 * SECOND).next(), start + BOOKMARK_EVERY);
    }
}
