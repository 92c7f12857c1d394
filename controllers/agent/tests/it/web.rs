//! A small HTTP server with a behaviour that the test determines, above all what no server should do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// What is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Answered well, as HTTP goes.
    Text(u16, String),
    /// Bytes that need not be HTTP; then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, as long as the other side waits.
    Silence,
    /// The answer comes after the client has stopped waiting.
    Late(u16, String),
    /// The answer comes after this time.
    After(std::time::Duration, String),
    /// A body that does not end.
    Endless,
    /// A head that does not end.
    EndlessHead,
    /// Less than the content length, then the end.
    Cut,
    /// The end without a word.
    HangUp,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query, as it was sent.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// The server. Dropped, it is gone with all connections.
#[derive(Debug)]
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Web {
    /// Listens; `answer` determines the response to each request.
    pub(crate) async fn start(
        address: SocketAddr,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(address, None, answer).await
    }

    /// As [`Web::start`], with TLS if there is a configuration of it.
    pub(crate) async fn start_with(
        address: SocketAddr,
        tls: Option<ServerConfig>,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, open) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn({
            let (requests, open, answer) = (Arc::clone(&requests), Arc::clone(&open), Arc::new(answer));
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    while connections.try_join_next().is_some() {}
                    let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                    let guard = Open::new(&open);
                    let acceptor = acceptor.clone();
                    connections.spawn(async move {
                        let _guard = guard;
                        let _ = match acceptor {
                            Some(acceptor) => match acceptor.accept(stream).await {
                                Ok(stream) => connection(stream, &requests, &*answer).await,
                                Err(error) => Err(error),
                            },
                            None => connection(stream, &requests, &*answer).await,
                        };
                    });
                }
            }
        });
        Self { address, requests, open, task }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests came so far.
    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &Mutex<Vec<Request>>,
    answer: &(impl Fn(&Request) -> Reply + ?Sized),
) -> std::io::Result<()> {
    let mut waiting = Vec::new();
    while let Some(request) = read(&mut stream, &mut waiting).await? {
        let reply = answer(&request);
        requests.lock().unwrap().push(request);
        match reply {
            Reply::Text(status, body) => stream.write_all(whole(status, &body).as_bytes()).await?,
            Reply::Raw(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Reply::Silence => return closed(&mut stream).await,
            Reply::Late(status, body) => {
                closed(&mut stream).await?;
                return stream.write_all(whole(status, &body).as_bytes()).await;
            }
            Reply::After(wait, body) => {
                tokio::time::sleep(wait).await;
                stream.write_all(whole(200, &body).as_bytes()).await?;
            }
            Reply::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                let chunk = format!("1000\r\n{}\r\n", "x 1\n".repeat(0x400));
                loop {
                    stream.write_all(chunk.as_bytes()).await?;
                }
            }
            Reply::EndlessHead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                loop {
                    stream.write_all(b"X-More: and more and more\r\n").await?;
                }
            }
            Reply::Cut => {
                return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{\"per").await;
            }
            Reply::HangUp => return Ok(()),
        }
    }
    Ok(())
}

fn whole(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Waits until the other side closes the connection.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The next request; none if the connection ended.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    waiting: &mut Vec<u8>,
) -> std::io::Result<Option<Request>> {
    loop {
        if let Some(end) = waiting.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&waiting[..end]).into_owned();
            let mut request = parse(&head);
            let length: usize = request.headers.get("content-length").map_or(0, |text| text.parse().unwrap());
            if waiting.len() >= end + 4 + length {
                request.body = waiting[end + 4..end + 4 + length].to_vec();
                waiting.drain(..end + 4 + length);
                return Ok(Some(request));
            }
        }
        let mut more = [0; 16 << 10];
        let count = stream.read(&mut more).await?;
        if count == 0 {
            return Ok(None);
        }
        waiting.extend_from_slice(&more[..count]);
    }
}

fn parse(head: &str) -> Request {
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut word = || first.next().unwrap_or_default().to_owned();
    let (method, path) = (word(), word());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Request { method, path, headers: lines.filter_map(header).collect(), body: Vec::new() }
}
