//! Reads the report port: one JSON object a line. A line that is none is noted and skipped.

use neonvm_types::guest::{Report, ReportKind};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use crate::core::Event;
use crate::logs::Lines;

/// Reads until the machine ends.
pub(crate) async fn read<R: AsyncRead + Unpin>(mut port: R, events: mpsc::Sender<Event>) {
    let (mut buffer, mut lines) = (vec![0; 4096], Lines::default());
    while let Ok(count @ 1..) = port.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or_default()) {
            match parse(&line.text) {
                Some(kind) => {
                    tracing::info!(event = ?kind, "guest reports");
                    if events.send(Event::Report(kind)).await.is_err() {
                        return;
                    }
                }
                None => tracing::warn!(line = line.text, "the guest reports something unknown"),
            }
        }
    }
}

fn parse(line: &str) -> Option<ReportKind> {
    serde_json::from_str::<Report>(line).ok().map(|report| report.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

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
