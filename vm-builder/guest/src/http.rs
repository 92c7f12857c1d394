//! A small HTTP/1.1 server for the daemon: bounded connections, bodies and times.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How long a client may take to send a head or a body, and how long a connection may idle.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Largest body.
pub const LARGEST_BODY: usize = 16 * 1024 * 1024;
/// How long the kernel tries to hand an answer to a client that does not take it.
const UNSENT_DEADLINE: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

pub type Response = hyper::Response<Full<Bytes>>;

/// Opens a listening socket.
///
/// # Errors
/// When the address is taken or not ours.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket =
        if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(64)
}

/// Accepts a connection; waits and tries again when the kernel has no room for it.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(connection) => return connection,
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Whether a request from this address is taken. A process of the guest, also one in a container of the guest, cannot have a connection
/// from the runner's address: what is sent to that address leaves the guest.
pub fn may(peers: &[IpAddr], peer: SocketAddr) -> bool {
    peers.is_empty() || peers.contains(&peer.ip().to_canonical())
}

/// The answer to other addresses.
pub fn forbidden() -> Response {
    closing(text(StatusCode::FORBIDDEN, "only the runner of this VM may send requests to this port\n"))
}

/// Serves `handler` on `listener` to `peers`, see [`may`], with at most `connections` at a time; further ones wait in the
/// backlog.
pub async fn serve<H, F>(listener: TcpListener, connections: usize, peers: Vec<IpAddr>, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + 'static,
    F: Future<Output = Response> + 'static,
{
    let room = Arc::new(Semaphore::new(connections));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = accept(&listener).await;
        let handler = handler.clone();
        let may = may(&peers, peer);
        tokio::task::spawn_local(async move {
            let _permit = permit;
            if may {
                connection(stream, handler).await;
            } else {
                connection(stream, |_| std::future::ready(forbidden())).await;
            }
        });
    }
}

async fn connection<H, F>(stream: TcpStream, handler: H)
where
    H: Fn(Request<Incoming>) -> F + 'static,
    F: Future<Output = Response> + 'static,
{
    let _ = stream.set_nodelay(true);
    let unsent = u32::try_from(UNSENT_DEADLINE.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, unsent);
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(DEADLINE).max_buf_size(16 * 1024).max_headers(64);
    // A connection that ends badly is the client's affair; no other component needs the error.
    let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// The whole body of a request.
///
/// # Errors
/// The answer to give instead: 413 for a body above [`LARGEST_BODY`], 408 for one that does not arrive within
/// [`DEADLINE`], 400 for one that breaks off. Each closes the connection.
pub async fn body(request: Request<Incoming>) -> Result<Bytes, Response> {
    let incoming = request.into_body();
    let announced = incoming.size_hint().lower();
    if announced > u64::try_from(LARGEST_BODY).unwrap_or(u64::MAX) {
        return Err(closing(too_large()));
    }
    let mut whole = Vec::with_capacity(usize::try_from(announced).unwrap_or_default());
    let mut limited = Limited::new(incoming, LARGEST_BODY);
    // Pieces are not kept: thousands of them would leave the heap in tatters.
    let gathered = async {
        while let Some(frame) = limited.frame().await {
            whole.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    match tokio::time::timeout(DEADLINE, gathered).await {
        Ok(Ok(())) => Ok(whole.into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(closing(too_large())),
        Ok(Err(error)) => Err(closing(text(StatusCode::BAD_REQUEST, format!("read the body: {error}\n")))),
        Err(_) => Err(closing(text(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n"))),
    }
}

fn too_large() -> Response {
    text(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {LARGEST_BODY} bytes\n"))
}

fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// An answer in plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    typed(status, "text/plain; charset=utf-8", body)
}

pub fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
