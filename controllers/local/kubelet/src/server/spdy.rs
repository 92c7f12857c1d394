//! SPDY/3.1 inside a WebSocket, as newer clients forward ports: binary messages carry the bytes of SPDY frames. Each
//! forwarded connection is a pair of streams of the client's, one for errors and one for data, both with the headers
//! `port`, `requestid` and `streamtype`.

mod frame;
mod headers;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, WriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::port::{Stream, connect};
use super::websocket::{self, Opening, Sender};
use crate::node::Node;
use crate::pod::Handle;
use frame::{Frame, Frames};

/// Most streams of a tunnel.
const MOST: usize = 512;
/// Chunks that wait for a slow port.
const WAITING: usize = 32;

type Out = Arc<Mutex<Sender>>;

/// What goes to a port. `None`: the client sends no more.
type ToPort = mpsc::Sender<Option<Vec<u8>>>;

struct Tunnel {
    node: Arc<Node>,
    handle: Arc<Handle>,
    out: Out,
    /// Error streams by request.
    errors: BTreeMap<String, u32>,
    /// Data streams.
    ports: BTreeMap<u32, ToPort>,
    connections: JoinSet<()>,
    /// Whether a stream was accepted before: all replies share a zlib stream.
    has_replied: bool,
}

/// Serves a tunnel until the client is gone.
pub(super) async fn serve(node: Arc<Node>, handle: Arc<Handle>, opening: Opening) {
    let Some((sender, mut receiver)) = opening.open().await else { return };
    let out = Arc::new(Mutex::new(sender));
    let mut tunnel = Tunnel {
        node,
        handle,
        out,
        errors: BTreeMap::new(),
        ports: BTreeMap::new(),
        connections: JoinSet::new(),
        has_replied: false,
    };
    let mut frames = Frames::default();
    'tunnel: while let Some(message) = receiver.next().await {
        let taken = match frames.take(&message) {
            Ok(taken) => taken,
            Err(why) => {
                tracing::debug!(why, "a tunnel was closed");
                break;
            }
        };
        for frame in taken {
            if !tunnel.answer(frame).await {
                break 'tunnel;
            }
        }
    }
    tunnel.connections.shutdown().await;
    if let Some(out) = Arc::into_inner(tunnel.out) {
        websocket::end(out.into_inner(), receiver).await;
    }
}

impl Tunnel {
    async fn send(&self, bytes: Vec<u8>) -> bool {
        self.out.lock().await.send_raw(bytes.into()).await
    }

    /// False: the tunnel is over.
    async fn answer(&mut self, frame: Frame) -> bool {
        while self.connections.try_join_next().is_some() {}
        match frame {
            Frame::Open { stream, headers } => self.open(stream, &headers).await,
            Frame::Data { stream, bytes, last } => {
                if let Some(port) = self.ports.get(&stream) {
                    // What a port that is gone does not take is lost; its own task reports its end.
                    if !bytes.is_empty() {
                        let _ = port.send(Some(bytes)).await;
                    }
                    if last {
                        let _ = port.send(None).await;
                        self.ports.remove(&stream);
                    }
                }
                true
            }
            Frame::Reset { stream } => {
                self.ports.remove(&stream);
                true
            }
            Frame::Ping(bytes) => self.send(bytes).await,
            Frame::GoAway => false,
            Frame::Other => true,
        }
    }

    async fn open(&mut self, stream: u32, headers: &BTreeMap<String, String>) -> bool {
        let header = |name: &str| headers.get(name).map_or("", String::as_str);
        let (kind, request) = (header("streamtype"), header("requestid").to_owned());
        let port = header("port").parse::<u16>().ok().filter(|port| *port != 0);
        let Some(port) = port.filter(|_| self.errors.len() < MOST && self.ports.len() < MOST) else {
            return self.send(frame::reset(stream)).await;
        };
        let is_first = !std::mem::replace(&mut self.has_replied, true);
        if !self.send(frame::reply(stream, is_first)).await {
            return false;
        }
        if kind == "error" {
            self.errors.insert(request, stream);
            return true;
        }
        let errors = self.errors.remove(&request).unwrap_or_default();
        let (to_port, from_client) = mpsc::channel(WAITING);
        self.ports.insert(stream, to_port);
        let (node, handle, out) = (Arc::clone(&self.node), Arc::clone(&self.handle), Arc::clone(&self.out));
        self.connections.spawn(async move {
            let why = match connect(&node, &handle, port).await {
                Ok(connection) => carry(connection, stream, from_client, &out).await,
                Err(why) => Some(why),
            };
            let mut out = out.lock().await;
            if let Some(why) = why {
                let text = format!("error forwarding port {port} to pod: {why}");
                out.send_raw(frame::data(errors, text.as_bytes(), true).into()).await;
                out.send_raw(frame::data(stream, &[], true).into()).await;
            } else {
                out.send_raw(frame::data(stream, &[], true).into()).await;
                out.send_raw(frame::data(errors, &[], true).into()).await;
            }
        });
        true
    }
}

/// Joins a stream with a connection until the port sends no more. Returns the error, if any.
async fn carry(
    connection: Box<dyn Stream>,
    stream: u32,
    from_client: mpsc::Receiver<Option<Vec<u8>>>,
    out: &Out,
) -> Option<String> {
    let (mut reader, writer) = tokio::io::split(connection);
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn(write(writer, from_client));
    let mut buffer = vec![0; 16 << 10];
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) => return None,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                if !out.lock().await.send_raw(frame::data(stream, bytes, false).into()).await {
                    return None;
                }
            }
            Err(error) => return Some(error.to_string()),
        }
    }
}

async fn write(mut writer: WriteHalf<Box<dyn Stream>>, mut from_client: mpsc::Receiver<Option<Vec<u8>>>) {
    while let Some(Some(bytes)) = from_client.recv().await {
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
