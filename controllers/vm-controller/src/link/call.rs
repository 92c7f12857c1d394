//! Requests to a runner: mutual TLS, HTTP/1.1.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use neonvm_types::runner_protocol::{RunnerStatus, STATUS_PATH};
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Target;

/// Time until the answer to a request begins, connection included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for an order to be answered.
const ORDER: Duration = Duration::from_secs(5);
/// Longest document.
const DOCUMENT: usize = 256 << 10;
/// Keepalive of a silent peer: time before the first probe, time between probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 3);
/// Least buffer that the HTTP library takes.
const BUFFER: usize = 8 << 10;

type Wire = Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// Reads documents until `take` returns that it was the last (`Ok`) or the stream breaks.
pub(super) async fn listen(
    target: &Target,
    tls: Arc<ClientConfig>,
    connecting: &Semaphore,
    mut take: impl FnMut(RunnerStatus) -> bool,
) -> Result<(), String> {
    let path = format!("{STATUS_PATH}?watch=true");
    let (answer, mut wire) = {
        let Ok(_place) = connecting.acquire().await else { return Err("stopped".to_owned()) };
        let opened = async {
            let (mut sender, mut wire) = connect(target, tls).await?;
            let answer =
                send(&mut sender, &mut wire, request(Method::GET, &path, Bytes::new(), target)?).await?;
            Ok::<_, String>((answer, wire))
        };
        tokio::time::timeout(PATIENCE, opened).await.map_err(|_| "no answer".to_owned())??
    };
    if !answer.status().is_success() {
        return Err(format!("the runner answered {}", answer.status()));
    }
    let mut body = answer.into_body();
    let mut line = Vec::new();
    let mut open = true;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            ended = &mut wire, if open => {
                open = false;
                if let Err(error) = ended {
                    return Err(error.to_string());
                }
                continue;
            }
        };
        let frame = frame.ok_or("the stream ended")?.map_err(|error| error.to_string())?;
        let Some(data) = frame.data_ref() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.len() > DOCUMENT {
                return Err("a document is too long".to_owned());
            }
            if part.ends_with(b"\n") {
                // Taken, so that no memory is held between documents.
                let text = std::mem::take(&mut line);
                let status =
                    serde_json::from_slice(&text).map_err(|error| format!("a bad document: {error}"))?;
                if !take(status) {
                    return Ok(());
                }
            }
        }
    }
}

/// An order that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The runner's answer; `None`: there was none.
    pub(crate) status: Option<StatusCode>,
    /// For people.
    pub(crate) message: String,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self { status: None, message }
    }
}

/// Sends an order; the body of the answer.
pub(super) async fn ask(
    target: &Target,
    tls: Arc<ClientConfig>,
    (method, path): (Method, &str),
    body: Vec<u8>,
) -> Result<Bytes, Refusal> {
    let asked = async {
        let (mut sender, mut wire) = connect(target, tls).await?;
        let request = request(method, path, body.into(), target)?;
        let answer = send(&mut sender, &mut wire, request).await?;
        let status = answer.status();
        let read = Limited::new(answer.into_body(), DOCUMENT).collect();
        let body = tokio::select! {
            read = read => read.map_err(|error| error.to_string())?.to_bytes(),
            // The connection drives the body; it ends only after it, or with an error.
            Err(error) = &mut wire => return Err(error.to_string().into()),
        };
        if !status.is_success() {
            let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            return Err(Refusal { status: Some(status), message: text.trim().to_owned() });
        }
        Ok(body)
    };
    tokio::time::timeout(ORDER, asked).await.map_err(|_| "the runner does not answer".to_owned())?
}

fn request(method: Method, path: &str, body: Bytes, target: &Target) -> Result<Request<Full<Bytes>>, String> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", target.host())
        .header("content-type", "application/json")
        .body(Full::new(body))
        .map_err(|error| error.to_string())
}

async fn connect(
    target: &Target,
    tls: Arc<ClientConfig>,
) -> Result<(SendRequest<Full<Bytes>>, Wire), String> {
    let failed = |error: std::io::Error| format!("cannot connect to the runner: {error}");
    let stream = TcpStream::connect(target.address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    keep_alive(&stream).map_err(|error| failed(error.into()))?;
    let name = ServerName::try_from(target.host()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(failed)?;
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER);
    builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
}

/// A node that vanished closes no connection; the kernel's keepalive detects it.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    let (idle, pause, count) = KEEPALIVE;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, pause)?;
    sockopt::set_tcp_keepcnt(stream, count)
}

async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    wire: &mut Wire,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    let answer = sender.send_request(request);
    tokio::select! {
        biased;
        answer = answer => answer.map_err(|error| error.to_string()),
        ended = wire => Err(ended.err().map_or("the connection ended".to_owned(), |error| error.to_string())),
    }
}
