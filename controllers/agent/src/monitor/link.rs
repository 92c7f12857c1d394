//! A websocket, and the requests that wait for an answer on it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use neonvm_types::monitor_protocol::{AgentMessage, MessageIds};
use neonvm_types::version::MonitorProtoVersion;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::guest::{BUFFER, Stream};

/// Longest message, in bytes.
const LONGEST: usize = 64 << 10;
/// A close frame has at most 125 bytes, two of them for its code.
const REASON: usize = 120;
/// Frames of other kinds that may come before the version.
const MOST_BEFORE_VERSION: usize = 16;
/// Time for a frame to be taken by the other side.
const SEND: Duration = Duration::from_secs(5);

struct Waiting {
    /// Number of the core; none for health checks.
    id: Option<u64>,
    request: AgentMessage,
    until: Instant,
}

/// What can happen on a connection.
pub(super) enum Happening {
    /// A text; `None` for a frame of another kind; an error ends the connection.
    Frame(Result<Option<String>, String>),
    /// A request was not answered in time, and is forgotten.
    Overdue { id: Option<u64>, request: AgentMessage },
}

fn understand(frame: Option<Result<Message, tungstenite::Error>>) -> Result<Option<String>, String> {
    match frame {
        Some(Ok(Message::Text(text))) => Ok(Some(text.to_string())),
        Some(Ok(Message::Close(frame))) => Err(match frame {
            Some(frame) => format!("the monitor closed the connection: {} {}", frame.code, frame.reason),
            None => "the monitor closed the connection".into(),
        }),
        Some(Ok(_)) => Ok(None),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the connection ended".into()),
    }
}

pub(super) struct Link {
    socket: WebSocketStream<Box<dyn Stream>>,
    ids: MessageIds,
    waiting: BTreeMap<u64, Waiting>,
    pub(super) version: MonitorProtoVersion,
}

impl Link {
    pub(super) async fn open(stream: Box<dyn Stream>, url: &str) -> Result<Self, String> {
        // The usual buffers have 128 KiB each; there are hundreds of guests.
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(LONGEST * 2)
            .max_message_size(Some(LONGEST))
            .max_frame_size(Some(LONGEST));
        let opened = tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await;
        let (socket, _) = opened.map_err(|error| format!("no websocket: {error}"))?;
        let version = MonitorProtoVersion::V1_0;
        Ok(Self { socket, ids: MessageIds::AGENT, waiting: BTreeMap::new(), version })
    }

    pub(super) async fn send_text(&mut self, text: String) -> Result<(), String> {
        match tokio::time::timeout(SEND, self.socket.send(Message::Text(text.into()))).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the monitor takes nothing for {} s", SEND.as_secs())),
        }
    }

    pub(super) async fn receive_text(&mut self) -> Result<String, String> {
        for _ in 0..MOST_BEFORE_VERSION {
            if let Some(text) = self.next().await? {
                return Ok(text);
            }
        }
        Err("the monitor sends anything but a version before the handshake".into())
    }

    /// The next text; `None` for a frame of another kind, which does not matter.
    async fn next(&mut self) -> Result<Option<String>, String> {
        understand(self.socket.next().await)
    }

    /// The next thing that happens.
    pub(super) async fn happening(&mut self) -> Happening {
        let first = self.waiting.iter().map(|(number, waiting)| (waiting.until, *number)).min();
        let overdue = async {
            match first {
                Some((until, _)) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            frame = self.socket.next() => Happening::Frame(understand(frame)),
            () = overdue => match first.and_then(|(_, number)| self.waiting.remove(&number)) {
                Some(Waiting { id, request, .. }) => Happening::Overdue { id, request },
                None => Happening::Frame(Ok(None)),
            },
        }
    }

    /// Sends a request that is to be answered within a time.
    pub(super) async fn request(
        &mut self,
        id: Option<u64>,
        request: AgentMessage,
        within: Duration,
    ) -> Result<(), String> {
        let number = self.ids.advance();
        let text = request.encode(number).map_err(|error| error.to_string())?;
        self.waiting.insert(number, Waiting { id, request, until: Instant::now() + within });
        self.send_text(text).await
    }

    /// Reports an invalid message to the monitor.
    pub(super) async fn complain(&mut self, number: u64, why: &str) -> Result<(), String> {
        let message = AgentMessage::InvalidMessage { error: why.to_owned() };
        let text = message.encode(number).map_err(|error| error.to_string())?;
        self.send_text(text).await
    }

    /// The request that a message with this number answers.
    pub(super) fn waiting(&mut self, number: u64) -> Option<(Option<u64>, AgentMessage)> {
        self.waiting.remove(&number).map(|waiting| (waiting.id, waiting.request))
    }

    /// Requests that are not answered yet.
    pub(super) fn unanswered(&self) -> usize {
        self.waiting.len()
    }

    /// Requests of the core that will not be answered any more.
    pub(super) fn abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_values().filter_map(|waiting| waiting.id).collect()
    }

    /// Ends the connection: normally, or for this reason.
    pub(super) async fn close(&mut self, why: Option<&str>) {
        let code = if why.is_some() { CloseCode::Error } else { CloseCode::Normal };
        self.close_with(code, why.unwrap_or_default()).await;
    }

    /// Ends the connection because the other side does not keep to the protocol.
    pub(super) async fn close_protocol(&mut self, why: &str) {
        self.close_with(CloseCode::Protocol, why).await;
    }

    async fn close_with(&mut self, code: CloseCode, why: &str) {
        let mut end = why.len().min(REASON);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let reason = why.get(..end).unwrap_or_default().to_owned().into();
        let closed = self.socket.close(Some(CloseFrame { code, reason }));
        let _ = tokio::time::timeout(Duration::from_secs(1), closed).await;
    }
}
