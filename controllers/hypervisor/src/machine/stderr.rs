//! QEMU's standard error: the last lines are kept, each is passed on.

use std::collections::VecDeque;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const KEPT: usize = 32;
/// Bytes of a line; the rest of a longer one is its own line.
const LINE: usize = 4096;
/// Lines that wait for the receiver.
const BUFFER: usize = 64;
/// QEMU prints why it gives up and ends at once; on a busy host both may be read this far apart.
const TOGETHER: Duration = Duration::from_secs(2);

/// The last lines, each with the time at which it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<(Instant, String)>>>);

impl Tail {
    pub(super) fn push(&self, at: Instant, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= KEPT {
            lines.pop_front();
        }
        lines.push_back((at, line));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, line)| line.clone()).collect()
    }

    /// The last line, if it was printed as the process ended: an older one is about something else.
    pub(super) fn at_end(&self, ended: Instant) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, line) = lines.back()?;
        (ended.saturating_duration_since(*at) <= TOGETHER).then(|| line.clone())
    }
}

/// Reads until QEMU has ended.
pub(super) fn follow(stderr: ChildStderr) -> std::io::Result<(Tail, mpsc::Receiver<String>, JoinHandle<()>)> {
    let mut stream = tokio::process::ChildStderr::from_std(stderr)?;
    let tail = Tail::default();
    let (sender, receiver) = mpsc::channel(BUFFER);
    let kept = tail.clone();
    let task = tokio::spawn(async move {
        let mut held = Vec::new();
        let pass = |line: &[u8]| {
            let text = String::from_utf8_lossy(line).trim_end().to_owned();
            if !text.is_empty() {
                kept.push(Instant::now(), text.clone());
                // A reader that is too slow misses lines.
                let _ = sender.try_send(text);
            }
        };
        while let Ok(1..) = stream.read_buf(&mut held).await {
            while let Some(end) =
                held.iter().position(|byte| *byte == b'\n').or((held.len() > LINE).then_some(LINE))
            {
                let rest = held.split_off(end + 1);
                pass(&std::mem::replace(&mut held, rest));
            }
        }
        pass(&held);
    });
    Ok((tail, receiver, task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_the_end_is_a_reason() {
        let (tail, begun) = (Tail::default(), Instant::now());
        assert_eq!(tail.at_end(begun), None);
        tail.push(begun, "a probe failed".to_owned());
        assert_eq!(tail.at_end(begun + TOGETHER).as_deref(), Some("a probe failed"));
        let late = begun + Duration::from_secs(60);
        assert_eq!((tail.at_end(late), tail.lines().len()), (None, 1));
        // Read only after the end was noticed.
        tail.push(late + Duration::from_millis(5), "assertion failed".to_owned());
        assert_eq!(tail.at_end(late).as_deref(), Some("assertion failed"));
    }
}
