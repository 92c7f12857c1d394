//! From a TCP connection to a websocket with an agreed version, within a deadline.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use neonvm_types::monitor_protocol::{HandshakeReply, MONITOR_PATH, SUPPORTED, decode_offer};
use neonvm_types::version::MonitorProtoVersion;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::informant;
use super::session::{self, Socket};
use super::traffic::Input;
use crate::http::{self, Response};

/// Most connections at a time, with those that are being set up and those that are being closed.
const CONNECTIONS: usize = 64;
/// How long it may take from the connection to the agreed version. Agents give it the same.
const HANDSHAKE: Duration = Duration::from_secs(4);
/// How long the kernel tries to hand data to a peer that does not take it, in milliseconds.
const UNSENT_DEADLINE: u32 = 10_000;
/// Largest frame and largest message, in bytes.
const LARGEST: usize = 64 * 1024;
/// Messages that wait for an agent to read; one that reads no more loses its connection.
const UNREAD: usize = 32;

/// Accepts agents for ever.
pub(super) async fn serve(
    listener: TcpListener,
    inputs: mpsc::Sender<Input>,
    informant: bool,
    peers: Vec<IpAddr>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut session = 0_u64;
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = http::accept(&listener).await;
        if !http::may(&peers, peer) {
            continue;
        }
        session = session.wrapping_add(1);
        let inputs = inputs.clone();
        tokio::task::spawn_local(async move {
            let _permit = permit;
            connection(stream, session, &inputs, informant).await;
        });
    }
}

async fn connection(stream: TcpStream, session: u64, inputs: &mpsc::Sender<Input>, informant: bool) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNSENT_DEADLINE);
    let Ok(Some((mut socket, agreed))) =
        timeout(HANDSHAKE, set_up(stream, informant.then_some(inputs))).await
    else {
        return;
    };
    let version = match agreed {
        Ok(version) => version,
        Err(reason) => return session::close(&mut socket, CloseCode::Protocol, &reason).await,
    };
    let (sender, mut outgoing) = mpsc::channel(UNREAD);
    if inputs.send(Input::Connected { session, version, outgoing: sender }).await.is_ok() {
        session::run(&mut socket, session, inputs, &mut outgoing).await;
        let _ = inputs.send(Input::Gone { session }).await;
    }
}

/// The websocket, and the version or why there is none. None if it did not come to a websocket.
/// With `informant`, requests of agents with that protocol are answered; each has a connection of its own.
async fn set_up(
    stream: TcpStream,
    informant: Option<&mpsc::Sender<Input>>,
) -> Option<(Socket, Result<MonitorProtoVersion, String>)> {
    let upgraded: Rc<Cell<Option<OnUpgrade>>> = Rc::default();
    let place = Rc::clone(&upgraded);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let place = Rc::clone(&place);
        async move {
            let mut answer = match informant {
                Some(inputs) if informant::has(request.uri().path()) => {
                    informant::answer(request, inputs).await
                }
                _ => {
                    let answer = accept(&request);
                    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                        place.set(Some(hyper::upgrade::on(&mut request)));
                        return Ok::<_, Infallible>(answer);
                    }
                    answer
                }
            };
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            Ok(answer)
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(16 * 1024).max_headers(64);
    let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    let stream = upgraded.take()?.await.ok()?;
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * LARGEST)
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await;
    let agreed = agree(&mut socket).await?;
    Some((socket, agreed))
}

/// Reads the agent's first text and answers it.
async fn agree(socket: &mut Socket) -> Option<Result<MonitorProtoVersion, String>> {
    let offer = loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => break text,
            Message::Close(_) => return None,
            _ => {}
        }
    };
    let reply = match decode_offer(offer.as_bytes()) {
        Ok(offered) => HandshakeReply::to_offer(offered, SUPPORTED),
        Err(error) => HandshakeReply::Error(error.to_string()),
    };
    let text = serde_json::to_string(&reply).ok()?;
    if !session::send(socket, Message::text(text)).await {
        return None;
    }
    Some(match reply {
        HandshakeReply::Version(version) => Ok(version),
        HandshakeReply::Error(error) => Err(error),
    })
}

/// The answer to a request: 101 if it requests the monitor's websocket.
fn accept(request: &Request<Incoming>) -> Response {
    if request.uri().path() != MONITOR_PATH {
        return http::text(StatusCode::NOT_FOUND, "not found\n");
    }
    if request.method() != Method::GET {
        return http::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let headers = request.headers();
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| {
        has(headers, &CONNECTION, "upgrade")
            && has(headers, &UPGRADE, "websocket")
            && has(headers, &SEC_WEBSOCKET_VERSION, "13")
    });
    let accepted = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    let Some(accepted) = accepted else {
        let mut response = http::text(StatusCode::UPGRADE_REQUIRED, "this is a websocket, version 13\n");
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    };
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    response
}

/// Whether a header's list has the word, in whatever case.
fn has(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
