//! A client for small requests to one service: one connection, kept open, made again when it was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::service::Endpoint;

/// Largest answer that is read, in bytes.
const LARGEST: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("cannot connect to {0}")]
    Connect(Endpoint, #[source] std::io::Error),
    /// Not a name.
    #[error("{0} is no server name")]
    Name(String),
    /// TLS is wanted and there is no configuration for it.
    #[error("{0} speaks TLS, and there is no certificate to show")]
    NoTls(Endpoint),
    /// HTTP went wrong.
    #[error("{0} does not speak HTTP as it should")]
    Http(Endpoint, #[source] hyper::Error),
    /// The answer is too large or broken.
    #[error("the answer of {0} is too large or broken")]
    Body(Endpoint),
    /// The connection was opened by the caller, and has ended.
    #[error("the connection to {0} has ended")]
    Ended(Endpoint),
    /// It took too long.
    #[error("{endpoint} did not answer within {} ms", within.as_millis())]
    Late {
        /// The endpoint that did not answer.
        endpoint: Endpoint,
        /// How long was waited.
        within: Duration,
    },
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.plain { "http" } else { "https" }, self.address)
    }
}

/// A service, and the connection to it.
#[derive(Debug)]
pub struct Caller {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    name: String,
    open: Option<SendRequest<Full<Bytes>>>,
    /// Whether a lost connection is made again, to the address of the service.
    dials: bool,
}

impl Caller {
    /// Nothing is sent yet. `name` must be in the server's certificate.
    #[must_use]
    pub fn new(endpoint: Endpoint, tls: Option<Arc<ClientConfig>>, name: impl Into<String>) -> Self {
        Self { endpoint, tls, name: name.into(), open: None, dials: true }
    }

    /// A service that is reached by a stream which another component has opened to it, such as a port-forward. TLS is spoken
    /// within, so the carrier of the stream reads and changes nothing. Once it is lost, calls fail.
    ///
    /// # Errors
    /// If the handshakes fail or take longer than `within`.
    pub async fn over<S>(
        stream: S,
        endpoint: Endpoint,
        (tls, name): (Arc<ClientConfig>, &str),
        within: Duration,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut caller = Self { dials: false, ..Self::new(endpoint, Some(tls), name) };
        let opened = tokio::time::timeout(within, caller.encrypt(stream)).await;
        caller.open = Some(opened.map_err(|_| Error::Late { endpoint, within })??);
        Ok(caller)
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Sends a request and reads the whole answer. A kept connection that turns out to be dead is made again once, before
    /// anything of the request was answered.
    ///
    /// # Errors
    /// If there is no connection, no HTTP or no answer in time.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let endpoint = self.endpoint;
        match tokio::time::timeout(within, self.attempt(&method, path, &body)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.open = None;
                Err(error)
            }
            Err(_) => {
                // The answer may still come, and must not be taken for that to the next request.
                self.open = None;
                Err(Error::Late { endpoint, within })
            }
        }
    }

    async fn attempt(
        &mut self,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> Result<(StatusCode, Bytes), Error> {
        let kept = match self.open.take() {
            Some(mut kept) if !kept.is_closed() => kept.ready().await.is_ok().then_some(kept),
            _ => None,
        };
        let mut sender = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let endpoint = self.endpoint;
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.parse().unwrap_or_else(|_| http::Uri::from_static("/"));
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        if let Ok(host) = http::HeaderValue::from_str(&endpoint.address.to_string()) {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let answer = match sender.try_send_request(request).await {
            Ok(answer) => answer,
            Err(mut failed) => match failed.take_message() {
                // Not a byte of it was sent: the kept connection was closed under us.
                Some(request) => {
                    sender = self.connect().await?;
                    sender.send_request(request).await.map_err(|error| Error::Http(endpoint, error))?
                }
                None => return Err(Error::Http(endpoint, failed.into_error())),
            },
        };
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(|_| Error::Body(endpoint))?;
        self.open = Some(sender);
        Ok((head.status, body.to_bytes()))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let endpoint = self.endpoint;
        if !self.dials {
            return Err(Error::Ended(endpoint));
        }
        let failed = |error| Error::Connect(endpoint, error);
        let stream = TcpStream::connect(endpoint.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if endpoint.plain {
            return handshake(endpoint, stream).await;
        }
        self.encrypt(stream).await
    }

    /// Speaks TLS, and HTTP within.
    async fn encrypt<S>(&self, stream: S) -> Result<SendRequest<Full<Bytes>>, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let endpoint = self.endpoint;
        let failed = |error| Error::Connect(endpoint, error);
        let tls = self.tls.clone().ok_or(Error::NoTls(endpoint))?;
        let name = ServerName::try_from(self.name.clone()).map_err(|_| Error::Name(self.name.clone()))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(failed)?;
        handshake(endpoint, stream).await
    }
}

async fn handshake<S>(endpoint: Endpoint, stream: S) -> Result<SendRequest<Full<Bytes>>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| Error::Http(endpoint, error))?;
    // Ends when the sender is dropped or the peer closes.
    tokio::spawn(connection);
    Ok(sender)
}

