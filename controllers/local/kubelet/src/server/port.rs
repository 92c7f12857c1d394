//! Connecting to a port of a pod.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use neonvm_api::runner_pod::{RUN_DIRECTORY, RUN_SOCKET};
use neonvm_types::runner_protocol::{GUEST_PORT_PATH, STREAM_PROTOCOL};
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::node::Node;
use crate::pod::Handle;
use crate::sys;

/// Time to reach a port.
const DEADLINE: Duration = Duration::from_secs(5);

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

/// The socket itself: the runner may write to its directory, and a link there leads nowhere.
fn open(socket: &std::path::Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(socket, flags, Mode::empty())?)
}

/// A short path of it.
fn through(socket: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", socket.as_raw_fd())
}

/// Requests the runner for a connection to a port of its guest.
async fn guest(
    socket: &std::path::Path,
    port: u16,
) -> Result<Box<dyn Stream>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = UnixStream::connect(&through(&open(socket)?)).await?;
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
