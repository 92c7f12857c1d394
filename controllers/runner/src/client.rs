//! Commands run inside the container (`kubectl exec`): they talk to the runner through its socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_api::runner_pod::{RUN_DIRECTORY, RUN_SOCKET};
use neonvm_hypervisor::patience::scaled;
use neonvm_types::guest::FreezeRequest;
use neonvm_types::runner_protocol as protocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Time for a freeze, or its end: more than the runner gives its guest.
const FREEZE: Duration = Duration::from_secs(70);
/// Time for a plain question.
const QUESTION: Duration = Duration::from_secs(10);
/// Time for a VM to wake, and a little more.
const WAKE: Duration = Duration::from_secs(35);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runner is not there.
    #[error(
        "cannot reach the runner at {path}: {source}; is this the runner's container, and does the VM run?"
    )]
    Connect {
        path: String,
        /// Error of the socket.
        source: std::io::Error,
    },
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// It does not answer.
    #[error("the runner does not answer")]
    Silent,
    /// The connection broke.
    #[error("the connection to the runner broke: {0}")]
    Broken(String),
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Broken(error.to_string())
}

/// Paths of sockets have at most 107 bytes; a link in `/proc` makes any directory short.
async fn connect(root: &Path) -> Result<UnixStream, Error> {
    let directory = crate::config::below(root, RUN_DIRECTORY);
    let path = directory.join(RUN_SOCKET);
    let failed = |source| Error::Connect { path: path.display().to_string(), source };
    let handle = std::fs::File::open(&directory).map_err(failed)?;
    let short: PathBuf = crate::config::through(&handle).join(RUN_SOCKET);
    UnixStream::connect(short).await.map_err(failed)
}

type Response = hyper::Response<hyper::body::Incoming>;

/// A request without a body.
async fn send(root: &Path, method: Method, path: &str, upgrade: bool) -> Result<Response, Error> {
    send_with(root, method, path, upgrade, Bytes::new(), QUESTION).await
}

async fn send_with(
    root: &Path,
    method: Method,
    path: &str,
    upgrade: bool,
    body: Bytes,
    within: Duration,
) -> Result<Response, Error> {
    let stream = connect(root).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "runner");
    if upgrade {
        request =
            request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, protocol::STREAM_PROTOCOL);
    }
    let request = request.body(Full::new(body)).map_err(broken)?;
    let sent = tokio::time::timeout(scaled(within), sender.send_request(request)).await;
    sent.map_err(|_| Error::Silent)?.map_err(broken)
}

async fn refusal(response: Response) -> Error {
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    Error::Refused(if text.is_empty() { format!("the runner returned {status}") } else { text })
}

/// The answer to a question, as text.
///
/// # Errors
/// If the runner cannot be reached or refuses.
pub async fn ask(root: &Path, question: Question) -> Result<String, Error> {
    let (method, path) = match question {
        Question::Status => (Method::GET, protocol::STATUS_PATH),
        Question::Statistics => (Method::GET, protocol::STATISTICS_PATH),
        Question::Disks => (Method::GET, protocol::DISKS_PATH),
        Question::PowerOff => (Method::POST, protocol::POWER_OFF_PATH),
        Question::Wake => (Method::POST, protocol::WAKE_PATH),
    };
    let within = if question == Question::Wake { WAKE } else { QUESTION };
    body_of(send_with(root, method, path, false, Bytes::new(), within).await?).await
}

/// Freezes file systems of the guest, or thaws them; the answer as text.
///
/// # Errors
/// If the runner cannot be reached or refuses.
pub async fn freeze(root: &Path, request: Option<&FreezeRequest>) -> Result<String, Error> {
    let path = if request.is_some() { protocol::FREEZE_PATH } else { protocol::THAW_PATH };
    let body = request.map(serde_json::to_vec).transpose().map_err(broken)?.unwrap_or_default();
    body_of(send_with(root, Method::POST, path, false, body.into(), FREEZE).await?).await
}

async fn body_of(response: Response) -> Result<String, Error> {
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let body = tokio::time::timeout(scaled(QUESTION), response.into_body().collect())
        .await
        .map_err(|_| Error::Silent)?;
    Ok(String::from_utf8_lossy(&body.map_err(broken)?.to_bytes()).trim().to_owned())
}

/// The requests of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Status,
    /// Counters of the runner's QEMU.
    Statistics,
    /// How full the disks are.
    Disks,
    /// To press the power button.
    PowerOff,
    /// To wake a suspended VM.
    Wake,
}

/// What standard input and output can be joined with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Console,
    /// A TCP port of the guest.
    Port(u16),
}

/// Joins standard input and output with the VM until its side ends.
///
/// # Errors
/// If the runner cannot be reached or refuses.
pub async fn join(root: &Path, target: Target) -> Result<(), Error> {
    let path = match target {
        Target::Console => protocol::CONSOLE_PATH.to_owned(),
        Target::Port(port) => format!("{}{port}", protocol::GUEST_PORT_PATH),
    };
    let mut response = send(root, Method::GET, &path, true).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response).await);
    }
    let stream = TokioIo::new(hyper::upgrade::on(&mut response).await.map_err(broken)?);
    let (mut from, mut to) = tokio::io::split(stream);
    // A blocking read of standard input cannot be ended; the process ends with its task.
    tokio::spawn(async move {
        let mut input = tokio::io::stdin();
        let _ = tokio::io::copy(&mut input, &mut to).await;
        let _ = to.shutdown().await;
    });
    let (mut output, mut buffer) = (tokio::io::stdout(), vec![0; 16 << 10]);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        output.write_all(buffer.get(..count).unwrap_or_default()).await.map_err(broken)?;
        output.flush().await.map_err(broken)?;
    }
    Ok(())
}
