//! One GET of a metrics endpoint: over a connection that is kept if the endpoint likes that, with a deadline, a limit, and a
//! reason if nothing comes of it. A redirect is an answer like any that is not 200: nothing is read from where it leads.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::{Authority, PathAndQuery};
use neonvm_core_pod_autoscaler::{Missing, MissingReason};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Endpoint;
use super::get::{self, Fault};
use super::idle::{self, Idle, IdleStream, places};
use super::room::{LARGEST, Room, Rooms, Share};
use crate::Config;
use crate::reach::{Network, Policy};

/// Bytes that the kernel buffers of one connection until they are read; it takes twice that. Its own default grows to
/// megabytes, which count as memory of this service.
const RECEIVE_BUFFER: u32 = 64 << 10;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;
/// Of so many places for connections that are kept one may be for one with TLS.
const SECURED: usize = 16;
/// What is understood.
const ACCEPT: &str = "text/plain;version=0.0.4;q=1,*/*;q=0.1";

/// Reads endpoints, so many at once.
#[derive(Debug)]
pub(crate) struct Reader {
    places: Semaphore,
    within: Duration,
    tls: Arc<ClientConfig>,
    plain: Idle<TcpStream>,
    /// Fewer: each takes some tens of KiB.
    secured: Idle<TlsStream<TcpStream>>,
    rooms: Rooms,
    allowed: Vec<Network>,
    policy: RwLock<Policy>,
}

/// An answer and the room that it takes.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) bytes: Bytes,
    pub(crate) room: Room<'a>,
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
        let room = Arc::new(idle::Room::new(kept));
        Ok(Self {
            places: Semaphore::new(reading),
            within: config.scrape_timeout,
            tls: Arc::new(tls),
            plain: Idle::new(kept, Arc::clone(&room)),
            secured: Idle::new(kept / SECURED, room),
            rooms: Rooms::new(config.scrape_memory, config.scrapes_of_one, config.scrape_turn),
            allowed: config.scrape_allowed.clone(),
            policy: RwLock::new(Policy::new(&config.scrape_allowed, &config.service_networks)),
        })
    }

    /// Refuses the networks of Services from now on, in addition to those that are refused anyway.
    pub(crate) fn refuse(&self, services: &[Network]) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Policy::new(&self.allowed, services);
    }

    fn permits(&self, endpoint: SocketAddr) -> bool {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).permits(endpoint)
    }

    /// What one object may use for a reconcile that begins now.
    pub(crate) fn share(&self) -> Share {
        self.rooms.share()
    }

    /// The answer, whole. Waiting for a place does not count as time of the endpoint, but as time of the object.
    pub(crate) async fn read<'a>(
        &'a self,
        endpoint: &Endpoint,
        share: &'a Share,
    ) -> Result<Page<'a>, Missing> {
        let late = |what: &str| missing(MissingReason::TimedOut, format!("{endpoint} {what}"));
        let place = async { Some((share.places.acquire().await.ok()?, self.places.acquire().await.ok()?)) };
        let Ok(place) = tokio::time::timeout_at(share.until, place).await else {
            return Err(late("was not read: other endpoints of this PodAutoscaler took all its time"));
        };
        let Some(_place) = place else {
            return Err(missing(MissingReason::NotRead, "the autoscaler ends"));
        };
        let mut room = Room::small(&self.rooms, share);
        match tokio::time::timeout(self.within, self.attempt(endpoint, share, &mut room)).await {
            Ok(done) => done.map(|bytes| Page { bytes, room }),
            // Other readings that ran out of time, too, may have made room just now.
            Err(_) => Err(match room.held_up(self.within / 2) {
                Some(bytes) => {
                    late(&format!("has more than {bytes} bytes, and other answers took the room for that"))
                }
                None => late(&format!("did not answer within {} ms", self.within.as_millis())),
            }),
        }
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        share: &Share,
        room: &mut Room<'_>,
    ) -> Result<Bytes, Missing> {
        if endpoint.tls {
            over(&self.secured, endpoint, self.connect_secured(endpoint, share), room).await
        } else {
            over(&self.plain, endpoint, self.connect(endpoint, share), room).await
        }
    }

    async fn connect_secured(
        &self,
        endpoint: &Endpoint,
        share: &Share,
    ) -> Result<TlsStream<TcpStream>, Missing> {
        let stream = self.connect(endpoint, share).await?;
        let name =
            ServerName::try_from(endpoint.host.clone()).map_err(|error| unreachable(endpoint, &error))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        stream.map_err(|error| unreachable(endpoint, &error))
    }

    /// A connection to an address that was checked: a name is not resolved a second time.
    async fn connect(&self, endpoint: &Endpoint, share: &Share) -> Result<TcpStream, Missing> {
        let mut last = None;
        for address in self.addresses(endpoint, share).await? {
            match open(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            // An author must not be able to find out through this service which ports are open.
            Some(_) if endpoint.named => unreachable(endpoint, &"no connection"),
            Some(error) => unreachable(endpoint, &error),
            None => refused(endpoint),
        })
    }

    async fn addresses(&self, endpoint: &Endpoint, share: &Share) -> Result<Vec<SocketAddr>, Missing> {
        let all = match endpoint.host.parse() {
            Ok(address) => vec![SocketAddr::new(address, endpoint.port)],
            Err(_) => self.resolve(endpoint, share).await?,
        };
        Ok(all.into_iter().filter(|address| self.permits(*address)).take(ADDRESSES).collect())
    }

    async fn resolve(&self, endpoint: &Endpoint, share: &Share) -> Result<Vec<SocketAddr>, Missing> {
        let Some(right) = self.rooms.lookup(share).await else {
            return Err(missing(MissingReason::NotRead, "the autoscaler ends"));
        };
        let name = (endpoint.host.clone(), endpoint.port);
        let lookup = tokio::task::spawn_blocking(move || {
            let found = name.to_socket_addrs();
            // Not before: a lookup continues after its caller has stopped waiting.
            drop(right);
            found
        });
        match lookup.await {
            Ok(Ok(found)) => Ok(found.collect()),
            Ok(Err(_)) | Err(_) => Err(unreachable(endpoint, &"its name cannot be resolved")),
        }
    }
}

