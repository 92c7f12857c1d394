//! A small HTTP server for metrics, health and webhooks: bounded connections, bodies and waits; TLS if a configuration is given.

use std::convert::Infallible;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::supervise::panic_of;

/// Open connections.
const CONNECTIONS: usize = 512;
/// Time for a TLS handshake, for the head of a request, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest body that is read, in bytes.
pub const MAX_BODY: usize = 8 << 20;

/// A request with its whole body.
pub type Whole = Request<Bytes>;
/// An answer.
pub type Answer = Response<Full<Bytes>>;
/// A TLS configuration that may be replaced while the server runs.
pub type Tls = Arc<RwLock<Arc<rustls::ServerConfig>>>;

/// Who asks: put into the extensions of each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Organisations in the client's certificate; empty if it showed none.
    pub organisations: Vec<String>,
}

impl Peer {
    /// Whether the client's certificate names one of these organisations.
    #[must_use]
    pub fn is_one_of(&self, organisations: &[&str]) -> bool {
        self.organisations.iter().any(|own| organisations.contains(&own.as_str()))
    }
}

/// An answer of text.
#[must_use]
pub fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    answer
}

/// Serves until it is dropped; open connections end with it.
pub async fn serve<H, F>(listener: TcpListener, tls: Option<Tls>, handler: H)
where
    H: Fn(Whole) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut running = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = running.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(panic = panic_of(error), "a handler of requests panicked; its connection is closed");
                }
                continue;
            }
        };
        let Ok((stream, _)) = stream else {
            // Out of file descriptors, most likely: others will be closed in a moment.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (handler, tls) = (handler.clone(), tls.as_ref().map(current));
        running.spawn(async move {
            connection(stream, tls, handler).await;
            drop(place);
        });
    }
}

fn current(tls: &Tls) -> TlsAcceptor {
    let config = tls.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    TlsAcceptor::from(Arc::clone(&config))
}

async fn connection<H, F>(stream: TcpStream, tls: Option<TlsAcceptor>, handler: H)
where
    H: Fn(Whole) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let service = |peer: Peer| {
        service_fn(move |mut request: Request<Incoming>| {
            let handler = handler.clone();
            request.extensions_mut().insert(peer.clone());
            async move { Ok::<_, Infallible>(answer(request, handler).await) }
        })
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let _ = stream.set_nodelay(true);
    let ended = match tls {
        None => builder.serve_connection(TokioIo::new(stream), service(Peer::default())).await,
        Some(acceptor) => match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let organisations = shown.map(crate::tls::organisations).unwrap_or_default();
                let service = service(Peer { tls: true, organisations });
                builder.serve_connection(TokioIo::new(stream), service).await
            }
            Ok(Err(_)) | Err(_) => return,
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer<H, F>(request: Request<Incoming>, handler: H) -> Answer
where
    H: Fn(Whole) -> F,
    F: Future<Output = Answer>,
{
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(PATIENCE, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => handler(Request::from_parts(parts, body.to_bytes())).await,
        Ok(Err(_)) => text(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "the body is too large or broken\n"),
        Err(_) => text(StatusCode::REQUEST_TIMEOUT, "text/plain", "the body did not come\n"),
    }
}
