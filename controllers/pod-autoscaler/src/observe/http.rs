//! One GET of a metrics endpoint: over a connection that is kept if the endpoint likes that, with a deadline, a limit, and a
//! reason if nothing comes of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_core_podscale::{Missing, MissingReason};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::idle::{Idle, Kept, places};
use crate::Config;

/// Longest answer, in bytes; the limit of many scrapers. Larger ones are for endpoints that a person should look at.
const LARGEST: usize = 16 << 20;
/// Of so many places for connections that are kept one is for one with TLS.
const SECURED: usize = 16;
/// What is understood.
const ACCEPT: &str = "text/plain;version=0.0.4;q=1,*/*;q=0.1";

/// Where to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    /// Name or address, and port.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// Reads endpoints, so many at once.
#[derive(Debug)]
pub(crate) struct Reader {
    places: Semaphore,
    within: Duration,
    tls: Arc<ClientConfig>,
    plain: Idle<TcpStream>,
    /// Fewer: each takes some tens of KiB.
    secured: Idle<TlsStream<TcpStream>>,
}

fn missing(reason: MissingReason, message: impl Into<String>) -> Missing {
    Missing::new(reason, message)
}

impl Reader {
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let tls = match &config.scrape_authority {
            Some(path) => {
                let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
                let builder =
                    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
                builder.with_root_certificates(authorities(path)?).with_no_client_auth()
            }
            None => neonvm_kit::tls::unchecked().map_err(|error| error.to_string())?,
        };
        let kept = places();
        Ok(Self {
            places: Semaphore::new(config.scrapes.max(1)),
            within: config.scrape_timeout,
            tls: Arc::new(tls),
            plain: Idle::new(kept),
            secured: Idle::new(kept / SECURED),
        })
    }

    /// The answer, whole. Waiting for a place does not count as time of the endpoint.
    pub(crate) async fn read(&self, endpoint: &Endpoint) -> Result<Bytes, Missing> {
        let Ok(_place) = self.places.acquire().await else {
            return Err(missing(MissingReason::NotRead, "the autoscaler ends"));
        };
        match tokio::time::timeout(self.within, self.attempt(endpoint)).await {
            Ok(done) => done,
            Err(_) => {
                let text = format!("{endpoint} did not answer within {} ms", self.within.as_millis());
                Err(missing(MissingReason::TimedOut, text))
            }
        }
    }

    async fn attempt(&self, endpoint: &Endpoint) -> Result<Bytes, Missing> {
        if endpoint.tls {
            over(&self.secured, endpoint, self.connect_secured(endpoint)).await
        } else {
            over(&self.plain, endpoint, connect(endpoint)).await
        }
    }

    async fn connect_secured(&self, endpoint: &Endpoint) -> Result<TlsStream<TcpStream>, Missing> {
        let stream = connect(endpoint).await?;
        let name =
            ServerName::try_from(endpoint.host.clone()).map_err(|error| unreachable(endpoint, &error))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        stream.map_err(|error| unreachable(endpoint, &error))
    }
}

fn unreachable(endpoint: &Endpoint, error: &dyn std::fmt::Display) -> Missing {
    missing(MissingReason::Unreachable, format!("{endpoint}: {error}"))
}

async fn connect(endpoint: &Endpoint) -> Result<TcpStream, Missing> {
    let stream = match endpoint.host.parse() {
        Ok(address) => TcpStream::connect(SocketAddr::new(address, endpoint.port)).await,
        Err(_) => TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await,
    };
    stream.map_err(|error| unreachable(endpoint, &error))
}

/// Asks over the connection that was kept, or over a new one.
async fn over<S>(
    idle: &Idle<S>,
    endpoint: &Endpoint,
    fresh: impl Future<Output = Result<S, Missing>>,
) -> Result<Bytes, Missing>
where
    S: Kept + AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Some(stream) = idle.take(endpoint) {
        match ask(endpoint, stream).await {
            // The endpoint may have closed it just now, which says nothing about the endpoint.
            (Err(missing), _) if missing.reason == MissingReason::Unreadable => {}
            done => return keep(idle, endpoint, done),
        }
    }
    keep(idle, endpoint, ask(endpoint, fresh.await?).await)
}

fn keep<S: Kept>(
    idle: &Idle<S>,
    endpoint: &Endpoint,
    (answer, stream): (Result<Bytes, Missing>, Option<S>),
) -> Result<Bytes, Missing> {
    if let Some(stream) = stream {
        idle.put(endpoint, stream);
    }
    answer
}

/// The answer, and the connection if it can be used again.
async fn ask<S>(endpoint: &Endpoint, stream: S) -> (Result<Bytes, Missing>, Option<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = match http1::handshake(TokioIo::new(stream)).await {
        Ok(made) => made,
        Err(error) => return (Err(broken(endpoint, &error)), None),
    };
    // In one task: the connection is driven by whoever reads it.
    let connection = connection.without_shutdown();
    let exchange = exchange(endpoint, sender);
    tokio::pin!(connection);
    tokio::pin!(exchange);
    let mut open = true;
    let done = loop {
        tokio::select! {
            biased;
            done = &mut exchange => break done,
            _ = &mut connection, if open => open = false,
        }
    };
    match done {
        Ok((bytes, true)) if open => {
            // Nobody can ask any more, so it gives back what it is made of.
            let parts = connection.await.ok().filter(|parts| parts.read_buf.is_empty());
            (Ok(bytes), parts.map(|parts| parts.io.into_inner()))
        }
        done => (done.map(|(bytes, _)| bytes), None),
    }
}

fn broken(endpoint: &Endpoint, error: &hyper::Error) -> Missing {
    missing(MissingReason::Unreadable, format!("{endpoint}: {error}"))
}

/// The answer, whole, and whether the endpoint would take one more question.
async fn exchange(
    endpoint: &Endpoint,
    mut sender: http1::SendRequest<Empty<Bytes>>,
) -> Result<(Bytes, bool), Missing> {
    let request = Request::get(endpoint.path.as_str())
        .header(header::HOST, endpoint.authority())
        .header(header::ACCEPT, ACCEPT)
        .body(Empty::<Bytes>::new())
        .map_err(|error| unreachable(endpoint, &error))?;
    let answer = sender.send_request(request).await.map_err(|error| broken(endpoint, &error))?;
    let status = answer.status();
    if status != StatusCode::OK {
        let reason = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => MissingReason::Forbidden,
            _ => MissingReason::BadStatus,
        };
        return Err(missing(reason, format!("{endpoint} answered {status}")));
    }
    let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            missing(MissingReason::TooLarge, format!("{endpoint} answered more than {LARGEST} bytes"))
        } else {
            missing(MissingReason::Unreadable, format!("{endpoint}: {error}"))
        }
    })?;
    Ok((body.to_bytes(), sender.ready().await.is_ok()))
}

impl Endpoint {
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let text =
        |error: &dyn std::fmt::Display| format!("authorities of endpoints, {}: {error}", path.display());
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| text(&error))? {
        store.add(certificate.map_err(|error| text(&error))?).map_err(|error| text(&error))?;
    }
    if store.is_empty() { Err(text(&"it has no certificate")) } else { Ok(store) }
}
