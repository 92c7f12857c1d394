//! Copies bytes between a client and the program that it runs.
//!
//! Output is handed over piece by piece: the session takes no more than the client's window allows, and so the program
//! waits when the client does not read. Input is queued. When the queue is long, the session's loop is held up until
//! the program has read some of it, which holds up the client. The same loop sends the output, though; a program that
//! reads only after its output has left would wait forever. Therefore, while output is stalled, input is read beyond
//! that, up to a limit at which the channel is closed.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use russh::server::Handle;
use russh::{ChannelId, Sig};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};

use super::shared::{LOOK_AFTER, Shared};
use super::terminal::{Reader, Writer};

/// Input above which the client is held up, in bytes.
const LONG: usize = 1024 * 1024;
/// Input above which the channel is closed, in bytes.
const TOO_LONG: usize = 32 * 1024 * 1024;
/// Largest piece of output, in bytes: what fits into a packet.
const PIECE: usize = 32 * 1024;
/// How long a terminal is read after its program has ended, while nothing comes: others may hold it open for ever.
const LINGER: Duration = Duration::from_millis(100);
/// What the end of input is on a terminal.
const END_OF_TRANSMISSION: &[u8] = &[4];

/// Where output comes from.
pub(super) enum Source {
    Terminal(Reader),
    /// A pipe or a forwarded connection.
    Stream(Box<dyn AsyncRead + Unpin + Send>),
}

impl Source {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Terminal(terminal) => terminal.read(buffer).await,
            Self::Stream(stream) => stream.read(buffer).await,
        }
    }
}

pub(super) enum Destination {
    Terminal(Writer),
    Stream(Box<dyn AsyncWrite + Unpin + Send>),
    None,
}

impl Destination {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Terminal(terminal) => terminal.write_all(data).await,
            Self::Stream(stream) => stream.write_all(data).await,
            Self::None => Ok(()),
        }
    }
}

/// The queue of input. An empty piece is its end.
#[derive(Clone, Debug)]
pub(super) struct Input {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

impl Input {
    /// Queues input when there is room; false if there never will be.
    pub(super) async fn push(&self, data: &[u8], shared: &Shared) -> bool {
        loop {
            let progress = shared.progress.notified();
            let queued = self.queued.load(Ordering::Relaxed);
            if self.queue.is_closed() || data.is_empty() {
                return true;
            }
            if queued < LONG || (shared.is_stalled() && queued < TOO_LONG) {
                self.queued.fetch_add(data.len(), Ordering::Relaxed);
                let _ = self.queue.send(data.to_vec());
                return true;
            }
            if shared.is_stalled() || shared.is_broken() {
                return false;
            }
            let _ = tokio::time::timeout(LOOK_AFTER, progress).await;
        }
    }

    pub(super) fn end(&self) {
        let _ = self.queue.send(Vec::new());
    }

    /// Waits until nothing more is read of it.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }
}

pub(super) type Pieces = mpsc::UnboundedReceiver<Vec<u8>>;

/// A queue that nothing is read of yet.
pub(super) fn queue() -> (Input, Pieces) {
    let (queue, pieces) = mpsc::unbounded_channel();
    (Input { queue, queued: Arc::default() }, pieces)
}

/// Starts copying input to `destination`.
pub(super) fn input(destination: Destination, shared: Arc<Shared>) -> Input {
    let (input, pieces) = queue();
    feed(pieces, &input, destination, shared);
    input
}

/// Starts copying what is in the queue of `input` to `destination`.
pub(super) fn feed(mut pieces: Pieces, input: &Input, mut destination: Destination, shared: Arc<Shared>) {
    let counter = Arc::clone(&input.queued);
    tokio::spawn(async move {
        while let Some(piece) = pieces.recv().await {
            if piece.is_empty() {
                match &mut destination {
                    Destination::Terminal(_) => drop(destination.write(END_OF_TRANSMISSION).await),
                    Destination::Stream(stream) => drop(stream.shutdown().await),
                    Destination::None => {}
                }
                break;
            }
            let written = destination.write(&piece).await;
            counter.fetch_sub(piece.len(), Ordering::Relaxed);
            shared.progress.notify_one();
            if written.is_err() {
                break;
            }
        }
        drop(destination);
        // What comes now is thrown away; the program reads no more.
        pieces.close();
        shared.progress.notify_one();
    });
}

/// Copies what comes on a forwarded connection to the client, to its end.
pub(super) async fn forward(source: Source, client: (Handle, ChannelId), shared: Arc<Shared>) {
    let (_running, watch) = watch::channel(false);
    output(source, None, client, shared, watch).await;
}

/// Copies output to the client until the program has ended and all of it is sent; then reports how it ended.
pub(super) async fn run(
    mut child: Child,
    number: Pid,
    sources: Vec<(Source, Option<u32>)>,
    client: (Handle, ChannelId),
    shared: Arc<Shared>,
    input: Input,
) {
    let (ended, watch) = watch::channel(false);
    let outputs: Vec<_> = sources
        .into_iter()
        .map(|(source, kind)| {
            tokio::spawn(output(source, kind, client.clone(), Arc::clone(&shared), watch.clone()))
        })
        .collect();
    let status = child.wait().await;
    shared.remove(number);
    input.end();
    ended.send_replace(true);
    for output in outputs {
        let _ = output.await;
    }
    let (handle, id) = client;
    match status.as_ref().map(|status| (status.code(), status.signal(), status.core_dumped())) {
        Ok((Some(code), _, _)) => {
            let _ = handle.exit_status_request(id, u32::try_from(code).unwrap_or(255)).await;
        }
        Ok((None, Some(signal), dumped)) => {
            let _ = handle.exit_signal_request(id, name(signal), dumped, String::new(), String::new()).await;
        }
        _ => {}
    }
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

async fn output(
    mut source: Source,
    kind: Option<u32>,
    (handle, id): (Handle, ChannelId),
    shared: Arc<Shared>,
    mut ended: watch::Receiver<bool>,
) {
    let terminal = matches!(source, Source::Terminal(_));
    let mut buffer = vec![0; PIECE];
    loop {
        let over = *ended.borrow();
        let read = if !terminal {
            source.read(&mut buffer).await
        } else if over {
            match tokio::time::timeout(LINGER, source.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                read = source.read(&mut buffer) => read,
                _ = ended.changed() => continue,
            }
        };
        // A terminal gives an error after its last line was closed; so does nothing else that matters.
        let Some(piece) = read.ok().and_then(|length| buffer.get(..length)).filter(|piece| !piece.is_empty())
        else {
            return;
        };
        let piece = bytes::Bytes::copy_from_slice(piece);
        let sent = match kind {
            None => shared.stall(handle.data(id, piece)).await,
            Some(kind) => shared.stall(handle.extended_data(id, kind, piece)).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Names of RFC 4254 §6.10; others in the form it gives to local ones.
fn name(signal: i32) -> Sig {
    match signal {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        12 => Sig::Custom("USR2".into()),
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        other => Sig::Custom(format!("{other}@neonvm")),
    }
}
