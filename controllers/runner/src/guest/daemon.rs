//! The daemon in the guest: CPUs on line, file systems, files, metrics. HTTP/1.1 without TLS on a link that only the runner and the
//! guest share. Every request has a deadline and a separate connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_types::MilliCpu;
use neonvm_types::guest::{
    CLOCK_PATH, DAEMON_PORT, FREEZE_PATH, FileSystem, FreezeRequest, FreezeState, Frozen, GROW_PATH,
    METRICS_PORT, SUSPEND_PATH, THAW_PATH, Thawed,
};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::network::Reach;

const QUESTION: Duration = Duration::from_secs(1);
/// Time for a change of CPUs: each one on or off line takes up to a tenth of a second when emulated.
const CHANGE: Duration = Duration::from_secs(10);
const FILES: Duration = Duration::from_secs(10);
/// Time for file systems to grow: the tables of inodes of many new groups are written.
const GROWTH: Duration = Duration::from_secs(60);
/// Time for a freeze: what is in the guest's memory is written back before.
const FREEZE: Duration = Duration::from_secs(60);
/// Time for a thaw, which waits for a freeze that begins.
const THAW: Duration = Duration::from_secs(20);
/// More is not read.
const LARGEST: usize = 1 << 20;

/// Why the daemon could not be queried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the guest's port {0} cannot be reached in this network mode")]
    NoWay(u16),
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("connect: {0}")]
    Connect(std::io::Error),
    #[error("http: {0}")]
    Http(String),
    #[error("status {0}: {1}")]
    Status(StatusCode, String),
    #[error("the answer {0:?} is not a number")]
    Answer(String),
    #[error("the answer cannot be read: {0}")]
    Document(String),
}

/// The daemon of one guest; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    reach: Reach,
}

impl Daemon {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach }
    }

    /// CPUs on line.
    pub(crate) async fn online(&self) -> Result<u32, Error> {
        let body = self.send(DAEMON_PORT, Method::GET, "/cpu", Bytes::new(), QUESTION).await?;
        milli(&body).map(|cpu| cpu.cpus_rounded_up())
    }

    /// Brings CPUs online or offline, then returns how many are online.
    pub(crate) async fn set_cpus(&self, cpu: MilliCpu) -> Result<u32, Error> {
        let body = Bytes::from(cpu.milli().to_string());
        self.send(DAEMON_PORT, Method::PUT, "/cpu", body, CHANGE).await?;
        self.online().await
    }

    /// Replaces the files below a path of the guest. The body is `{"name": {"data": "base64"}}`.
    pub(crate) async fn put_files(&self, path: &str, body: Vec<u8>) -> Result<(), Error> {
        self.send(DAEMON_PORT, Method::PUT, &files_path(path), body.into(), FILES).await.map(drop)
    }

    /// Grows the file systems on all disks of the VM to their disks, and lists them; `None`: the daemon is of a version that cannot.
    pub(crate) async fn grow(&self) -> Result<Option<Vec<FileSystem>>, Error> {
        match self.send(DAEMON_PORT, Method::POST, GROW_PATH, Bytes::new(), GROWTH).await {
            Ok(body) => document(&body).map(Some),
            Err(Error::Status(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the guest agrees to be suspended now; otherwise why not. A daemon of a version that does not know the question agrees.
    pub(crate) async fn may_suspend(&self) -> Result<(), String> {
        match self.send(DAEMON_PORT, Method::POST, SUSPEND_PATH, Bytes::new(), QUESTION).await {
            Ok(_) | Err(Error::Status(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => Ok(()),
            Err(Error::Status(StatusCode::CONFLICT, why)) => Err(why),
            Err(error) => Err(format!("the guest does not answer: {error}")),
        }
    }

    /// Sets the guest's clock to that of this host.
    pub(crate) async fn set_clock(&self) -> Result<(), Error> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let body = Bytes::from(now.as_nanos().to_string());
        self.send(DAEMON_PORT, Method::PUT, CLOCK_PATH, body, QUESTION).await.map(drop)
    }

    /// Freezes file systems.
    pub(crate) async fn freeze(&self, request: &FreezeRequest) -> Result<Frozen, Error> {
        let body = serde_json::to_vec(request).unwrap_or_default();
        document(&self.send(DAEMON_PORT, Method::POST, FREEZE_PATH, body.into(), FREEZE).await?)
    }

    /// Whether a freeze is in force.
    pub(crate) async fn freeze_state(&self) -> Result<FreezeState, Error> {
        document(&self.send(DAEMON_PORT, Method::GET, FREEZE_PATH, Bytes::new(), QUESTION).await?)
    }

    /// Ends a freeze.
    pub(crate) async fn thaw(&self) -> Result<Thawed, Error> {
        document(&self.send(DAEMON_PORT, Method::POST, THAW_PATH, Bytes::new(), THAW).await?)
    }

    /// Metrics in the text format of Prometheus.
    pub(crate) async fn metrics(&self) -> Result<String, Error> {
        let body = self.send(METRICS_PORT, Method::GET, "/metrics", Bytes::new(), QUESTION).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn send(
        &self,
        port: u16,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, Error> {
        let address = self.reach.address(port).ok_or(Error::NoWay(port))?;
        let sent = tokio::time::timeout(limit, exchange(address, method, path, body));
        let (status, body) = sent.await.map_err(|_| Error::Timeout(limit))??;
        if status.is_success() {
            return Ok(body);
        }
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
        Err(Error::Status(status, text))
    }
}

fn document<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Document(error.to_string()))
}

fn files_path(path: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("/files");
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn milli(body: &[u8]) -> Result<MilliCpu, Error> {
    let text = String::from_utf8_lossy(body);
    let number = text.trim().parse().map_err(|_| Error::Answer(text.chars().take(40).collect()))?;
    Ok(MilliCpu::new(number))
}

async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes), Error> {
    let stream = TcpStream::connect(address).await.map_err(Error::Connect)?;
    let _ = stream.set_nodelay(true);
    let failed = |error: hyper::Error| Error::Http(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header(header::HOST, "guest-vm");
    let request = request.body(Full::new(body)).map_err(|error| Error::Http(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| Error::Http(error.to_string()))?.to_bytes();
    connection.abort();
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_numbers_are_errors() {
        assert_eq!(milli(b"2000\n").unwrap(), MilliCpu::new(2000));
        for bad in [&b""[..], b"x", b"-1", b"99999999999", b"\xff"] {
            assert!(milli(bad).is_err());
        }
    }

    #[test]
    fn paths_are_escaped() {
        assert_eq!(files_path("/var/a b/ü"), "/files/var/a%20b/%C3%BC");
    }
}