/// One text for all that is refused, whatever is there: it is no way to find out.
fn refused(endpoint: &Endpoint) -> Missing {
    let text = format!(
        "{endpoint} is refused: it is in a network that is not scraped (loopback, link-local, Services) unless an administrator \
         allows it with --scrape-allow of the pod-autoscaler"
    );
    missing(MissingReason::Forbidden, text)
}

async fn open(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(address).await
}

fn unreachable(endpoint: &Endpoint, error: &dyn std::fmt::Display) -> Missing {
    missing(MissingReason::Unreachable, format!("{endpoint}: {error}"))
}

/// Sends the request over the connection that was kept, or over a new one.
async fn over<S>(
    idle: &Idle<S>,
    endpoint: &Endpoint,
    fresh: impl Future<Output = Result<S, Missing>>,
    room: &mut Room<'_>,
) -> Result<Bytes, Missing>
where
    S: IdleStream + AsyncRead + AsyncWrite + Unpin,
{
    if let Some(stream) = idle.take(endpoint) {
        match ask(endpoint, stream, room).await {
            // The endpoint may have closed it just now, which is no failure of the endpoint.
            (Err(missing), _) if missing.reason == MissingReason::Unreadable => {}
            done => return keep(idle, endpoint, done),
        }
    }
    let fresh = fresh.await?;
    keep(idle, endpoint, ask(endpoint, fresh, room).await)
}

fn keep<S: IdleStream>(
    idle: &Idle<S>,
    endpoint: &Endpoint,
    (answer, stream): (Result<Bytes, Missing>, Option<S>),
) -> Result<Bytes, Missing> {
    // Of pods only: how many others there are is for the author of an object to choose.
    if let Some(stream) = stream.filter(|_| !endpoint.named) {
        idle.put(endpoint, stream);
    }
    answer
}

/// The answer, and the connection if it can be used again.
async fn ask<S>(
    endpoint: &Endpoint,
    mut stream: S,
    room: &mut Room<'_>,
) -> (Result<Bytes, Missing>, Option<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let question = match endpoint.question() {
        Ok(question) => question,
        Err(missing) => return (Err(missing), None),
    };
    match get::get(&mut stream, &question, LARGEST, room).await {
        Ok(answer) if answer.status == 200 => (Ok(answer.body), answer.again.then_some(stream)),
        Ok(answer) => {
            let reason = match answer.status {
                401 | 403 => MissingReason::Forbidden,
                _ => MissingReason::BadStatus,
            };
            (Err(missing(reason, format!("{endpoint} answered {}", status_text(answer.status)))), None)
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

fn status_text(status: u16) -> String {
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

#[cfg(test)]
mod tests;
