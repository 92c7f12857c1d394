//! The node's own server: what the API server passes on, under the paths that kubelets serve. Only for clients with a
//! certificate of the cluster's authority that is an administrator's, as the API server's is.

mod body;
mod capture;
mod command;
pub(crate) mod exec;
pub(crate) mod logs;
mod port;
mod port_forward;
mod spdy;
mod terminal;
mod websocket;

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use http::{Method, StatusCode};
use hyper::body::Incoming;
use neonvm_kit::ca::Authority;
use neonvm_kit::certificate::Own;
use neonvm_kit::http::{Gate, PRIVATE, Peer, Tls, serve_streams};
use neonvm_kit::trust::Trust;
use tokio::net::TcpListener;

use crate::Error;
use crate::node::Node;
use crate::pod::Handle;
use body::{Query, Response, text};

/// Group of users that may use everything.
const ADMINISTRATORS: &str = "system:masters";

/// The server's certificate, signed by the cluster's authority, and what renews it, which never returns.
pub(crate) fn tls(
    authority: Authority,
    node: &Node,
    local: SocketAddr,
) -> Result<(Tls, impl Future<Output = ()> + use<>), Error> {
    let mut names =
        vec![node.config.name.clone(), node.address.clone(), local.ip().to_string(), "127.0.0.1".into()];
    names.sort();
    names.dedup();
    let trust = Arc::new(Trust::new(authority.certificate())?);
    let common = format!("system:node:{}", node.config.name);
    let own = Own::new(move || authority.server(&common, &names))?;
    let mut config = neonvm_kit::tls::server_with(own.shown(), trust)?;
    // Upgrades need HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(RwLock::new(Arc::new(config))), own.keep()))
}

/// Serves until it is dropped.
pub(crate) async fn serve(node: &Arc<Node>, listener: std::net::TcpListener, tls: Tls) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the node's server cannot listen: no logs, no exec");
            return std::future::pending().await;
        }
    };
    let gate = Gate::new(PRIVATE, &Arc::default(), is_administrator);
    let node = Arc::clone(node);
    let answer = move |request: hyper::Request<Incoming>| {
        let node = Arc::clone(&node);
        async move {
            let allowed = is_administrator(&Peer::from_extensions(request.extensions()));
            answer(&node, allowed, request).await
        }
    };
    serve_streams(listener, Some(tls), gate, answer).await;
}

fn is_administrator(peer: &Peer) -> bool {
    peer.is_one_of(&[ADMINISTRATORS])
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
