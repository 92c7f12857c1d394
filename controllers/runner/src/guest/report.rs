//! Reads the report port: one JSON object a line. A line that is none is logged and skipped.
//!
//! The guest is hostile: what it writes must not fill the disk of the node with log lines.

use std::time::Duration;

use neonvm_types::guest::{Report, ReportKind};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::logs::Lines;
use neonvm_core_vm_lifecycle::runner::Event;

/// Lines that a guest may cause in the runner's log within [`WINDOW`]. A healthy guest reports a few times in its life.
const LOGGED: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);

/// Reads until the VM ends.
pub(crate) async fn read<R: AsyncRead + Unpin>(mut port: R, events: mpsc::Sender<Event>) {
    let (mut buffer, mut lines) = (vec![0; 4096], Lines::default());
    let mut allowance = Allowance::new(Instant::now());
    while let Ok(count @ 1..) = port.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or_default()) {
            let may_log = allowance.take(Instant::now());
            if let Some(omitted) = allowance.omitted() {
                tracing::warn!(
                    omitted,
                    "reports of the guest were not logged: more than {LOGGED} in a minute"
                );
            }
            match parse(&line.text) {
                Some(kind) => {
                    if may_log {
                        tracing::info!(event = ?kind, "guest reports");
                    }
                    if events.send(Event::Report(kind)).await.is_err() {
                        return;
                    }
                }
                None if may_log => tracing::warn!(line = line.text, "the guest reports something unknown"),
                None => {}
            }
        }
    }
}

/// How many more lines may be logged in the current window.
#[derive(Debug)]
struct Allowance {
    start: Instant,
    taken: u32,
    /// Refused in the current window, and in the one before it until [`Allowance::omitted`] reports them.
    refused: u64,
    ended: Option<u64>,
}

impl Allowance {
    fn new(start: Instant) -> Self {
        Self { start, taken: 0, refused: 0, ended: None }
    }

    /// Whether one more line may be logged.
    fn take(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.start) >= WINDOW {
            self.ended = Some(std::mem::take(&mut self.refused)).filter(|refused| *refused > 0);
            (self.start, self.taken) = (now, 0);
        }
        if self.taken < LOGGED {
            self.taken += 1;
            return true;
        }
        self.refused += 1;
        false
    }

    /// Number of lines that were refused in a window that has ended, once.
    fn omitted(&mut self) -> Option<u64> {
        self.ended.take()
    }
}

fn parse(line: &str) -> Option<ReportKind> {
    serde_json::from_str::<Report>(line).ok().map(|report| report.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_reports_is_logged_in_part_and_counted() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let logged = (0..10_000).filter(|_| allowance.take(start)).count();
        assert_eq!(logged, 60);
        assert_eq!(allowance.omitted(), None, "the window is still open");
        assert!(allowance.take(start + WINDOW));
        assert_eq!(allowance.omitted(), Some(9_940));
        assert_eq!(allowance.omitted(), None);
    }

    #[tokio::test]
    async fn garbage_between_reports_is_skipped() {
        let text =
            "{}\nnonsense\n{\"uptimeMs\":1,\"event\":\"ready\"}\n{\"event\":\"future\",\"uptimeMs\":2}\n";
        let (events, mut read_events) = mpsc::channel(8);
        read(text.as_bytes(), events).await;
        assert_eq!(read_events.recv().await, Some(Event::Report(ReportKind::Ready)));
        assert_eq!(read_events.recv().await, None);
    }
}
