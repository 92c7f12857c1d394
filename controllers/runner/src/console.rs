//! The serial console: one task reads QEMU's socket; all connected clients see its output and may type.
//!
//! New clients get what was shown last, so that a login prompt is there at once. A client that does not read is cut off,
//! never waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{broadcast, mpsc};

use crate::logs::{Lines, Log, Source};

/// Chunks that a client may be behind.
const BEHIND: usize = 256;
/// Bytes shown to a new client.
const REPLAY: usize = 16 << 10;
/// Lines kept for the report of an end, and the longest of them.
const TAIL: usize = 20;
const TAIL_LINE: usize = 240;
/// How the kernel begins the line with the cause of a panic (`kernel/panic.c`).
const PANIC: &str = "Kernel panic - not syncing";
/// Keystrokes that wait for the guest.
const TYPED: usize = 64;

/// The console; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    shown: broadcast::Sender<Bytes>,
    typed: mpsc::Sender<Bytes>,
    kept: Arc<Mutex<ConsoleBuffer>>,
}

#[derive(Debug, Default)]
struct ConsoleBuffer {
    bytes: VecDeque<u8>,
    tail: VecDeque<String>,
}

impl Console {
    /// Attaches to the serial line of a VM. The task ends with the VM.
    pub(crate) fn attach<S>(line: S, log: Log) -> (Self, tokio::task::JoinHandle<()>)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (typed, mut input) = mpsc::channel::<Bytes>(TYPED);
        let console = Self { shown: broadcast::Sender::new(BEHIND), typed, kept: Arc::default() };
        let (mut reader, mut writer) = tokio::io::split(line);
        tokio::spawn(async move {
            while let Some(bytes) = input.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        });
        let own = console.clone();
        let task = tokio::spawn(async move {
            let (mut buffer, mut lines) = (vec![0; 4096], Lines::default());
            while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                let bytes = buffer.get(..count).unwrap_or_default();
                own.show(bytes);
                for line in lines.push(bytes) {
                    own.remember(&line.text);
                    log.offer(Source::Serial, line);
                }
            }
            if let Some(line) = lines.finish() {
                own.remember(&line.text);
                log.offer(Source::Serial, line);
            }
        });
        (console, task)
    }

    fn show(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend(bytes);
        let excess = kept.bytes.len().saturating_sub(REPLAY);
        kept.bytes.drain(..excess);
        // Sent under the lock: a new client sees every byte once.
        let _ = self.shown.send(Bytes::copy_from_slice(bytes));
    }

    fn remember(&self, line: &str) {
        let line = plain(line);
        if !line.is_empty() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.tail.push_back(line);
            if kept.tail.len() > TAIL {
                // The traces behind a panic are longer than what is kept; the line that names its cause stays first.
                let oldest = usize::from(kept.tail.front().is_some_and(|line| line.contains(PANIC)));
                kept.tail.remove(oldest);
            }
        }
    }

    /// The last lines, oldest first, without control sequences.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).tail.iter().cloned().collect()
    }

    /// Joins a client with the console until either side ends.
    pub(crate) async fn serve<C: AsyncRead + AsyncWrite>(self, client: C) {
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (replay, mut shown) = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            (kept.bytes.iter().copied().collect::<Vec<u8>>(), self.shown.subscribe())
        };
        let show = async {
            to_client.write_all(&replay).await?;
            loop {
                match shown.recv().await {
                    Ok(bytes) => to_client.write_all(&bytes).await?,
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        to_client.write_all(b"\r\n[...]\r\n").await?;
                    }
                    Err(broadcast::error::RecvError::Closed) => return Ok::<(), std::io::Error>(()),
                }
            }
        };
        let typed = self.typed.clone();
        // Only the VM's end of the channel must keep it open.
        drop(self.shown);
        let take = async {
            let mut buffer = vec![0; 1024];
            while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                let bytes = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
                if typed.send(bytes).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! { _ = show => {}, () = take => {} }
    }
}

/// A line as a person reads it: no escape sequences, no control characters, not too long.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next_if_eq(&'[').is_some() {
                while characters.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            } else {
                characters.next();
            }
        } else if !character.is_control() && text.len() < TAIL_LINE {
            text.push(character);
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{self, Format};

    #[test]
    fn lines_for_people_have_no_control_sequences() {
        assert_eq!(plain("\u{1b}[2J\u{1b}[31mred\u{1b}[0m \u{7}bell "), "red bell");
        assert_eq!(plain(&"x".repeat(1000)).len(), TAIL_LINE);
    }

    #[tokio::test]
    async fn the_cause_of_a_panic_outlasts_its_trace() {
        let (_machine, line) = tokio::io::duplex(64);
        let (console, _task) = Console::attach(line, logs::start(Format::Plain, std::io::sink()).unwrap());
        let cause = "[    6.59] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000000";
        for line in
            ["before", cause].into_iter().map(str::to_owned).chain((0..50).map(|n| format!("trace {n}")))
        {
            console.remember(&line);
        }
        let tail = console.tail();
        assert_eq!((tail.len(), tail[0].as_str(), tail[1].as_str()), (TAIL, cause, "trace 31"));
    }

    #[tokio::test]
    async fn clients_see_the_past_and_type_and_the_machine_ends_them() {
        let log = logs::start(Format::Plain, std::io::sink()).unwrap();
        let (machine, line) = tokio::io::duplex(1024);
        let (console, task) = Console::attach(line, log);
        let (mut reader, mut writer) = tokio::io::split(machine);
        writer.write_all(b"boot\nlogin: ").await.unwrap();
        let mut seen = console.shown.subscribe();
        while console.kept.lock().unwrap().bytes.len() < 12 {
            seen.recv().await.unwrap();
        }
        let (mut client, server) = tokio::io::duplex(1024);
        let served = tokio::spawn(console.clone().serve(server));
        let mut shown = [0; 12];
        client.read_exact(&mut shown).await.unwrap();
        assert_eq!(&shown, b"boot\nlogin: ");
        client.write_all(b"root\n").await.unwrap();
        let mut typed = [0; 5];
        reader.read_exact(&mut typed).await.unwrap();
        assert_eq!(&typed, b"root\n");
        assert_eq!(console.tail(), ["boot"]);
        drop(client);
        served.await.unwrap();
        drop((reader, writer));
        task.await.unwrap();
        assert_eq!(console.tail(), ["boot", "login:"]);
    }
}
