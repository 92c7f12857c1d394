//! The node's own server: what the API server passes on, under the paths that kubelets serve. Only for clients with a
//! certificate of the cluster's authority that is an administrator's, as the API server's is.

mod body;
mod capture;
pub(crate) mod exec;
pub(crate) mod logs;
mod port_forward;
mod spdy;
mod stats;
mod terminal;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use neonvm_kit::ca::Authority;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::Error;
use crate::node::Node;
use crate::pod::Handle;
use body::{Query, Response, text};

/// Open connections.
const MAX_CONNECTIONS: usize = 1024;
/// Time for a TLS handshake and for the headers of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Group of those who may use everything.
const ADMINISTRATORS: &str = "system:masters";

/// The server's certificate, signed by the cluster's authority.
pub(crate) fn tls(authority: &Authority, node: &Node, local: SocketAddr) -> Result<TlsAcceptor, Error> {
    let mut names =
        vec![node.config.name.clone(), node.address.clone(), local.ip().to_string(), "127.0.0.1".into()];
    names.sort();
    names.dedup();
    let identity = authority.server(&format!("system:node:{}", node.config.name), &names)?;
    let mut config = neonvm_kit::tls::server(&identity, authority.certificate())?;
    // Upgrades need HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until it is dropped.
pub(crate) async fn serve(node: &Arc<Node>, listener: std::net::TcpListener, tls: TlsAcceptor) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the node's server cannot listen: no logs, no exec");
            return std::future::pending().await;
        }
    };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: others will be closed in a moment.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (node, tls) = (Arc::clone(node), tls.clone());
        connections.spawn(async move {
            connection(node, tls, stream).await;
            drop(place);
        });
    }
}

fn is_administrator(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate.as_ref()) else {
        return false;
    };
    let mut organisations = certificate.subject().iter_organization();
    organisations.any(|organisation| organisation.as_str() == Ok(ADMINISTRATORS))
}

async fn connection(node: Arc<Node>, tls: TlsAcceptor, stream: TcpStream) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|list| list.first());
    let allowed = certificate.is_some_and(is_administrator);
    let service = service_fn(move |request| {
        let node = Arc::clone(&node);
        async move { Ok::<_, std::convert::Infallible>(answer(&node, allowed, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The pod of a namespace and name; of several, the one that was not deleted.
fn find(node: &Node, namespace: &str, name: &str) -> Option<Arc<Handle>> {
    let pods = node.pods.lock();
    let mut found: Vec<&Arc<Handle>> = pods
        .values()
        .filter(|handle| {
            let metadata = &handle.pod.borrow().metadata;
            metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(name)
        })
        .collect();
    found.sort_by_key(|handle| handle.pod.borrow().metadata.deletion_timestamp.is_some());
    found.first().map(|handle| Arc::clone(handle))
}

async fn answer(node: &Arc<Node>, allowed: bool, request: hyper::Request<Incoming>) -> Response {
    let path = request.uri().path().to_owned();
    let query = Query::parse(request.uri().query().unwrap_or(""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if parts.as_slice() == ["healthz"] {
        return text(StatusCode::OK, "ok");
    }
    if !allowed {
        return text(
            StatusCode::UNAUTHORIZED,
            "a client certificate of the cluster's administrators is needed",
        );
    }
    let missing = || text(StatusCode::NOT_FOUND, "there is no such pod on this node");
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["stats", "summary"]) => stats::summary(node),
        (&Method::GET, ["metrics", "resource"]) => stats::metrics(node),
        (&Method::GET, ["containerLogs", namespace, name, container]) => match find(node, namespace, name) {
            Some(handle) => logs::serve(&handle, container, &query).await,
            None => missing(),
        },
        (&Method::GET | &Method::POST, [what @ ("exec" | "attach"), namespace, name, container]) => {
            let Some(handle) = find(node, namespace, name) else { return missing() };
            let (container, is_exec) = ((*container).to_owned(), *what == "exec");
            exec::serve(node, &handle, container, is_exec, &query, request).await
        }
        (&Method::GET | &Method::POST, ["portForward", namespace, name]) => match find(node, namespace, name)
        {
            Some(handle) => port_forward::serve(node, &handle, &query, request),
            None => missing(),
        },
        _ => text(StatusCode::NOT_FOUND, "there is no such path"),
    }
}
