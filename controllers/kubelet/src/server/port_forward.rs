//! Connections to ports of pods.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use neonvm_api::runner_pod::{RUN_DIRECTORY, RUN_SOCKET};
use neonvm_types::runner_protocol::{GUEST_PORT_PATH, STREAM_PROTOCOL};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;

use super::body::{Query, Response, text};
use super::websocket::{self, Opening};
use crate::node::Node;
use crate::pod::Handle;
use crate::sys;

/// Time to reach a port.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most ports of a connection.
const MOST: usize = 64;

/// A connection to a port.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to a port of a pod: where its processes listen, then where the pod itself is reached, then the guest.
pub(super) async fn connect(
    node: &Arc<Node>,
    handle: &Arc<Handle>,
    port: u16,
) -> Result<Box<dyn Stream>, String> {
    let ip: Option<Ipv4Addr> = handle.view.borrow().ip.parse().ok();
    let namespace = node.network.enter(&handle.uid).map_err(|error| error.to_string())?;
    let mut why = String::from("the pod has no address");
    if let Some(namespace) = namespace {
        // A socket belongs to the namespace it was made in, not to that of its user.
        let dial = move || {
            let address = (Ipv4Addr::LOCALHOST, port).into();
            let stream = std::net::TcpStream::connect_timeout(&address, DEADLINE)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        match tokio::task::spawn_blocking(move || sys::in_network(namespace, dial)).await {
            Ok(Ok(stream)) => return boxed(TcpStream::from_std(stream)),
            Ok(Err(error)) => why = error.to_string(),
            Err(error) => why = error.to_string(),
        }
    }
    if let Some(ip) = ip {
        match tokio::time::timeout(DEADLINE, TcpStream::connect((ip, port))).await {
            Ok(Ok(stream)) => return boxed(Ok(stream)),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = "no answer within 5 s".to_owned(),
        }
    }
    let socket = handle.directory.root().join(RUN_DIRECTORY.trim_start_matches('/')).join(RUN_SOCKET);
    match tokio::time::timeout(DEADLINE, guest(&socket, port)).await {
        Ok(Ok(stream)) => Ok(stream),
        _ => Err(format!("port {port} cannot be reached: {why}")),
    }
}

fn boxed(stream: std::io::Result<TcpStream>) -> Result<Box<dyn Stream>, String> {
    let stream = stream.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(Box::new(stream))
}

/// Requests the runner for a connection to a port of its guest.
async fn guest(
    socket: &std::path::Path,
    port: u16,
) -> Result<Box<dyn Stream>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let request = hyper::Request::get(format!("{GUEST_PORT_PATH}{port}"))
        .header(header::HOST, "runner")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, STREAM_PROTOCOL)
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(format!("the runner answered {}", response.status()).into());
    }
    Ok(Box::new(TokioIo::new(hyper::upgrade::on(response).await?)))
}

/// `/portForward/…`
pub(super) fn serve(
    node: &Arc<Node>,
    handle: &Arc<Handle>,
    query: &Query,
    request: hyper::Request<Incoming>,
) -> Response {
    const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
    let known = [TUNNEL, "v4.channel.k8s.io", "portforward.k8s.io"];
    let (opening, response) = match websocket::accept(request, &known) {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    let (node, handle) = (Arc::clone(node), Arc::clone(handle));
    if opening.protocol == TUNNEL {
        tokio::spawn(super::spdy::serve(node, handle, opening));
        return response;
    }
    let texts: Vec<String> =
        query.all("ports").iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
    let ports: Result<Vec<u16>, _> = texts.iter().map(|port| port.parse()).collect();
    match ports {
        Ok(ports) if !ports.is_empty() && ports.len() <= MOST => {
            tokio::spawn(channels(node, handle, opening, ports));
            response
        }
        _ => text(StatusCode::BAD_REQUEST, "query parameter \"ports\" must name 1 to 64 ports"),
    }
}

/// Two channels for each port: data, and errors. Each begins with the port.
async fn channels(node: Arc<Node>, handle: Arc<Handle>, opening: Opening, ports: Vec<u16>) {
    let Some((sender, mut receiver)) = opening.open().await else { return };
    let sender = Arc::new(Mutex::new(sender));
    let mut writers: Vec<Option<tokio::io::WriteHalf<Box<dyn Stream>>>> = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        let data = u8::try_from(index * 2).unwrap_or(u8::MAX - 1);
        let mut out = sender.lock().await;
        let begun =
            out.send(data, &port.to_le_bytes()).await && out.send(data + 1, &port.to_le_bytes()).await;
        drop(out);
        if !begun {
            return;
        }
        match connect(&node, &handle, *port).await {
            Ok(stream) => {
                let (mut reader, writer) = tokio::io::split(stream);
                writers.push(Some(writer));
                let sender = Arc::clone(&sender);
                readers.spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        if !sender.lock().await.send(data, bytes).await {
                            return;
                        }
                    }
                });
            }
            Err(why) => {
                writers.push(None);
                sender.lock().await.send(data + 1, why.as_bytes()).await;
            }
        }
    }
    let incoming = async {
        while let Some(message) = receiver.next().await {
            let Some((channel, bytes)) = message.split_first() else { continue };
            let slot = writers.get_mut(usize::from(*channel) / 2).filter(|_| channel % 2 == 0);
            if let Some(Some(writer)) = slot
                && (writer.write_all(bytes).await.is_err() || writer.flush().await.is_err())
            {
                return;
            }
        }
    };
    let outgoing = async { while readers.join_next().await.is_some() {} };
    tokio::select! {
        () = incoming => {}
        () = outgoing => {}
    }
    readers.shutdown().await;
    if let Some(sender) = Arc::into_inner(sender) {
        websocket::end(sender.into_inner(), receiver).await;
    }
}
