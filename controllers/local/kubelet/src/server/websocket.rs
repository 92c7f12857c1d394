//! WebSockets with the channels of Kubernetes: the first byte of a message is the number of its stream.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::body::{Response, text};

/// Largest message, in bytes.
const LIMIT: usize = 1 << 20;
/// How long a client may take to confirm the end of a conversation.
const LINGER: Duration = Duration::from_secs(60);

/// A WebSocket that is about to open.
pub(super) struct Opening {
    upgrade: OnUpgrade,
    pub(super) protocol: &'static str,
}

/// Agrees on a protocol. The answer is to be sent; then the socket [opens](Opening::open).
pub(super) fn accept(
    mut request: hyper::Request<Incoming>,
    known: &[&'static str],
) -> Result<(Opening, Response), Box<Response>> {
    let upgrade = hyper::upgrade::on(&mut request);
    let headers = request.headers();
    let is_websocket = headers
        .get(header::UPGRADE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_websocket) else {
        return Err(Box::new(text(
            StatusCode::BAD_REQUEST,
            "unable to upgrade: only WebSockets are served here",
        )));
    };
    let offered: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let Some(protocol) = known.iter().copied().find(|protocol| offered.contains(protocol)) else {
        let why = format!("no common protocol: {} offered, {} known", offered.join(", "), known.join(", "));
        return Err(Box::new(text(StatusCode::BAD_REQUEST, why)));
    };
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    *response.body_mut() = http_body_util::BodyExt::boxed_unsync(http_body_util::BodyExt::map_err(
        http_body_util::Empty::new(),
        |never: std::convert::Infallible| match never {},
    ));
    let own = response.headers_mut();
    own.remove(header::CONTENT_TYPE);
    own.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    own.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        own.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    own.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((Opening { upgrade, protocol }, response))
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Where messages are sent.
pub(super) struct Sender(SplitSink<Socket, Message>);

/// Where messages come from.
pub(super) struct Receiver(SplitStream<Socket>);

impl Opening {
    /// Opens the socket. None: the client is gone.
    pub(super) async fn open(self) -> Option<(Sender, Receiver)> {
        let upgraded = self.upgrade.await.ok()?;
        let config = WebSocketConfig::default().max_message_size(Some(LIMIT)).max_frame_size(Some(LIMIT));
        let socket =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        let (sender, receiver) = socket.split();
        Some((Sender(sender), Receiver(receiver)))
    }
}

impl Sender {
    /// Sends bytes on a channel. False: the client is gone.
    pub(super) async fn send(&mut self, channel: u8, bytes: &[u8]) -> bool {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        self.send_raw(message.into()).await
    }

    /// Sends a message as it is. False: the client is gone.
    pub(super) async fn send_raw(&mut self, bytes: Bytes) -> bool {
        self.0.send(Message::Binary(bytes)).await.is_ok()
    }

    /// Sends the close frame. False: the client is gone.
    async fn close(&mut self) -> bool {
        let over = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        self.0.send(Message::Close(Some(over))).await.is_ok()
    }
}

/// Ends a conversation so that a slow client still gets all of it. Reads until the client has confirmed the end: closing
/// a socket with unread data discards what is on its way. TLS is closed as well: without its closing message, the client
/// takes the conversation as cut short.
pub(super) async fn end(mut sender: Sender, mut receiver: Receiver) {
    let confirmed = async {
        if sender.close().await {
            while receiver.next().await.is_some() {}
        }
    };
    let _ = tokio::time::timeout(LINGER, confirmed).await;
    if let Ok(mut socket) = sender.0.reunite(receiver.0) {
        let _ = socket.get_mut().shutdown().await;
    }
}

impl Receiver {
    /// The next message. None: the client is gone.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.0.next().await? {
                Ok(Message::Binary(bytes)) => return Some(bytes),
                Ok(Message::Text(text)) => return Some(Bytes::copy_from_slice(text.as_bytes())),
                Ok(Message::Close(_)) | Err(_) => return None,
                // Pings are answered by the library.
                Ok(_) => {}
            }
        }
    }
}