/// Connections to one service whose endpoint may change: each call takes one that is idle, or makes one.
#[derive(Debug)]
pub struct Callers {
    tls: Arc<ClientConfig>,
    name: &'static str,
    most: usize,
    idle: Mutex<Vec<Caller>>,
}

impl Callers {
    /// Nothing is sent yet. `name` must be in the server's certificate; at most `most` idle connections are kept.
    #[must_use]
    pub fn new(tls: Arc<ClientConfig>, name: &'static str, most: usize) -> Self {
        Self { tls, name, most, idle: Mutex::default() }
    }

    /// Sends a POST request to `/` and reads the whole answer. A connection that fails is not kept.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub async fn post(
        &self,
        endpoint: Endpoint,
        body: Bytes,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let mut caller = self.take(endpoint);
        let answer = caller.call(Method::POST, "/", body, within).await?;
        let mut idle = self.idle();
        if idle.len() < self.most {
            idle.push(caller);
        }
        Ok(answer)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Caller>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, endpoint: Endpoint) -> Caller {
        let mut idle = self.idle();
        // Connections to an endpoint of before are of no use.
        idle.retain(|caller| caller.endpoint() == endpoint);
        idle.pop().unwrap_or_else(|| Caller::new(endpoint, Some(Arc::clone(&self.tls)), self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{FullRequest, serve_openly, text};
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn a_connection_is_kept_and_made_again_when_it_was_lost() {
        // Bound for as long as the test runs: while no process listens, the kernel gives the port to no other socket.
        let place = TcpSocket::new_v4().unwrap();
        place.set_reuseaddr(true).unwrap();
        place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoint = Endpoint { address: place.local_addr().unwrap(), plain: true };
        let listener = TcpListener::bind(endpoint.address).await.unwrap();
        let echo =
            |request: FullRequest| async move { text(StatusCode::OK, "text/plain", request.into_body()) };
        let server = tokio::spawn(serve_openly(listener, echo));
        let mut caller = Caller::new(endpoint, None, "echo");
        let within = Duration::from_secs(60);
        for _ in 0..2 {
            let (status, body) = caller.call(Method::POST, "/", Bytes::from("x"), within).await.unwrap();
            assert_eq!((status, &body[..]), (StatusCode::OK, &b"x"[..]));
        }
        server.abort();
        let _ = server.await;
        let listener = TcpListener::bind(endpoint.address).await.unwrap();
        let server = tokio::spawn(serve_openly(listener, echo));
        let (status, _) = caller.call(Method::POST, "/", Bytes::from("y"), within).await.unwrap();
        assert_eq!(status, StatusCode::OK);
        server.abort();
        let _ = server.await;
        let error = caller.call(Method::POST, "/", Bytes::new(), within).await.unwrap_err();
        assert!(matches!(error, Error::Connect(..)), "{error}");
    }

    #[tokio::test]
    async fn a_silent_service_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint { address: listener.local_addr().unwrap(), plain: true };
        let mut caller = Caller::new(endpoint, None, "silent");
        let error = caller.call(Method::GET, "/", Bytes::new(), Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, Error::Late { .. }), "{error}");
        let tls = Endpoint { plain: false, ..endpoint };
        let error = Caller::new(tls, None, "silent")
            .call(Method::GET, "/", Bytes::new(), Duration::from_secs(5))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NoTls(_)), "{error}");
    }
}
