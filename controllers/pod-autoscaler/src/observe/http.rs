//! One GET of a metrics endpoint: over a connection that is kept if the endpoint likes that, with a deadline, a limit, and a
//! reason if nothing comes of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::{Authority, PathAndQuery};
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

use super::get::{self, Fault};
use super::idle::{Idle, Kept, Room, places};
use crate::Config;

/// Longest answer, in bytes; the limit of many scrapers. Larger ones are for endpoints that a person should look at.
const LARGEST: usize = 16 << 20;
/// Of so many places for connections that are kept one may be for one with TLS.
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
        let reading = config.scrapes.max(1);
        let kept = places(reading);
        let room = Arc::new(Room::new(kept));
        Ok(Self {
            places: Semaphore::new(reading),
            within: config.scrape_timeout,
            tls: Arc::new(tls),
            plain: Idle::new(kept, Arc::clone(&room)),
            secured: Idle::new(kept / SECURED, room),
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
    S: Kept + AsyncRead + AsyncWrite + Unpin,
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
async fn ask<S>(endpoint: &Endpoint, mut stream: S) -> (Result<Bytes, Missing>, Option<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let question = match endpoint.question() {
        Ok(question) => question,
        Err(missing) => return (Err(missing), None),
    };
    match get::get(&mut stream, &question, LARGEST).await {
        Ok(answer) if answer.status == 200 => (Ok(answer.body), answer.again.then_some(stream)),
        Ok(answer) => {
            let reason = match answer.status {
                401 | 403 => MissingReason::Forbidden,
                _ => MissingReason::BadStatus,
            };
            (Err(missing(reason, format!("{endpoint} answered {}", said(answer.status)))), None)
        }
        Err(Fault::TooLarge) => {
            let text = format!("{endpoint} answered more than {LARGEST} bytes");
            (Err(missing(MissingReason::TooLarge, text)), None)
        }
        Err(Fault::Broken(text)) => {
            (Err(missing(MissingReason::Unreadable, format!("{endpoint}: {text}"))), None)
        }
    }
}

/// A status with its words.
fn said(status: u16) -> String {
    StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

impl Endpoint {
    /// The request, whole.
    fn question(&self) -> Result<Vec<u8>, Missing> {
        // Both come from an object: with a line break in them they would be more than a path and a host.
        let path = PathAndQuery::try_from(self.path.as_str()).map_err(|error| unreachable(self, &error))?;
        let host = Authority::try_from(self.authority()).map_err(|error| unreachable(self, &error))?;
        Ok(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: {ACCEPT}\r\n\r\n").into_bytes())
    }

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
