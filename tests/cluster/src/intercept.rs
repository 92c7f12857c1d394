//! Clients whose requests a test sees before they are sent, and in whose senders it can plant a panic.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use neonvm_kit::call::Caller;
use neonvm_kit::service::Endpoint;
use serde_json::Value;
use tower::service_fn;

use crate::PATIENCE;

/// A client that awaits `before` ahead of each request, in the task that sends it: a panic there is a panic of that task.
pub fn intercepted<F>(
    client: Client,
    before: impl Fn(Method, Uri, Bytes) -> F + Send + Sync + 'static,
) -> Client
where
    F: Future<Output = ()> + Send + 'static,
{
    let before = Arc::new(before);
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, before) = (client.clone(), Arc::clone(&before));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            before(parts.method.clone(), parts.uri.clone(), body.clone()).await;
            client.send(Request::from_parts(parts, Body::from(body))).await
        }
    });
    Client::new(service, namespace)
}

/// A client that is refused what `refuse` returns a `Status` for; nothing of that is sent.
pub fn refusing(
    client: Client,
    refuse: impl Fn(&Method, &Uri) -> Option<Value> + Send + Sync + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, refused) = (client.clone(), refuse(request.method(), request.uri()));
        async move {
            let Some(status) = refused else { return client.send(request).await };
            let code =
                status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap();
            let body = Body::from(status.to_string().into_bytes());
            Ok(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, namespace)
}

/// Whether a request begins a watch of these objects, such as `pods`.
#[must_use]
pub fn is_watch(uri: &Uri, plural: &str) -> bool {
    uri.path().ends_with(&format!("/{plural}"))
        && uri.query().is_some_and(|query| query.contains("watch=true"))
}

/// Whether a request gives a lease back.
#[must_use]
pub fn is_release(method: &Method, uri: &Uri, body: &[u8]) -> bool {
    let lease: Option<Value> = serde_json::from_slice(body).ok();
    let holder = lease.as_ref().and_then(|lease| lease.pointer("/spec/holderIdentity"));
    *method == Method::PUT && uri.path().contains("/leases/") && holder.is_some_and(|holder| holder == "")
}

/// What a server without TLS responds to `GET /healthz`: status and body.
pub async fn healthz(address: SocketAddr) -> (u16, String) {
    let mut caller = Caller::new(Endpoint { address, plain: true }, None, "");
    let (status, body) = caller.call(Method::GET, "/healthz", Bytes::new(), PATIENCE).await.unwrap();
    (status.as_u16(), String::from_utf8_lossy(&body).into_owned())
}
