//! The log of the container: whole lines with their source in front, written by one thread.
//!
//! When the queue is full, the guest's log port waits, so that no output of the workload is lost. The serial
//! console must not wait, because the guest's kernel writes to it: lines too many are counted and dropped.

mod bounded;
mod lines;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use bounded::Bounded;
pub(crate) use lines::Lines;
use tokio::sync::mpsc;

/// Lines that wait for the writer.
const QUEUE: usize = 256;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Serial,
    /// The workload, through the log port.
    Guest,
    Qemu,
    /// This program.
    Runner,
}

impl Source {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Guest => "guest",
            Self::Qemu => "qemu",
            Self::Runner => "runner",
        }
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `source| text`, for a container runtime that adds the time.
    #[default]
    Plain,
    /// As container runtimes write: time, stream, `F`, then the line.
    Cri,
}

/// One line, or a part of one that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// Whether the line continues.
    pub(crate) partial: bool,
}

/// The queue of lines to write; cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    queue: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
}

/// What the writer gets.
#[derive(Debug)]
enum Message {
    Line(Source, Line),
    /// Answered when everything before it is written.
    Flush(std::sync::mpsc::SyncSender<()>),
}

/// Starts the writer.
///
/// # Errors
/// If no thread can be started.
pub fn start(format: Format, mut to: impl Write + Send + 'static) -> std::io::Result<Log> {
    let (queue, mut waiting) = mpsc::channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let lost = Arc::clone(&dropped);
    std::thread::Builder::new().name("log".into()).spawn(move || {
        while let Some(message) = waiting.blocking_recv() {
            let (source, line) = match message {
                Message::Line(source, line) => (source, line),
                Message::Flush(done) => {
                    let _ = to.flush();
                    let _ = done.send(());
                    continue;
                }
            };
            let missing = lost.swap(0, Ordering::Relaxed);
            if missing > 0 {
                let text = format!(
                    "{missing} lines of the serial console were dropped: the log is not read fast enough"
                );
                let _ =
                    to.write_all(render(format, Source::Runner, &Line { text, partial: false }).as_bytes());
            }
            let _ = to.write_all(render(format, source, &line).as_bytes());
        }
        let _ = to.flush();
    })?;
    Ok(Log { queue, dropped })
}

fn render(format: Format, source: Source, line: &Line) -> String {
    let (source, text) = (source.as_str(), &line.text);
    match format {
        Format::Plain => format!("{source}| {text}\n"),
        Format::Cri => {
            let tag = if line.partial { 'P' } else { 'F' };
            format!("{:.9} stdout {tag} {source}| {text}\n", jiff::Timestamp::now())
        }
    }
}

impl Log {
    /// Writes a line, after those that wait already.
    pub(crate) async fn write(&self, source: Source, line: Line) {
        let _ = self.queue.send(Message::Line(source, line)).await;
    }

    /// Writes a line if there is room.
    pub(crate) fn offer(&self, source: Source, line: Line) {
        if self.queue.try_send(Message::Line(source, line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was written so far is out, at most two seconds. Not to be called in a runtime.
    pub fn drain(&self) {
        self.drain_within(Duration::from_secs(2));
    }

    fn drain_within(&self, longest: Duration) {
        let (done, out) = std::sync::mpsc::sync_channel(1);
        if self.queue.blocking_send(Message::Flush(done)).is_ok() {
            let _ = out.recv_timeout(longest);
        }
    }

    /// Writes text of this program's own log; for a subscriber of `tracing`.
    #[must_use]
    pub fn own(&self) -> OwnLog {
        OwnLog(self.clone(), Lines::default())
    }
}

/// A writer of lines with the source `runner`.
#[derive(Debug)]
pub struct OwnLog(Log, Lines);

impl Write for OwnLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for line in self.1.push(bytes) {
            self.0.offer(Source::Runner, line);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_carry_their_source_and_what_is_dropped_is_counted() {
        let out = Shared::default();
        let log = start(Format::Plain, out.clone()).unwrap();
        log.dropped.store(3, Ordering::Relaxed);
        log.offer(Source::Serial, Line { text: "hello".into(), partial: false });
        writeln!(log.own(), "started").unwrap();
        log.drain_within(Duration::from_secs(60));
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "runner| 3 lines of the serial console were dropped: the log is not read fast enough\n\
             serial| hello\nrunner| started\n"
        );
    }

    #[test]
    fn container_runtimes_lines_can_be_read_back() {
        let line = render(Format::Cri, Source::Guest, &Line { text: "a b".into(), partial: true });
        let mut parts = line.splitn(4, ' ');
        assert!(parts.next().unwrap().parse::<jiff::Timestamp>().is_ok());
        assert_eq!(
            (parts.next(), parts.next(), parts.next()),
            (Some("stdout"), Some("P"), Some("guest| a b\n"))
        );
    }
}
