//! Connections: accepted, given a place, identified, served, closed.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{BUFFER, Ended, Gate, PATIENCE, Peer, Tls};
use crate::places::{Busy, Class, Full, Seat};
use crate::supervise::panic_of;

/// How long a stranger's connection lives; one that is in use then finishes its request. A stranger that reads nothing of its
/// answer would keep its place for ever otherwise.
const LIFE: Duration = Duration::from_secs(60);
/// Time to finish that request.
const FINISH: Duration = Duration::from_secs(20);
/// Idle time of a known peer's connection, and its time for the head of a request. Agents ask every 15 s; a handshake for each
/// question would cost more than the answer.
const KNOWN_PATIENCE: Duration = Duration::from_secs(60);
/// Pause when a connection cannot be accepted: most likely all file descriptors are used, and others are closed in a moment.
const PAUSE: Duration = Duration::from_millis(20);

/// As [`super::serve`], for handlers that read bodies themselves, answer with streams or upgrade connections. The [`Peer`] is
/// among the extensions of each request. A connection that was upgraded takes no place any more: only known peers may do that.
pub async fn serve_streams<H, F, B>(listener: TcpListener, tls: Option<Tls>, gate: Gate, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut running = JoinSet::new();
    let mut ending = gate.ending.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ending.wait() => break,
            Some(ended) = running.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(panic = panic_of(error), "a handler of requests panicked; its connection is closed");
                }
                continue;
            }
        };
        let Ok((stream, from)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let class = if tls.is_some() { Class::Arriving } else { Class::Stranger };
        let address = from.ip().to_canonical();
        let Ok(seat) = gate.door.enter(address, class) else {
            tracing::debug!(%from, "a connection was refused: all places are taken");
            continue;
        };
        let (seat, tls, gate, handler) =
            (Arc::new(seat), tls.as_ref().map(current), gate.clone(), handler.clone());
        running.spawn(async move {
            tokio::select! {
                () = connection(stream, address, tls, &seat, &gate, handler) => {}
                () = seat.given_away() => tracing::debug!(%from, "an idle connection was closed for another"),
            }
        });
    }
    drop(listener);
    while running.join_next().await.is_some() {}
    // Now nothing watches the end any more, which is what it waits for.
    drop((gate, ending));
    std::future::pending::<()>().await;
}

fn current(tls: &Tls) -> TlsAcceptor {
    let config = tls.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    TlsAcceptor::from(Arc::clone(&config))
}

async fn connection<H, F, B>(
    stream: TcpStream,
    address: IpAddr,
    tls: Option<TlsAcceptor>,
    seat: &Arc<Seat>,
    gate: &Gate,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = tls else {
        let peer = Peer { address: Some(address), ..Peer::default() };
        return requests(stream, peer, (seat, gate.ending.clone()), handler).await;
    };
    let mut ending = gate.ending.clone();
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(PATIENCE, acceptor.accept(stream)) => shaken,
        () = ending.wait() => return,
    };
    let Ok(Ok(stream)) = shaken else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let mut peer = Peer { tls: true, address: Some(address), ..Peer::default() };
    if let Some(shown) = shown {
        peer.common_name = crate::tls::common_name(shown);
        peer.organisations = crate::tls::organisations(shown);
        peer.dns_names = crate::tls::dns_names(shown);
        peer.known = (gate.knows)(&peer);
    }
    let class = if peer.known { Class::Known } else { Class::Stranger };
    match seat.turn(class) {
        Ok(()) => requests(stream, peer, (seat, ending), handler).await,
        Err(Full) => tracing::debug!(%address, "a connection was closed: all places are taken"),
    }
}

async fn requests<S, H, F, B>(stream: S, peer: Peer, (seat, mut ending): (&Arc<Seat>, Ended), handler: H)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let known = peer.known;
    let leaving = ending.clone();
    let service = service_fn(|mut request: Request<Incoming>| {
        let busy = seat.request();
        request.extensions_mut().insert(peer.clone());
        let answer = handler(request);
        let leaving = leaving.clone();
        async move {
            let mut answer = answer.await;
            if leaving.leaves() && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // A stranger that is slow to read its answer may be closed for others.
            let busy = known.then_some(busy);
            Ok::<_, Infallible>(answer.map(|body| BusyBody { body, _busy: busy }))
        }
    });
    let mut builder = http1::Builder::new();
    let patience = if known { KNOWN_PATIENCE } else { PATIENCE };
    builder.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(connection);
    let life = async { if known { std::future::pending().await } else { tokio::time::sleep(LIFE).await } };
    let over = async {
        tokio::select! {
            () = life => {}
            () = ending.wait() => {}
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = over => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(FINISH, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A body that keeps its connection from being closed for others while it is sent.
struct BusyBody<B> {
    body: B,
    _busy: Option<Busy>,
}

impl<B: Body + Unpin> Body for BusyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
