//! A small HTTP server for metrics, health, permits and webhooks; TLS if a configuration is given. What a request may send is
//! decided from its head and its peer, before a byte of its body is read: strangers cost a connection and no memory.

pub mod body;
mod connection;
mod ending;
mod probes;

use std::net::IpAddr;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use crate::places::{Door, Places};
pub use body::Budget;
pub use connection::serve_streams;
pub use ending::{Ended, Ending, LEAVE};
pub use probes::{PROBES, probes};

/// Time for a TLS handshake, and for the head of a request, idle time before it included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a connection's buffer: the longest head of a request. Heads of our clients have some hundred bytes.
const BUFFER: usize = 16 << 10;
/// Largest body that any service reads, in bytes: a review with two objects of 1.5 MiB, the most that etcd stores, escaped.
pub const MAX_BODY: usize = 8 << 20;
/// Largest body of what is small by nature: a permit, a size, a question.
pub const SMALL_BODY: usize = 64 << 10;

/// A request with its whole body.
pub type FullRequest = Request<Bytes>;
/// Response with its whole body.
pub type FullResponse = Response<Full<Bytes>>;
/// How many bytes the body of a request may have (0: none; at most [`MAX_BODY`]), or the answer to a request that is refused.
pub type Admitted = Result<usize, Box<FullResponse>>;
/// A TLS configuration that may be replaced while the server runs.
pub type Tls = Arc<RwLock<Arc<rustls::ServerConfig>>>;

/// The peer that sent a request: put into the extensions of each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Its address; absent for connections that have none, as of Unix sockets.
    pub address: Option<IpAddr>,
    /// Common name in the client's certificate; empty if it showed none.
    pub common_name: String,
    /// Organisations in the client's certificate; empty if it showed none.
    pub organisations: Vec<String>,
    /// DNS names in the client's certificate; empty if it showed none.
    pub dns_names: Vec<String>,
    /// Whether this listener classified it as known ([`Gate::new`]).
    pub known: bool,
}

impl Peer {
    /// Whether the client's certificate names one of these organisations.
    #[must_use]
    pub fn is_one_of(&self, organisations: &[&str]) -> bool {
        self.organisations.iter().any(|own| organisations.contains(&own.as_str()))
    }

    /// The peer of a request; an unknown one if the server did not set it.
    #[must_use]
    pub fn from_extensions(extensions: &http::Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }
}

/// Which peers may be connected to a listener, and what bodies may take. Clones share places and budget.
#[derive(Clone)]
pub struct Gate {
    pub(super) door: Arc<Door>,
    pub(super) budget: Arc<Budget>,
    pub(super) knows: Arc<dyn Fn(&Peer) -> bool + Send + Sync>,
    pub(super) ending: Ended,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("door", &self.door).field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// Places of listeners that peers of ours call with certificates: one for each node, and some. Strangers are of no use there, but
/// each gets an answer.
pub const PRIVATE: Places = Places { arriving: 256, strangers: 32, per_address: 16, known: 1024 };
/// Places of listeners on which no client shows a certificate: metrics. A scraper needs one or two.
pub const OPEN: Places = Places { arriving: 0, strangers: 64, per_address: 32, known: 0 };
/// Places of listeners whose callers may be few addresses with many requests and no certificate: an API server that calls
/// webhooks, a kube-scheduler beside its extender.
pub const BUSY: Places = Places { arriving: 256, strangers: 256, per_address: 256, known: 256 };

impl Gate {
    /// A listener with these places. `knows` decides by a peer's verified certificate whether it may use places and
    /// budget of known peers; a peer without a certificate is never known.
    #[must_use]
    pub fn new(
        places: Places,
        budget: &Arc<Budget>,
        knows: impl Fn(&Peer) -> bool + Send + Sync + 'static,
    ) -> Self {
        let ending = Ended::default();
        Self { door: Door::new(places), budget: Arc::clone(budget), knows: Arc::new(knows), ending }
    }

    /// The same for a server that ends in the order of an [`Ending`]; without it, open requests are cut off when it is dropped.
    #[must_use]
    pub fn ending(mut self, ending: Ended) -> Self {
        self.ending = ending;
        self
    }

    /// A listener without known peers.
    #[must_use]
    pub fn open(places: Places, budget: &Arc<Budget>) -> Self {
        Self::new(places, budget, |_| false)
    }
}

#[must_use]
pub fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> FullResponse {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Refuses a request.
///
/// # Errors
/// Always: with this answer.
pub fn refuse(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Admitted {
    Err(Box::new(text(status, kind, body)))
}

/// For listeners whose requests have no bodies.
///
/// # Errors
/// None.
pub fn no_body(_: &Parts) -> Admitted {
    Ok(0)
}

/// Serves until it is dropped; open connections end with it ([`Gate::ending`]: requests are finished before). `admit` decides from
/// the head of a request, with its [`Peer`] among the extensions; `handler` answers the whole.
pub async fn serve<A, H, F>(listener: TcpListener, tls: Option<Tls>, gate: Gate, admit: A, handler: H)
where
    A: Fn(&Parts) -> Admitted + Clone + Send + Sync + 'static,
    H: Fn(FullRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = FullResponse> + Send + 'static,
{
    let budget = Arc::clone(&gate.budget);
    let answer = move |request: Request<Incoming>| {
        let (budget, admit, handler) = (Arc::clone(&budget), admit.clone(), handler.clone());
        async move {
            let (parts, body) = request.into_parts();
            // What the body takes is kept until the request is answered.
            let (whole, _held) = match whole(&budget, admit, parts, body).await {
                Ok(read) => read,
                Err(refused) => return closing(*refused),
            };
            handler(whole).await
        }
    };
    serve_streams(listener, tls, gate, answer).await;
}

/// Serves plain HTTP to any client, with bodies, until it is dropped: for demonstrations and tests.
pub async fn serve_openly<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(FullRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = FullResponse> + Send + 'static,
{
    let gate = Gate::open(Places { strangers: 1024, per_address: 1024, ..OPEN }, &Arc::default());
    serve(listener, None, gate, |_: &Parts| Ok(MAX_BODY), handler).await;
}

async fn whole(
    budget: &Budget,
    admit: impl Fn(&Parts) -> Admitted,
    parts: Parts,
    body: Incoming,
) -> Result<(FullRequest, body::Held), Box<FullResponse>> {
    let most = admit(&parts)?.min(MAX_BODY);
    let known = parts.extensions.get::<Peer>().is_some_and(|peer| peer.known);
    match budget.read(&parts.headers, body, known, most).await {
        Ok((bytes, held)) => Ok((Request::from_parts(parts, bytes), held)),
        Err(why) => Err(Box::new(text(status_of(why), "text/plain", format!("{why}\n")))),
    }
}

/// The status for the reason why a body was not read.
#[must_use]
pub fn status_of(why: body::Refused) -> StatusCode {
    match why {
        body::Refused::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        body::Refused::TooSlow => StatusCode::REQUEST_TIMEOUT,
        body::Refused::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
        body::Refused::Broken => StatusCode::BAD_REQUEST,
    }
}

/// The rest of the body is not read, so the connection cannot be used again.
fn closing(mut answer: FullResponse) -> FullResponse {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests;
