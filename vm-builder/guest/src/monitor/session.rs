//! One agent's websocket after the handshake.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::traffic::{Input, Outgoing};

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// How long a frame may take to be sent, and how long the peer may take to close.
const SEND_DEADLINE: Duration = Duration::from_secs(5);
/// Silence after which the agent is sent a ping, and again after which the connection is closed. Agents send a message
/// every 5 s.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest reason of a close frame, in bytes (RFC 6455: 125 with the code).
const LONGEST_REASON: usize = 123;

/// Carries messages both ways until one side ends it.
pub(super) async fn run(
    socket: &mut Socket,
    session: u64,
    inputs: &mpsc::Sender<Input>,
    outgoing: &mut mpsc::Receiver<Outgoing>,
) {
    let mut asked = false;
    let mut silent_at = Instant::now() + SILENCE;
    loop {
        let frame = tokio::select! {
            out = outgoing.recv() => match out {
                Some(Outgoing::Text(text)) => {
                    if !send(socket, Message::text(text)).await {
                        return;
                    }
                    continue;
                }
                Some(Outgoing::Close(reason)) => return close(socket, CloseCode::Normal, &reason).await,
                None => return close(socket, CloseCode::Policy, "answers are not read").await,
            },
            () = sleep_until(silent_at) => {
                if asked || !send(socket, Message::Ping(Vec::new().into())).await {
                    return close(socket, CloseCode::Away, "nothing was received for a minute").await;
                }
                asked = true;
                silent_at = Instant::now() + SILENCE;
                continue;
            }
            frame = socket.next() => frame,
        };
        (asked, silent_at) = (false, Instant::now() + SILENCE);
        match frame {
            Some(Ok(Message::Text(text))) => {
                if inputs.send(Input::Text { session, text }).await.is_err() {
                    return;
                }
            }
            // Pings are answered by the library; what is not text is not for us.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(_))) => {
                // Answers that are still to come have no receiver.
                outgoing.close();
                return drain(socket).await;
            }
            Some(Err(error)) => return fail(socket, &error).await,
            None => return,
        }
    }
}

/// Sends within the deadline; whether it was sent.
pub(super) async fn send(socket: &mut Socket, message: Message) -> bool {
    matches!(timeout(SEND_DEADLINE, socket.send(message)).await, Ok(Ok(())))
}

async fn fail(socket: &mut Socket, error: &Error) {
    let code = match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => CloseCode::Size,
        Error::Utf8(_) => CloseCode::Invalid,
        Error::Protocol(_) => CloseCode::Protocol,
        _ => return,
    };
    close(socket, code, &error.to_string()).await;
}

/// Sends a close frame and waits a little for the peer's: a connection dropped with unread data loses what was sent last.
pub(super) async fn close(socket: &mut Socket, code: CloseCode, reason: &str) {
    let mut end = reason.len().min(LONGEST_REASON);
    while !reason.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let reason = Utf8Bytes::from(reason.get(..end).unwrap_or_default());
    let frame = CloseFrame { code, reason };
    if matches!(timeout(SEND_DEADLINE, socket.close(Some(frame))).await, Ok(Ok(()))) {
        drain(socket).await;
    }
}

/// Reads on until the other side is done too.
async fn drain(socket: &mut Socket) {
    let rest = async { while let Some(Ok(_)) = socket.next().await {} };
    let _ = timeout(SEND_DEADLINE, rest).await;
}
