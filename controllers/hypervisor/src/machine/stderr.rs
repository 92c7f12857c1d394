//! QEMU's standard error: the last lines are kept, each is passed on.

use std::collections::VecDeque;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Lines kept.
const KEPT: usize = 32;
/// Bytes of a line; the rest of a longer one is its own line.
const LINE: usize = 4096;
/// Lines that wait for the receiver.
const BUFFER: usize = 64;

/// The last lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
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
                kept.push(text.clone());
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
