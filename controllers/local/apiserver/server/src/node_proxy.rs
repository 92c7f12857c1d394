//! `log`, `exec`, `attach` and `portforward`: carried to the node that runs the pod, over mutual TLS, under the paths that
//! kubelets serve. Upgraded connections (SPDY, WebSocket) are joined byte for byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use neonvm_apiserver_engine::answer::{NodeRequest, refusal};
use neonvm_apiserver_engine::request::Query;
use neonvm_apiserver_engine::status::ApiError;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server::respond::{self, Response};
use crate::state::State;

/// Time to reach a node and get its headers.
const CONNECT: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) upgrade: OnUpgrade,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(crate) async fn forward(
    state: &State,
    tls: Arc<rustls::ClientConfig>,
    request: &NodeRequest,
    client: Client,
) -> Response {
    match attempt(state, tls, request, client).await {
        Ok(response) => response,
        Err(error) => respond::answer(refusal(&error, Vec::new())),
    }
}

async fn attempt(
    state: &State,
    tls: Arc<rustls::ClientConfig>,
    request: &NodeRequest,
    client: Client,
) -> Result<Response, ApiError> {
    let path = node_path(request)?;
    let node = text(&request.pod, "/spec/nodeName");
    if node.is_empty() {
        let name = text(&request.pod, "/metadata/name");
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let (host, port) = node_address(state, node)?;
    let url = format!("https://{host}:{port}{path}");
    let failed = |why: String| ApiError::internal(format!("error dialing backend: {url}: {why}"));
    let sent = tokio::time::timeout(CONNECT, send(tls, &host, port, &path, &client));
    let mut response = sent
        .await
        .map_err(|_| failed("no answer within 10 s".into()))?
        .map_err(|error| failed(error.to_string()))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let node = hyper::upgrade::on(&mut response);
        tokio::spawn(join(client.upgrade, node));
        let mut answer = hyper::Response::new(Empty::new().boxed_unsync());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = response.headers().clone();
        return Ok(answer);
    }
    Ok(respond::passed_on(response))
}

fn node_path(request: &NodeRequest) -> Result<String, ApiError> {
    let (namespace, name) = (text(&request.pod, "/metadata/namespace"), text(&request.pod, "/metadata/name"));
    let verb = match request.subresource.as_str() {
        "log" => "containerLogs",
        "exec" => "exec",
        "attach" => "attach",
        "portforward" => return Ok(format!("/portForward/{namespace}/{name}?{}", request.query)),
        other => {
            return Err(ApiError::plain(
                501,
                "",
                format!("the embedded server has no {other} for pods; use port-forward"),
            ));
        }
    };
    let container = container(&request.pod, &request.query)?;
    let mut query: Vec<String> = Vec::new();
    for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let on = matches!(value, "true" | "1" | "");
        match key {
            "container" => {}
            // Nodes call the streams by other names.
            "stdin" if verb != "containerLogs" => query.extend(on.then(|| "input=1".to_owned())),
            "stdout" if verb != "containerLogs" => query.extend(on.then(|| "output=1".to_owned())),
            "stderr" if verb != "containerLogs" => query.extend(on.then(|| "error=1".to_owned())),
            "tty" if verb != "containerLogs" => query.extend(on.then(|| "tty=1".to_owned())),
            _ => query.push(pair.to_owned()),
        }
    }
    Ok(format!("/{verb}/{namespace}/{name}/{container}?{}", query.join("&")))
}

/// The container that is meant: the one named, or the only one.
fn container(pod: &Value, query: &str) -> Result<String, ApiError> {
    let name = text(pod, "/metadata/name");
    let names: Vec<&str> = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"]
        .iter()
        .filter_map(|list| pod.pointer(list).and_then(Value::as_array))
        .flatten()
        .map(|container| text(container, "/name"))
        .collect();
    let query = Query::parse(query);
    let wanted = query.text("container");
    let main = pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    match names.as_slice() {
        [first, ..] if wanted.is_empty() && main == 1 => Ok((*first).to_owned()),
        _ if wanted.is_empty() => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
        known if known.contains(&wanted) => Ok(wanted.to_owned()),
        _ => Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {name}"))),
    }
}

fn node_address(state: &State, node: &str) -> Result<(String, u16), ApiError> {
    let found = state.with(|engine| engine.object("", "nodes", "", node));
    let Some(found) = found else {
        return Err(ApiError::internal(format!("error dialing backend: node {node:?} not found")));
    };
    let addresses = found.pointer("/status/addresses").and_then(Value::as_array);
    let of = |kind: &str| {
        let mut of_kind = addresses.into_iter().flatten().filter(|a| text(a, "/type") == kind);
        of_kind.next().map(|address| text(address, "/address").to_owned())
    };
    let port = found.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    match (of("InternalIP").or_else(|| of("Hostname")), port) {
        (Some(host), Some(port)) => Ok((host, port)),
        _ => {
            Err(ApiError::internal(format!("error dialing backend: node {node:?} gives no address and port")))
        }
    }
}

async fn send(
    tls: Arc<rustls::ClientConfig>,
    host: &str,
    port: u16,
    path: &str,
    client: &Client,
) -> Result<hyper::Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(ServerName::try_from(host.to_owned())?, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a node ended");
        }
    });
    let mut request =
        hyper::Request::builder().method(client.method.clone()).uri(path).header(header::HOST, host);
    for (name, value) in &client.headers {
        let carried = *name == header::CONNECTION
            || *name == header::UPGRADE
            || name.as_str().starts_with("sec-websocket-")
            || name.as_str() == "x-stream-protocol-version";
        if carried {
            request = request.header(name, value);
        }
    }
    Ok(sender.send_request(request.body(Empty::<Bytes>::new())?).await?)
}

/// Joins two upgraded connections until both sides are done.
async fn join(client: OnUpgrade, node: OnUpgrade) {
    let (Ok(client), Ok(node)) = tokio::join!(client, node) else { return };
    neonvm_kit::join::join(TokioIo::new(client), TokioIo::new(node)).await;
}

#[cfg(test)]
mod tests;
