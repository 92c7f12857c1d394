//! Connections that a client has forwarded (RFC 4254 §7): to addresses that the guest reaches, to its sockets, and from ports that
//! it listens on.
//!
//! Listeners are on loopback only, as OpenSSH has it unless it is configured otherwise. Sockets are connected to for root alone: this
//! process has root's rights, and those of the file would not be checked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use russh::server::{ChannelOpenHandle, Handle};
use russh::{ChannelId, ChannelOpenFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::AbortHandle;

use super::log;
use super::pump::{self, Destination, Input, Pieces, Source};
use super::shared::Shared;

/// Most forwarded connections at a time.
const CONNECTIONS: usize = 256;
/// Most ports that a client listens on.
const LISTENERS: usize = 64;
/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1";

#[derive(Clone, Debug, Default)]
pub(super) struct Forwards {
    channels: Arc<Mutex<BTreeMap<u32, Channel>>>,
    listeners: Arc<Mutex<BTreeMap<u32, AbortHandle>>>,
}

#[derive(Debug)]
struct Channel {
    input: Input,
    /// What has come before there is a connection.
    early: Option<Pieces>,
    task: Option<AbortHandle>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Where a client wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Tcp(String, u16),
    Socket(String),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Forwards {
    /// The input of a forwarded channel, if it is one.
    pub(super) fn input(&self, id: ChannelId) -> Option<Input> {
        locked(&self.channels).get(&u32::from(id)).map(|channel| channel.input.clone())
    }

    /// The client has closed the channel, or does not take what comes.
    pub(super) fn close(&self, id: ChannelId) -> bool {
        locked(&self.channels).remove(&u32::from(id)).is_some()
    }

    pub(super) fn end(&self) {
        locked(&self.channels).clear();
        for (_, listener) in std::mem::take(&mut *locked(&self.listeners)) {
            listener.abort();
        }
    }

    /// A channel that may carry data from now on. False if there are too many.
    pub(super) fn begin(&self, id: ChannelId) -> bool {
        let mut channels = locked(&self.channels);
        let room = channels.len() < CONNECTIONS;
        if room {
            let (input, early) = pump::queue();
            channels.insert(u32::from(id), Channel { input, early: Some(early), task: None });
        }
        room
    }

    /// Connects for a client, and answers it once that has succeeded or failed.
    pub(super) fn connect(
        &self,
        target: Target,
        id: ChannelId,
        reply: ChannelOpenHandle,
        handle: Handle,
        shared: Arc<Shared>,
    ) {
        let forwards = self.clone();
        tokio::spawn(async move {
            if !forwards.begin(id) {
                reply.reject(ChannelOpenFailure::ResourceShortage).await;
                return;
            }
            match tokio::time::timeout(PATIENCE, open(&target)).await {
                Ok(Ok(stream)) => {
                    reply.accept().await;
                    forwards.relay(stream, id, handle, shared);
                }
                failed => {
                    let why = failed.map_or_else(
                        |_| format!("no connection within {} s", PATIENCE.as_secs()),
                        |failed| failed.err().map_or_else(String::new, |error| error.to_string()),
                    );
                    log(&format!("forward to {target:?}: {why}"));
                    forwards.close(id);
                    reply.reject(ChannelOpenFailure::ConnectFailed).await;
                }
            }
        });
    }

    /// Copies in both directions until both have ended, or the client closes the channel.
    fn relay(&self, (source, destination): Ends, id: ChannelId, handle: Handle, shared: Arc<Shared>) {
        let mut channels = locked(&self.channels);
        let Some(channel) = channels.get_mut(&u32::from(id)) else { return };
        let Some(early) = channel.early.take() else { return };
        pump::feed(early, &channel.input, destination, Arc::clone(&shared));
        let (input, forwards) = (channel.input.clone(), self.clone());
        let task = tokio::spawn(async move {
            pump::forward(source, (handle.clone(), id), shared).await;
            let _ = handle.eof(id).await;
            input.closed().await;
            let _ = handle.close(id).await;
            // This task is none that must be ended any more.
            if let Some(channel) = locked(&forwards.channels).get_mut(&u32::from(id)) {
                channel.task = None;
            }
            forwards.close(id);
        });
        channel.task = Some(task.abort_handle());
    }

    /// Listens for a client. The port that was taken, or none.
    pub(super) async fn listen(
        &self,
        address: &str,
        port: u32,
        handle: Handle,
        shared: Arc<Shared>,
    ) -> Option<u32> {
        let wanted = u16::try_from(port).ok()?;
        if locked(&self.listeners).len() >= LISTENERS {
            return None;
        }
        let listener = match TcpListener::bind((LOOPBACK, wanted)).await {
            Ok(listener) => listener,
            Err(error) => {
                log(&format!("listen on port {port} for a client: {error}"));
                return None;
            }
        };
        let port = u32::from(listener.local_addr().ok()?.port());
        let (forwards, address) = (self.clone(), address.to_owned());
        let task = tokio::spawn(async move {
            loop {
                let (stream, peer) = crate::http::accept(&listener).await;
                let opened = handle.channel_open_forwarded_tcpip(
                    address.clone(),
                    port,
                    peer.ip().to_string(),
                    u32::from(peer.port()),
                );
                if let Ok(channel) = opened.await {
                    let shared = Arc::clone(&shared);
                    forwards.relay(ends(stream.into_split()), channel.id(), handle.clone(), shared);
                }
            }
        });
        locked(&self.listeners).insert(port, task.abort_handle());
        Some(port)
    }

    /// Listens no more.
    pub(super) fn cancel(&self, port: u32) -> bool {
        locked(&self.listeners).remove(&port).is_some_and(|listener| {
            listener.abort();
            true
        })
    }
}

/// The two halves of a connection.
type Ends = (Source, Destination);

fn ends<R, W>((reader, writer): (R, W)) -> Ends
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    (Source::Stream(Box::new(reader)), Destination::Stream(Box::new(writer)))
}

async fn open(target: &Target) -> std::io::Result<Ends> {
    match target {
        Target::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            let _ = stream.set_nodelay(true);
            Ok(ends(stream.into_split()))
        }
        Target::Socket(path) => Ok(ends(UnixStream::connect(path).await?.into_split())),
    }
}
